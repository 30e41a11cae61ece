// One training step of a case in Tandem, timed; prints a JSON line. The data is random and in
// memory, the step is forward, backward and SGD with momentum. With --replicas N, N replicas of
// --threads threads each take the case's batch EACH, under a MirroredStrategy. With --traced 1 the
// step is a traced function.
#include <tandem/tandem.h>

#include <memory>
#include <stdexcept>
#include <vector>

#include "report.h"

namespace td = tandem;
using td::data::Example;

namespace {

struct Case {
  td::Shape example;
  std::int64_t batch;
  td::Model (*make)();
  std::int64_t classes = 10;
};

td::Model mlp() {
  return td::Sequential({td::layers::Dense(512, {.activation = "relu", .input_shape = {784}}),
                         td::layers::Dense(512, {.activation = "relu"}), td::layers::Dense(10)});
}

td::Model lenet() {
  return td::Sequential(
      {td::layers::Conv2D(32, {3, 3}, {.activation = "relu", .input_shape = {28, 28, 1}}),
       td::layers::Conv2D(64, {3, 3}, {.activation = "relu"}), td::layers::MaxPooling2D({2, 2}),
       td::layers::Flatten(), td::layers::Dense(128, {.activation = "relu"}),
       td::layers::Dense(10)});
}

td::SymbolicInput convolve(const td::SymbolicInput& x, std::int64_t filters, std::int64_t kernel,
                           std::int64_t stride) {
  const td::Layer conv = td::layers::Conv2D(
      filters, kernel, {.strides = stride, .padding = "same", .use_bias = false});
  return td::layers::BatchNormalization()(conv(x));
}

td::Model resnet20() {
  const td::SymbolicInput input = td::Input({32, 32, 3});
  td::SymbolicInput x = td::layers::ReLU()(convolve(input, 16, 3, 1));
  for (const std::int64_t filters : {16, 32, 64})
    for (int block = 0; block < 3; ++block) {
      const std::int64_t stride = block == 0 && filters != 16 ? 2 : 1;
      td::SymbolicInput y = td::layers::ReLU()(convolve(x, filters, 3, stride));
      y = convolve(y, filters, 3, 1);
      if (stride != 1) x = convolve(x, filters, 1, stride);
      x = td::layers::ReLU()(td::layers::Add()(std::vector<td::SymbolicInput>{y, x}));
    }
  return td::Functional(input, td::layers::Dense(10)(td::layers::GlobalAveragePooling2D()(x)));
}

// Bottlenecks of 64, 128, 256 and 512 filters, the stride in the 3x3 convolution.
td::Model resnet50() {
  const td::SymbolicInput input = td::Input({224, 224, 3});
  td::SymbolicInput x = td::layers::ReLU()(convolve(input, 64, 7, 2));
  x = td::layers::MaxPooling2D({2, 2})(x);
  const std::vector<std::pair<std::int64_t, int>> stages = {{64, 3}, {128, 4}, {256, 6}, {512, 3}};
  for (const auto& [filters, blocks] : stages)
    for (int block = 0; block < blocks; ++block) {
      const std::int64_t stride = block == 0 && filters != 64 ? 2 : 1;
      td::SymbolicInput y = td::layers::ReLU()(convolve(x, filters, 1, 1));
      y = td::layers::ReLU()(convolve(y, filters, 3, stride));
      y = convolve(y, 4 * filters, 1, 1);
      if (block == 0) x = convolve(x, 4 * filters, 1, stride);
      x = td::layers::ReLU()(td::layers::Add()(std::vector<td::SymbolicInput>{y, x}));
    }
  return td::Functional(input, td::layers::Dense(1000)(td::layers::GlobalAveragePooling2D()(x)));
}

Case find_case(const std::string& name) {
  if (name == "mlp64") return {{784}, 64, mlp};
  if (name == "mlp512") return {{784}, 512, mlp};
  if (name == "lenet64") return {{28, 28, 1}, 64, lenet};
  if (name == "resnet20") return {{32, 32, 3}, 128, resnet20};
  if (name == "resnet50") return {{224, 224, 3}, 8, resnet50, 1000};
  throw std::invalid_argument("no case " + name);
}

std::vector<Example> make_pool(const Case& what, std::int64_t batch) {
  std::vector<Example> pool;
  for (int i = 0; i < 4; ++i)
    pool.push_back({td::random::normal(what.example.with_leading(batch)),
                    td::random::uniform_int({batch}, 0, what.classes, {.dtype = td::int64})});
  return pool;
}

// Forward and backward for one replica's share of the batch, and the update.
td::Tensor train_step(const td::Model& model, td::optimizers::Optimizer& optimizer,
                      const std::vector<td::Variable>& variables, const Example& batch,
                      std::int64_t global_batch) {
  const td::Tensor logits = model(batch[0], {.training = true});
  const td::Tensor losses = td::nn::sparse_softmax_cross_entropy(batch[1], logits);
  const td::Tensor loss = td::nn::compute_average_loss(losses, {.global_batch_size = global_batch});
  optimizer.minimize(loss, variables);
  return loss;
}

void run_alone(const bench::Options& options, const Case& what, double startup_ms) {
  td::Model model = what.make();
  const auto variables = model.trainable_variables();
  auto optimizer = td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9});
  const std::vector<Example> pool = make_pool(what, what.batch);
  const auto step = [&](const Example& batch) {
    return train_step(model, optimizer, variables, batch, what.batch);
  };
  const auto measure = [&](const char* program, const auto& run) {
    bench::measure(program, options, startup_ms, [&](int steps) {
      td::Tensor loss;
      for (int i = 0; i < steps; ++i) loss = run(pool[static_cast<std::size_t>(i) % pool.size()]);
      loss.item<float>();
    });
  };
  if (options.traced)
    measure("traced", td::function(step));
  else
    measure("tandem", step);
}

