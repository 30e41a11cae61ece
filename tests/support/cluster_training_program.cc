// Training with parameter servers, for tests of clusters of processes:
//
//   cluster_training_program loop STEPS         a perceptron in a loop of its own, noisy labels
//   cluster_training_program recommender STEPS  a table of 2,000,000 rows, in two shards
//   cluster_training_program fit DIRECTORY      LeNet by fit(), on the MNIST of DIRECTORY
//
// Each task prints "process PID at ADDRESS". The chief prints "finished N" from time to time, and
// at the end a line "NAME VALUE" for each result. Parameter servers write snapshots often.
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include "tandem/tandem.h"

namespace td = tandem;

namespace {

using td::distribute::ClusterCoordinator;
using td::distribute::ParameterServerStrategy;
using namespace std::chrono_literals;

struct Examples {
  td::Tensor x, y;
};

// Classes of a random linear function, with noise: no model has a loss of 0. The batches are large,
// so that a job lasts long enough to be disturbed.
Examples noisy_examples() {
  constexpr std::int64_t kExamples = 32'768, kInputs = 64, kClasses = 10;
  td::random::set_seed(1);
  const td::Tensor x = td::random::normal({kExamples, kInputs});
  const td::Tensor scores = td::matmul(x, td::random::normal({kInputs, kClasses})) +
                            td::random::normal({kExamples, kClasses}) * 8.0;
  return {x, td::argmax(scores, 1)};
}

void print(const td::distribute::ClusterStatistics& statistics) {
  std::cout << "calls_finished " << statistics.calls_finished << "\ncalls_repeated "
            << statistics.calls_repeated << "\nworkers_lost " << statistics.workers_lost
            << "\nupdates " << statistics.updates << "\nupdates_lost_0 "
            << statistics.updates_lost.at(0) << "\nupdates_lost_1 " << statistics.updates_lost.at(1)
            << "\nmean_staleness " << statistics.mean_staleness << "\nmax_staleness "
            << statistics.max_staleness << std::endl;
}

void wait_for_calls(ClusterCoordinator& coordinator) {
  for (bool done = false; !done; std::this_thread::sleep_for(20ms)) {
    done = coordinator.done();
    std::cout << "finished " << coordinator.statistics().calls_finished << std::endl;
  }
}

void train_in_a_loop(const ParameterServerStrategy& strategy, int steps) {
  ClusterCoordinator coordinator(strategy);
  const Examples all = noisy_examples();
  td::Sequential model;
  td::optimizers::Optimizer adam;
  std::vector<td::Variable> counters;
  {
    const auto scope = strategy.scope();
    model = td::Sequential({td::layers::Dense(32, {.activation = "relu", .input_shape = {64}}),
                            td::layers::Dense(32, {.activation = "relu"}), td::layers::Dense(10)});
    adam = td::optimizers::Adam(
        {.learning_rate = td::optimizers::schedules::cosine_decay(1e-2, steps)});
    for (int server = 0; server < 2; ++server)  // variables are on the servers in turn
      counters.emplace_back(td::zeros({}, {.dtype = td::int64}));
  }
  const auto loss_of = [&](const Examples& examples) {
    return td::reduce_mean(td::nn::sparse_softmax_cross_entropy(examples.y, model(examples.x)));
  };
  const auto data = coordinator.create_per_worker_dataset(
      td::data::Dataset::from_tensor_slices({all.x, all.y}).shuffle(32'768).repeat().batch(16'384));
  const auto step = td::function([&](td::data::Iterator& batches) {
    const auto batch = batches.next();
    td::GradientTape tape;
    const td::Tensor loss = loss_of({batch[0], batch[1]});
    adam.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                         model.trainable_variables());
    for (td::Variable& counter : counters) counter.assign_add(td::ones({}, {.dtype = td::int64}));
    return loss;
  });
  std::cout << "first_loss " << loss_of(all).item<float>() << std::endl;
  for (int i = 0; i < steps; ++i) coordinator.schedule(step, data);
  wait_for_calls(coordinator);
  std::cout << "counter_0 " << counters[0].value().item<std::int64_t>() << "\ncounter_1 "
            << counters[1].value().item<std::int64_t>() << "\nlast_loss "
            << loss_of(all).item<float>() << std::endl;
  print(coordinator.statistics());
}

// The bytes that have passed the loopback of this network namespace.
std::int64_t loopback_bytes() {
  std::ifstream devices("/proc/self/net/dev");
  for (std::string name; devices >> name;) {
    std::int64_t received = 0;
    if (name == "lo:" && devices >> received) return received;
  }
  throw td::NotFoundError("there is no loopback");
}

