// An operation of the program's own: a leaky sum along the last axis, y[t] = x[t] + decay * y[t - 1].
#include <tandem/tandem.h>
#include <filesystem>
#include <iostream>
namespace td = tandem;

td::Tensor leaky_sum(const td::Tensor& x, double decay);

// The shape rule. Sizes may be unknown: they are taken over as they are.
std::vector<td::InputSpec> infer(const td::InferCall& call) {
  const td::InputSpec x = call.input(0);
  if (x.shape.rank() < 1 || (x.dtype != td::float32 && x.dtype != td::float64))
    throw td::ShapeError("[example.LeakySum] expected float32 or float64 and one or more axes");
  return {x};
}

template <class T>
void add_up(const td::KernelCall& call) {
  const td::KernelTensor x = call.input(0), y = call.output(0);
  const T decay = static_cast<T>(call.attribute("decay").toDouble());
  const std::int64_t length = x.shape.back();
  if (x.size() == 0) return;
  call.parallel_for(x.size() / length, 1 + 4096 / length, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      T sum = 0;
      for (std::int64_t t = row * length; t < (row + 1) * length; ++t)
        y.as<T>()[t] = sum = x.as<T>()[t] + decay * sum;
    }
  });
}

void cpu_kernel(const td::KernelCall& call) {
  call.input(0).dtype == td::float64 ? add_up<double>(call) : add_up<float>(call);
}

// The gradient is the same sum from the end. It consists of operations, so that it has a gradient.
std::vector<td::Tensor> gradient(const td::GradientCall& call) {
  const td::Tensor from_end = td::reverse(call.gradient(), {-1});
  return {td::reverse(leaky_sum(from_end, call.attribute("decay").toDouble()), {-1})};
}

const td::CustomOperation kLeakySum = td::custom_operation({.name = "example.LeakySum",
                                                            .infer = infer,
                                                            .cpu_kernel = cpu_kernel,
                                                            .gradient = gradient,
                                                            .saved_inputs = std::vector<int>(),
                                                            .saved_outputs = std::vector<int>()});

td::Tensor leaky_sum(const td::Tensor& x, double decay) { return kLeakySum({x}, {{"decay", decay}}); }

int main() {
  std::cout << leaky_sum(td::constant({1.0, 0.0, 2.0}), 0.5) << '\n';  // [1.   0.5  2.25]

  td::random::set_seed(1);
  const td::Tensor at = td::random::normal({2, 4}, 0.0, 1.0, {.dtype = td::float64});
  const auto squares = [](const td::Tensor& v) { return td::square(leaky_sum(v, 0.9)); };
  std::cout << "gradients agree with differences: " << td::autograd::gradcheck(squares, at) << '\n';

  // A model that learns by how much each of four signals counts. fit() traces it.
  const td::Tensor x = td::random::normal({512, 4, 32}), truth = td::constant({1.0, -2.0, 0.5, 3.0});
  const td::Tensor y = leaky_sum(td::reduce_sum(x * td::reshape(truth, {4, 1}), {1}), 0.8);
  td::Sequential model({td::layers::Permute({2, 1}, {.input_shape = {4, 32}}), td::layers::Dense(1),
                        td::layers::Flatten(),
                        td::layers::Lambda([](const td::Tensor& v) { return leaky_sum(v, 0.8); })});
  model.compile({.optimizer = td::optimizers::Adam(0.05), .loss = td::losses::MeanSquaredError()});
  const td::History history = model.fit(x, y, {.epochs = 30, .batch_size = 32, .verbose = 0});
  std::cout << "learned: " << (history["loss"].back() < 1e-3) << '\n';

  // A graph with the operation, for any length, by way of a file.
  const std::string path = (std::filesystem::temp_directory_path() / "leaky_sum.graph").string();
  td::Graph graph;
  {
    const td::GraphScope building(graph);
    td::identity(leaky_sum(td::placeholder(td::float32, {-1}, "x"), 0.5), {.name = "y"});
  }
  graph.save(path, {});
  td::Session session(td::Graph::load(path));
  std::cout << session.run({{"x:0", td::constant({4.0, 0.0})}}, {"y:0"})[0] << '\n';  // [4. 2.]
  std::filesystem::remove(path);
}