void run_mirrored(const bench::Options& options, const Case& what, double startup_ms) {
  std::vector<std::string> devices;
  for (int i = 0; i < options.replicas; ++i) devices.push_back("/cpu:" + std::to_string(i));
  td::distribute::MirroredStrategy strategy({.devices = devices});
  td::Model model;
  td::optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    model = what.make();
    optimizer = td::optimizers::SGD({.learning_rate = 0.01, .momentum = 0.9});
  }
  const auto variables = model.trainable_variables();
  const std::int64_t global_batch = what.batch * options.replicas;

  std::vector<td::distribute::PerReplica<Example>> pool;
  for (const Example& batch : make_pool(what, global_batch)) {
    const auto dataset = td::data::Dataset::from_tensor_slices(batch).batch(global_batch);
    for (const auto& inputs : strategy.experimental_distribute_dataset(dataset))
      pool.push_back(inputs);
  }
  const auto step = [&](const td::distribute::PerReplica<Example>& batch) {
    return strategy.run(
        [&](const Example& inputs) {
          return train_step(model, optimizer, variables, inputs, global_batch);
        },
        batch);
  };
  const auto measure = [&](const char* program, const auto& run) {
    bench::measure(program, options, startup_ms, [&](int steps) {
      for (int i = 0; i < steps; ++i) {
        const auto losses = run(pool[static_cast<std::size_t>(i) % pool.size()]);
        if (i + 1 == steps) strategy.reduce(td::ReduceOp::kSum, losses).template item<float>();
      }
    });
  };
  if (options.traced)
    measure("traced", td::function(step));
  else
    measure("tandem", step);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options = bench::parse(argc, argv);
  const Case what = find_case(options.name);
  td::config::set_logical_cpus(options.replicas);
  td::config::set_intra_op_parallelism_threads(options.threads * options.replicas);
  (td::ones({1}) + td::ones({1})).item<float>();
  const double startup_ms = bench::since_start_ms();
  if (options.replicas == 1)
    run_alone(options, what, startup_ms);
  else
    run_mirrored(options, what, startup_ms);
}
