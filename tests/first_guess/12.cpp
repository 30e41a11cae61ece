// Keras: convolutional autoencoder in the functional style, a schedule, own loss function, images as output.
#include <iostream>
#include <tandem/tandem.h>
namespace td = tandem;
using namespace td::layers;

td::Tensor total_variation(const td::Tensor& y_true, const td::Tensor& y_pred) {
  td::Tensor error = td::reduce_mean(td::square(y_true - y_pred), {.axis = {1, 2, 3}});
  td::Tensor dx = y_pred.slice(2, 1, 16) - y_pred.slice(2, 0, 15);
  return error + 0.01 * td::reduce_mean(td::abs(dx), {.axis = {1, 2, 3}});
}

int main() {
  auto input = td::Input({16, 16, 1});
  auto x = Conv2D(8, 3, {.strides = 2, .padding = "same", .activation = "relu"})(input);
  x = BatchNormalization()(x);
  x = Conv2D(4, {3, 3}, {.strides = {2, 2}, .padding = "same", .activation = "relu"})(x);
  x = Flatten()(x);
  auto code = Dense(8, {.name = "code"})(x);
  auto y = Dense(16 * 16, {.activation = "sigmoid"})(code);
  y = Reshape({16, 16, 1})(y);
  td::Model autoencoder(input, y, "autoencoder");
  td::Model encoder(input, code);
  autoencoder.summary();

  auto schedule = td::optimizers::schedules::CosineDecay({.initial_learning_rate = 0.01, .decay_steps = 100});
  autoencoder.compile({.optimizer = td::optimizers::Adam({.learning_rate = schedule}), .loss = total_variation});
  td::Tensor images = td::random::uniform({128, 16, 16, 1});
  auto history = autoencoder.fit(images, images, {.epochs = 5, .batch_size = 16, .verbose = 2});
  std::cout << history.at("loss").front() << " -> " << history.at("loss").back() << '\n';
  std::cout << encoder.predict(images).shape() << '\n';
  td::Tensor out = td::clip_by_value(autoencoder.predict(images) * 255.0, 0, 255);
  td::Tensor bytes = td::cast(out, td::uint8);
  std::cout << bytes.dtype() << ' ' << td::reduce_max(out) << '\n';
  return history.at("loss").back() < history.at("loss").front() ? 0 : 1;
}