// 1024 examples of eight rows each, none of which occurs twice, are learned by heart. Batches of
// several sizes look up, and update, different numbers of rows.
void train_recommender(const ParameterServerStrategy& strategy, int steps) {
  constexpr std::int64_t kRows = 2'000'000, kExamples = 1024, kRowsOfExample = 8, kWidth = 16;
  ClusterCoordinator coordinator(strategy);
  td::random::set_seed(1);
  const td::Tensor ids =
      td::reshape(td::range(kExamples * kRowsOfExample) * (kRows / (kExamples * kRowsOfExample)),
                  {kExamples, kRowsOfExample});
  const Examples all = {ids, td::random::normal({kExamples, 1})};
  td::Sequential model;
  td::optimizers::Optimizer adagrad;
  {
    const auto scope = strategy.scope();
    model = td::Sequential({td::layers::Embedding(kRows, kWidth, {.input_shape = {kRowsOfExample}}),
                            td::layers::Flatten(), td::layers::Dense(16, {.activation = "relu"}),
                            td::layers::Dense(1)});
    adagrad = td::optimizers::Adagrad({.learning_rate = 0.1});
  }
  const auto loss_of = [&](const Examples& examples) {
    return td::reduce_mean(td::square(model(examples.x) - examples.y));
  };
  const auto step = td::function([&](td::data::Iterator& batches) {
    const auto batch = batches.next();
    td::GradientTape tape;
    const td::Tensor loss = loss_of({batch[0], batch[1]});
    adagrad.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                            model.trainable_variables());
    return loss;
  });
  const auto whole_loss = td::function([&](const td::Tensor& x, const td::Tensor& y) {
    return loss_of({x, y});
  });
  std::cout << "first_loss " << whole_loss(all.x, all.y).item<float>() << std::endl;
  for (const std::int64_t batch : {8, 32, 128}) {
    const auto data = coordinator.create_per_worker_dataset(
        td::data::Dataset::from_tensor_slices({all.x, all.y}).shuffle(1024).repeat().batch(batch));
    const auto run = [&](int count) {
      for (int i = 0; i < count; ++i) coordinator.schedule(step, data);
      coordinator.join();
    };
    run(10);  // each worker has the function and the dataset then
    const std::int64_t before = loopback_bytes();
    run(steps);
    std::cout << "bytes_per_step_of_" << batch * kRowsOfExample << "_rows "
              << (loopback_bytes() - before) / steps << std::endl;
  }
  std::cout << "last_loss " << whole_loss(all.x, all.y).item<float>() << std::endl;
  print(coordinator.statistics());
}

void fit_lenet(const ParameterServerStrategy& strategy, const std::string& directory) {
  constexpr std::int64_t kEpochs = 2, kBatch = 128;
  const auto [train, test] = td::datasets::mnist(directory);
  td::Sequential model;
  {
    const auto scope = strategy.scope();
    model = td::Sequential({
        td::layers::Conv2D(16, 5,
                           {.padding = "same", .activation = "relu", .input_shape = {28, 28, 1}}),
        td::layers::MaxPooling2D(2),
        td::layers::Conv2D(32, 5, {.activation = "relu"}),
        td::layers::MaxPooling2D(2),
        td::layers::Flatten(),
        td::layers::Dense(120, {.activation = "relu"}),
        td::layers::Dense(84, {.activation = "relu"}),
        td::layers::Dense(10),
    });
    model.compile({.optimizer = td::optimizers::Adam(
                       {.learning_rate = td::optimizers::schedules::cosine_decay(
                            2e-3, kEpochs * (train.size() / kBatch))}),
                   .loss = td::losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"}});
  }
  const auto scaled = [](const td::data::Example& example) {
    return td::data::Example{td::cast(example[0], td::float32) / 255.0, example[1]};
  };
  const auto batches =
      train.dataset().shuffle(60'000, {.seed = 1}).batch(kBatch).map(scaled).prefetch(2);
  model.fit(batches, {.epochs = kEpochs, .verbose = 0});
  const auto result = model.evaluate(test.dataset().batch(500).map(scaled), {.verbose = 0});
  std::cout << "test_accuracy " << result.at("accuracy") << std::endl;
  print(ClusterCoordinator(strategy).statistics());
}

void train(const td::distribute::ClusterResolver& cluster, const std::string& how,
           const std::string& argument) {
  const ParameterServerStrategy strategy(
      cluster, {.variable_partitioner = td::distribute::MinSizePartitioner(
                    {.min_shard_bytes = 1 << 20, .max_shards = 2})});
  if (how == "loop")
    train_in_a_loop(strategy, std::stoi(argument));
  else if (how == "recommender")
    train_recommender(strategy, std::stoi(argument));
  else
    fit_lenet(strategy, argument);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const td::distribute::TFConfigClusterResolver cluster;
    const auto& addresses = cluster.cluster_spec().at(cluster.task_type());
    std::cout << "process " << getpid() << " at "
              << addresses[static_cast<std::size_t>(cluster.task_id())] << std::endl;
    if (cluster.task_type() == "chief")
      train(cluster, argv[1], argv[2]);
    else
      td::distribute::Server(cluster, {.snapshot_updates = 16}).join();
    return 0;
  } catch (const td::Error& error) {
    std::cerr << error.kind() << ": " << error.what() << std::endl;
    return 2;
  }
}
