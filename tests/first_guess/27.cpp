// TensorFlow: linear regression with tf.Variable and tape, tf.function, tf.data, NumPy-like operations, checkpoint.
#include <iostream>
#include <tandem/tandem.h>
namespace tf = tandem;

int main() {
  tf::random::set_seed(11);
  tf::Tensor x = tf::random::normal({200, 3});
  tf::Tensor true_w = tf::constant({{2.0f}, {-3.0f}, {0.5f}});
  tf::Tensor y = tf::matmul(x, true_w) + 1.0f + tf::random::normal({200, 1}, 0.0, 0.01);

  tf::Variable w(tf::zeros({3, 1}), {.name = "w"});
  tf::Variable b(0.0f, {.name = "b"});
  tf::optimizers::SGD optimizer(0.1);

  auto train_step = tf::function([&](const tf::Tensor& features, const tf::Tensor& targets) {
    tf::GradientTape tape;
    auto prediction = tf::matmul(features, w) + b;
    auto loss = tf::reduce_mean(tf::square(prediction - targets));
    auto [dw, db] = tape.gradient(loss, {w, b});
    optimizer.apply_gradients({{dw, w}, {db, b}});
    return loss;
  });

  auto dataset = tf::data::Dataset::from_tensor_slices({x, y})
                     .shuffle(200)
                     .batch(20)
                     .map([](const tf::Tensor& a, const tf::Tensor& c) { return std::make_pair(a, c); })
                     .prefetch(tf::data::AUTOTUNE);
  tf::train::Checkpoint checkpoint({{"w", w}, {"b", b}});
  tf::Tensor loss;
  for (int epoch = 0; epoch < 20; ++epoch) {
    for (const auto& [features, targets] : dataset) loss = train_step(features, targets);
    if (epoch % 5 == 4) std::cout << "epoch " << epoch << " loss " << loss << " w " << tf::squeeze(w) << std::endl;
  }
  const std::string path = checkpoint.save("linear");
  w.assign(tf::zeros_like(w));
  checkpoint.restore(path);
  tf::Tensor error = tf::reduce_max(tf::abs(w - true_w));
  tf::print("error", error, "bias", b);
  auto mean = tf::reduce_mean(x, 0), stddev = tf::math::reduce_std(x, 0);
  auto normalized = (x - mean) / stddev;
  auto histogram = tf::math::bincount(tf::cast(tf::clip_by_value(normalized[{tf::Slice(), 0}] + 3.0, 0, 5), tf::int32));
  std::cout << histogram << tf::reduce_sum(histogram).item<int>() << '\n';
  return float(error) < 0.1f ? 0 : 1;
}
