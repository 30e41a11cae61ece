// Counts the launches, copies and waits of the host in a traced training step on the fake GPUs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cuda/fake_cuda.h"
#include "support/copies.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using distribute::PerReplica;

struct Counts {
  fake_cuda::GraphCounts graphs = fake_cuda::graph_counts();
  fake_cuda::HostCounts host = fake_cuda::host_counts();
};
// The counts of one call.
template <class F>
Counts counts_of(const F& call) {
  const Counts before;
  const auto kept = call();
  Counts added;
  added.graphs.launched -= before.graphs.launched;
  added.graphs.made -= before.graphs.made;
  added.graphs.updated -= before.graphs.updated;
  added.host.enqueued -= before.host.enqueued;
  added.host.copied -= before.host.copied;
  added.host.waited -= before.host.waited;
  return added;
}

// During its lifetime, kernels are launched one by one, because the profile records each.
class OneByOne {
 public:
  OneByOne() { profiler::start({.file = file_}); }
  ~OneByOne() {
    profiler::stop();
    std::filesystem::remove(file_);
  }

 private:
  const std::filesystem::path file_ =
      ::testing::TempDir() + "training_step_" + std::to_string(getpid());
};

// The losses of some steps, and the variables after them.
struct Trained {
  std::vector<std::vector<float>> values;

  void add(const std::vector<Variable>& variables) {
    for (const Variable& variable : variables)
      if (variable.dtype() == float32)  // except the step counter
        for (const Tensor& copy : testing::copies_of(variable))
          values.push_back(copy.to_vector<float>());
  }
};

constexpr int kSteps = 5;

struct Net {
  std::vector<Layer> layers;
  std::function<Tensor(const std::vector<Layer>& layers, const Tensor& x)> call;

  std::vector<Variable> variables(bool trainable) const {
    std::vector<Variable> all;
    for (const Layer& layer : layers)
      for (const Variable& variable : trainable ? layer.trainable_variables() : layer.variables())
        all.push_back(variable);
    return all;
  }
};

Tensor train(const Net& model, optimizers::Optimizer& optimizer, const Tensor& x,
             const Tensor& labels) {
  GradientTape tape;
  const Tensor loss =
      reduce_mean(nn::sparse_softmax_cross_entropy(labels, model.call(model.layers, x)));
  const auto variables = model.variables(true);
  optimizer.apply_gradients(tape.gradient(loss, variables), variables);
  return loss;
}

Net lenet() {
  return {
      {layers::Conv2D(4, 5, {.padding = "same", .activation = "tanh"}), layers::AveragePooling2D(),
       layers::Conv2D(8, 3, {.activation = "tanh"}), layers::AveragePooling2D(), layers::Flatten(),
       layers::Dense(16, {.activation = "tanh"}), layers::Dropout(0.4), layers::Dense(3)},
      [](const auto& layers, Tensor x) {
        for (const Layer& layer : layers) x = layer(x, {.training = true});
        return x;
      }};
}

// A block with a shortcut connection, then the head.
Net resnet() {
  const auto conv = [] { return layers::Conv2D(4, 3, {.padding = "same", .use_bias = false}); };
  return {{conv(), layers::BatchNormalization(), conv(), layers::BatchNormalization(), conv(),
           layers::BatchNormalization(), layers::GlobalAveragePooling2D(), layers::Dense(3)},
          [](const auto& layers, const Tensor& image) {
            const CallOptions training{.training = true};
            const Tensor x = nn::relu(layers[1](layers[0](image, training), training));
            const Tensor y = nn::relu(layers[3](layers[2](x, training), training));
            const Tensor z = nn::relu(layers[5](layers[4](y, training), training) + x);
            return layers[7](layers[6](z, training), training);
          }};
}

// Steps with and without graphs give the same bits. Later steps consist of one launch and as many
// copies as there are changing inputs.
void expect_one_launch(const std::function<Net()>& make,
                       const std::function<optimizers::Optimizer()>& make_optimizer, int copies) {
  Trained one_by_one, recorded;
  for (Trained* trained : {&one_by_one, &recorded}) {
    random::set_seed(5);
    const Net model = make();
    optimizers::Optimizer optimizer = make_optimizer();
    const Tensor x = random::normal({4, 12, 12, 1});
    const Tensor labels = constant({0, 2, 1, 2});
    const auto step = function([&](const Tensor& images, const Tensor& classes) {
      return train(model, optimizer, images, classes);
    });
    {
      std::optional<OneByOne> profiled;
      if (trained == &one_by_one) profiled.emplace();
      for (int i = 0; i < kSteps; ++i) trained->values.push_back({step(x, labels).item<float>()});
    }
    trained->add(model.variables(false));
    trained->add(optimizer.variables());
    EXPECT_EQ(fake_cuda::graph_counts().launched, trained == &one_by_one ? 0 : kSteps - 1);
    if (trained == &one_by_one) continue;
    step(x, labels);
    for (int i = 0; i < 3; ++i) {
      const Counts counts = counts_of([&] { return step(x, labels); });
      EXPECT_EQ(counts.graphs.launched, 1);
      EXPECT_EQ(counts.graphs.made, 0);
      EXPECT_EQ(counts.graphs.updated, 0);
      EXPECT_EQ(counts.host.enqueued, 0) << "kernels by themselves";
      EXPECT_EQ(counts.host.copied, copies);
      EXPECT_EQ(counts.host.waited, 0);
    }
  }
  EXPECT_EQ(recorded.values, one_by_one.values);
}

