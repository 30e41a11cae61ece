// Steps per second of asynchronous training with parameter servers. Every task runs this program:
//
//     tandem run --ps 2 --workers N --chief -- parameter_server MODEL [--steps 200] [--cycles 5]
//         [--calls 1] [--snapshot-seconds 30]
//
// Each worker gets this many calls at the same time. A server writes a snapshot after so many
// seconds; with more than the benchmark takes, none.
// mlp512: 784-512-512-10 on batches of 64, SGD. recommender: a table of 2,000,000 rows of 16, eight
// ids per example, a dense layer of 64 and one of 1, on batches of 256, SGD with sparse updates.
// Every task computes with one thread. Prints one line per cycle: "steps_per_second VALUE".
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>

#include "tandem/tandem.h"

namespace {

namespace td = tandem;
using td::data::Dataset;
using td::data::Example;

struct Workload {
  td::Sequential model;
  std::function<td::Tensor(const td::Tensor& targets, const td::Tensor& outputs)> loss;
  Dataset data;
};

Workload mlp512() {
  td::random::set_seed(1);
  return {
      .model =
          td::Sequential({td::layers::Dense(512, {.activation = "relu", .input_shape = {784}}),
                          td::layers::Dense(512, {.activation = "relu"}), td::layers::Dense(10)}),
      .loss =
          [](const td::Tensor& targets, const td::Tensor& outputs) {
            return td::reduce_mean(td::nn::sparse_softmax_cross_entropy(targets, outputs));
          },
      .data =
          Dataset::from_tensor_slices({td::random::uniform({4096, 784}),
                                       td::cast(td::random::uniform({4096}, 0.0, 10.0), td::int32)})
              .shuffle(4096)
              .repeat()
              .batch(64)};
}

Workload recommender() {
  constexpr std::int64_t kRows = 2'000'000;
  td::random::set_seed(1);
  return {.model = td::Sequential(
              {td::layers::Embedding(kRows, 16, {.input_shape = {8}}), td::layers::Flatten(),
               td::layers::Dense(64, {.activation = "relu"}), td::layers::Dense(1)}),
          .loss =
              [](const td::Tensor& targets, const td::Tensor& outputs) {
                return td::reduce_mean(td::square(outputs - targets));
              },
          .data = Dataset::from_tensor_slices(
                      {td::cast(td::random::uniform({65536, 8}, 0.0, double{kRows}), td::int32),
                       td::random::normal({65536, 1})})
                      .shuffle(65536)
                      .repeat()
                      .batch(256)};
}

int number_after(int argc, char** argv, const std::string& option, int otherwise) {
  for (int i = 1; i + 1 < argc; ++i)
    if (argv[i] == option) return std::atoi(argv[i + 1]);
  return otherwise;
}

}  // namespace

int main(int argc, char** argv) {
  td::config::set_intra_op_parallelism_threads(1);
  const td::distribute::TFConfigClusterResolver cluster;
  if (cluster.task_type() == "worker" || cluster.task_type() == "ps") {
    td::distribute::Server(
        cluster, {.snapshot_seconds = 1.0 * number_after(argc, argv, "--snapshot-seconds", 30)})
        .join();
    return 0;
  }
  const std::string name = argc > 1 ? argv[1] : "mlp512";
  const int steps = number_after(argc, argv, "--steps", 200);
  const int cycles = number_after(argc, argv, "--cycles", 5);
  const td::distribute::ParameterServerStrategy strategy(
      cluster, {.variable_partitioner = td::distribute::MinSizePartitioner(
                    {.min_shard_bytes = 8 << 20, .max_shards = 2}),
                .calls_per_worker = number_after(argc, argv, "--calls", 1)});
  td::distribute::ClusterCoordinator coordinator(strategy);
  Workload workload;
  td::optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    workload = name == "recommender" ? recommender() : mlp512();
    optimizer = td::optimizers::SGD({.learning_rate = 0.01});
  }
  const auto data = coordinator.create_per_worker_dataset(workload.data);
  const auto step = td::function([&](td::data::Iterator& batches) {
    const Example batch = *batches.next();
    td::GradientTape tape;
    const td::Tensor loss = workload.loss(batch[1], workload.model(batch[0], {.training = true}));
    const auto variables = workload.model.trainable_variables();
    optimizer.apply_gradients(tape.gradient(loss, variables), variables);
    return loss.detach();
  });
  td::distribute::RemoteValue last;
  const auto run = [&](int count) {
    for (int i = 0; i < count; ++i) last = coordinator.schedule(step, data);
    coordinator.join();
  };
  run(std::max(steps / 5, 1));
  for (int cycle = 0; cycle < cycles; ++cycle) {
    const auto begin = std::chrono::steady_clock::now();
    run(steps);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::cout << "steps_per_second " << steps / took.count() << std::endl;
  }
  std::cerr << "loss " << last.fetch().item<float>() << '\n';
}