TEST(TrainingStep, OfLeNetWithDropoutAndAdamIsOneLaunch) {
  expect_one_launch(
      lenet, [] { return optimizers::Adam({.learning_rate = 0.01}); }, 1);
}

TEST(TrainingStep, OfResNetWithMomentumIsOneLaunch) {
  expect_one_launch(
      resnet, [] { return optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}); }, 0);
}

TEST(TrainingStep, ByAScheduleIsOneLaunch) {
  const auto schedule = optimizers::LearningRate::Schedule(
      [](std::int64_t step) { return 0.1 / (1.0 + static_cast<double>(step)); });
  expect_one_launch(
      resnet, [&] { return optimizers::SGD({.learning_rate = schedule, .momentum = 0.9}); }, 1);
}

TEST(TrainingStep, SamplesAnewInEachRun) {
  const auto sample = function([](const Tensor& x) {
    return std::vector<Tensor>{nn::dropout(x, 0.5), random::normal({37}), random::uniform({5, 3}),
                               random::truncated_normal({9})};
  });
  const Tensor x = ones({1000});
  random::set_seed(9);
  std::vector<std::vector<std::vector<float>>> sampled, expected;
  for (int i = 0; i < kSteps; ++i) {
    auto& each = sampled.emplace_back();
    for (const Tensor& tensor : sample(x)) each.push_back(tensor.to_vector<float>());
  }
  EXPECT_EQ(fake_cuda::graph_counts().launched, kSteps - 1);
  random::set_seed(9);
  for (int i = 0; i < kSteps; ++i)
    expected.push_back({nn::dropout(x, 0.5).to_vector<float>(),
                        random::normal({37}).to_vector<float>(),
                        random::uniform({5, 3}).to_vector<float>(),
                        random::truncated_normal({9}).to_vector<float>()});
  EXPECT_EQ(sampled, expected);
  for (int i = 1; i < kSteps; ++i) EXPECT_NE(sampled[static_cast<std::size_t>(i)], sampled[0]);
}

// Two replicas that reduce gradients with NCCL: the results of steps, then the counts of one.
Trained train_replicas(bool one_by_one, std::optional<Counts>& counts) {
  const distribute::MirroredStrategy strategy(
      {.devices = {"/gpu:0", "/gpu:1"}, .cross_device_ops = distribute::NcclAllReduce()});
  random::set_seed(5);
  Net net;
  optimizers::Optimizer optimizer;
  {
    auto scope = strategy.scope();
    net = lenet();
    net.call(net.layers, zeros({1, 12, 12, 1}));
    optimizer = optimizers::Adam({.learning_rate = 0.01});
  }
  const auto replica_step = [&](const data::Example& batch) {
    GradientTape tape;
    const Tensor loss = nn::compute_average_loss(
        nn::sparse_softmax_cross_entropy(batch[1], net.call(net.layers, batch[0])));
    optimizer.minimize(loss, net.variables(true));
    return loss;
  };
  const auto step = function(
      [&](const PerReplica<data::Example>& batch) { return strategy.run(replica_step, batch); });
  Trained trained;
  const auto add = [&](const PerReplica<Tensor>& losses) {
    for (std::size_t replica = 0; replica < losses.size(); ++replica)
      trained.values.push_back({losses[replica].item<float>()});
  };
  const auto dataset =
      data::Dataset::from_tensor_slices({random::normal({4, 12, 12, 1}), constant({0, 2, 1, 2})})
          .batch(4);
  for (const auto& batch : strategy.experimental_distribute_dataset(dataset)) {
    std::optional<OneByOne> profiled;
    if (one_by_one) profiled.emplace();
    for (int i = 0; i < kSteps; ++i) add(step(batch));
    profiled.reset();
    trained.add(net.variables(false));
    trained.add(optimizer.variables());
    if (one_by_one) break;
    step(batch);
    step(batch);
    counts = counts_of([&] { return step(batch); });
  }
  return trained;
}

TEST(TrainingStep, OfTwoReplicasWaitsForNothing) {
  std::optional<Counts> counts;
  const Trained one_by_one = train_replicas(true, counts);
  EXPECT_EQ(fake_cuda::graph_counts().launched, 0);
  const Trained recorded = train_replicas(false, counts);
  EXPECT_EQ(recorded.values, one_by_one.values);
  ASSERT_TRUE(counts);
  EXPECT_EQ(counts->graphs.launched, 2) << "forward and backward, of each replica";
  EXPECT_EQ(counts->host.enqueued, 3) << "the collective, and the update of each";
  EXPECT_EQ(counts->host.copied, 2) << "the random numbers of each";
  EXPECT_EQ(counts->host.waited, 0);
}

}  // namespace
}  // namespace tandem
