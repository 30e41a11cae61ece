// TPUStrategy over the devices of a PJRT plug-in, against MirroredStrategy over as many CPUs.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/variable_impl.h"
#include "support/errors.h"
#include "support/pjrt.h"
#include "tandem/tandem.h"

namespace tandem::tpu_strategy_test {
namespace {

using distribute::MirroredStrategy;
using distribute::PerReplica;
using distribute::Strategy;
using distribute::TPUStrategy;

constexpr int kReplicas = 4;

class TpuStrategy : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
    config::set_logical_cpus(kReplicas);
    config::load_pjrt_plugin(testing::first_plugin());
  }
  static MirroredStrategy cpus() {
    return MirroredStrategy({.devices = {"/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3"}});
  }
};

data::Dataset images(std::int64_t count, std::int64_t batch) {
  random::set_seed(11);
  const Tensor x = random::normal({count, 12, 12, 1});
  const Tensor y = random::uniform_int({count}, 0, 5, {.dtype = int64});
  return data::Dataset::from_tensor_slices({x, y}).batch(batch);
}

std::vector<std::vector<float>> weights_of(const Sequential& model) {
  std::vector<std::vector<float>> weights;
  for (const Variable& variable : model.variables())
    weights.push_back(cast(variable.value(), float32).to_vector<float>());
  return weights;
}

void expect_close(const std::vector<std::vector<float>>& a,
                  const std::vector<std::vector<float>>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t v = 0; v < a.size(); ++v) {
    ASSERT_EQ(a[v].size(), b[v].size());
    for (std::size_t i = 0; i < a[v].size(); ++i)
      ASSERT_NEAR(a[v][i], b[v][i], tolerance) << "variable " << v << " element " << i;
  }
}

struct Trained {
  std::vector<std::vector<float>> weights;
  std::vector<double> losses;
  double accuracy = 0.0;
};

Trained train(const Strategy& strategy, const std::function<Sequential()>& make,
              const optimizers::Optimizer& optimizer, std::int64_t examples = 160,
              std::int64_t steps_per_execution = 1) {
  random::set_seed(3);
  Sequential model;
  {
    auto scope = strategy.scope();
    model = make();
    model.compile({.optimizer = optimizer,
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"},
                   .steps_per_execution = steps_per_execution});
  }
  const History history = model.fit(images(examples, 16), {.epochs = 5, .verbose = 0});
  Trained trained{.weights = weights_of(model)};
  trained.losses = history.history.at("loss");
  trained.accuracy = model.evaluate(images(examples, 16), {.verbose = 0}).at("accuracy");
  return trained;
}

Sequential convolutional() {
  return Sequential({
      layers::Conv2D(4, {3, 3}, {.activation = "relu", .input_shape = {12, 12, 1}}),
      layers::MaxPooling2D({2, 2}),
      layers::Flatten(),
      layers::Dense(8, {.activation = "relu"}),
      layers::Dense(5),
  });
}

Sequential normalised() {
  return Sequential({
      layers::Conv2D(4, {3, 3}, {.padding = "same", .use_bias = false, .input_shape = {12, 12, 1}}),
      layers::BatchNormalization(),
      layers::Activation("relu"),
      layers::AveragePooling2D({2, 2}),
      layers::Flatten(),
      layers::Dropout(0.3),
      layers::Dense(5),
  });
}

TEST_F(TpuStrategy, FitsLikeMirrored) {
  const TPUStrategy tpus;
  EXPECT_EQ(tpus.num_replicas_in_sync(), kReplicas);
  const auto sgd = [] { return optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}); };
  const Trained compiled = train(tpus, convolutional, sgd());
  const Trained mirrored = train(cpus(), convolutional, sgd());
  expect_close(compiled.weights, mirrored.weights, 1e-4);
  for (std::size_t i = 0; i < compiled.losses.size(); ++i)
    EXPECT_NEAR(compiled.losses[i], mirrored.losses[i], 1e-4);
  EXPECT_NEAR(compiled.accuracy, mirrored.accuracy, 0.01);
}

// The loop on the devices has the numbers of each step: random ones, and those of the optimizer.
TEST_F(TpuStrategy, ExecutionsOfSeveralStepsDoTheSame) {
  const auto adam = [] { return optimizers::Adam({.learning_rate = 1e-3}); };
  constexpr std::int64_t kExamples = 157;  // the last one of 10 batches is smaller
  const Trained one = train(TPUStrategy(), normalised, adam(), kExamples);
  const Trained four = train(TPUStrategy(), normalised, adam(), kExamples, 4);
  expect_close(four.weights, one.weights, 1e-6);
  for (std::size_t i = 0; i < one.losses.size(); ++i)
    EXPECT_NEAR(four.losses[i], one.losses[i], 1e-6);
  EXPECT_EQ(four.accuracy, one.accuracy);
}

// The moments of a batch are those of a replica's part under both strategies, and dropout has the
// same random numbers.
TEST_F(TpuStrategy, FitsLikeMirroredWithBatchStatisticsDropoutAndAdam) {
  const auto adam = [] { return optimizers::Adam({.learning_rate = 1e-3}); };
  const Trained compiled = train(TPUStrategy(), normalised, adam());
  const Trained mirrored = train(cpus(), normalised, adam());
  expect_close(compiled.weights, mirrored.weights, 1e-4);
}

template <class E, class F>
void expect_error(F&& body, const std::string& text) {
  const std::string message = testing::error_of<E>(body);
  EXPECT_NE(message.find(text), std::string::npos) << message;
}

struct Line {
  Variable w, b;
  Line() {
    w = Variable(zeros({3, 1}), {.name = "w"});
    b = Variable(zeros({1}), {.name = "b"});
  }
};

// Trains by a loop of the caller's own; returns the mean losses of the steps.
std::vector<float> custom_loop(const Strategy& strategy, std::vector<std::vector<float>>& weights) {
  random::set_seed(4);
  const Tensor x = random::normal({64, 3});
  const Tensor y = matmul(x, constant({{1.0f}, {-2.0f}, {0.5f}}));
  std::unique_ptr<Line> line;
  optimizers::Optimizer optimizer;
  {
    auto scope = strategy.scope();
    line = std::make_unique<Line>();
    optimizer = optimizers::SGD({.learning_rate = 0.1});
  }
  const auto step = [&](const data::Example& batch) {
    GradientTape tape;
    const Tensor error = matmul(batch[0], line->w.value()) + line->b.value() - batch[1];
    const Tensor loss = nn::compute_average_loss(reduce_mean(square(error), {.axis = Dims{1}}));
    const std::vector<Variable> variables = {line->w, line->b};
    optimizer.apply_gradients(tape.gradient(loss, variables), variables);
    return loss;
  };
  const auto train_step = function([&](const PerReplica<data::Example>& batch) {
    return strategy.reduce(ReduceOp::kSum, strategy.run(step, batch));
  });
  std::vector<float> losses;
  for (int epoch = 0; epoch < 3; ++epoch)
    for (const auto& batch : strategy.experimental_distribute_dataset(
             data::Dataset::from_tensor_slices({x, y}).batch(16)))
      losses.push_back(train_step(batch).item<float>());
  weights = {line->w.value().to_vector<float>(), line->b.value().to_vector<float>()};
  return losses;
}

TEST_F(TpuStrategy, ReplicasAreOnTheDevicesThatItIsGiven) {
  tpu::initialize_tpu_system();
  const TPUStrategy strategy(distribute::TPUClusterResolver("local"),
                             {.devices = {"TPU:3", "TPU:1"}});
  EXPECT_EQ(strategy.num_replicas_in_sync(), 2);
  auto scope = strategy.scope();
  const Variable variable(ones({2}));
  EXPECT_NE(variable.device().find("TPU:3"), std::string::npos) << variable.device();
}

TEST_F(TpuStrategy, RunsCustomLoopsInTracedFunctions) {
  std::vector<std::vector<float>> compiled, mirrored;
  const std::vector<float> losses = custom_loop(TPUStrategy(), compiled),
                           expected = custom_loop(cpus(), mirrored);
  ASSERT_EQ(losses.size(), expected.size());
  for (std::size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5);
  EXPECT_LT(losses.back(), 0.1 * losses.front());
  expect_close(compiled, mirrored, 1e-5);
}

// Random numbers after a loop, on the host and in the next run, depend on how often the program on
// the device has run its body.
std::vector<float> random_numbers(const char* device) {
  random::set_seed(5);
  const auto noise = [] { return random::uniform({2}); };
  const auto step = function([&](const Tensor& count) {
    std::vector<Tensor> looped;
    {
      DeviceScope there(device);
      looped = while_loop([&](const auto& v) { return less(v[0], count); },
                          [&](const auto& v) {
                            return std::vector<Tensor>{v[0] + 1, v[1] * 0.5 + noise()};
                          },
                          {zeros({}, {.dtype = int64}), noise()});
    }
    DeviceScope here("/cpu:0");
    return concat({looped[1], noise()}, 0);
  });
  std::vector<float> numbers;
  for (const std::int64_t count : {3, 0, 5})
    for (const float number : step(constant(count, {.dtype = int64})).to_vector<float>())
      numbers.push_back(number);
  for (const float number : noise().to_vector<float>()) numbers.push_back(number);
  return numbers;
}

TEST_F(TpuStrategy, CountsTheRandomNumbersOfLoops) {
  EXPECT_EQ(random_numbers("TPU:1"), random_numbers("/cpu:0"));
}

TEST_F(TpuStrategy, KeepsVariablesOnTheDevices) {
  const TPUStrategy strategy;
  auto scope = strategy.scope();
  Variable v(constant({1.0f, 2.0f}), {.name = "v"});
  EXPECT_EQ(v.device(), "/job:localhost/replica:0/task:0/device:TPU:0");
  v.assign(constant({3.0f, 4.0f}));
  EXPECT_EQ(v.value().to_vector<float>(), (std::vector<float>{3, 4}));
  v.assign_add(constant({1.0f, 1.0f}));
  EXPECT_EQ((v.value() * 2.0).to_vector<float>(), (std::vector<float>{8, 10}));
}

TEST_F(TpuStrategy, SaysWhatItDoesNotSupport) {
  const TPUStrategy strategy;
  expect_error<UnimplementedError>(
      [&] { strategy.run([] { return zeros({1}); }); },
      "TPUStrategy.run(fn, ...) does not support pure eager execution.");
  expect_error<InvalidArgumentError>(
      [&] { strategy.reduce(ReduceOp::kMax, zeros({1})); },
      "reduce_op=MAX is not supported. Currently we only support ReduceOp.SUM and "
      "ReduceOp.MEAN in TPUStrategy.");
  expect_error<InvalidArgumentError>([] { TPUStrategy({.devices = {"/cpu:0"}}); },
                                     "expected TPUs, got");
}

// The host runs the collectives of replicas whose programs differ.
TEST_F(TpuStrategy, RunsReplicasThatDiffer) {
  const TPUStrategy strategy;
  Variable v;
  {
    auto scope = strategy.scope();
    v = Variable(zeros({2}), {.name = "v", .aggregation = VariableAggregation::kSum});
  }
  const auto step = function([&] {
    strategy.run([&] {
      const Tensor x = ones({2});
      v.assign(distribute::replica_id_in_sync_group() == 2 ? x * 5.0 : x + 1.0);
    });
  });
  step();
  EXPECT_EQ(v.value().to_vector<float>(), (std::vector<float>{11, 11}));
}

// 6 examples are 2, 2, 1 and 1; of 3 examples one replica has none.
TEST_F(TpuStrategy, GivesEveryExampleOfAnUnevenLastBatchItsWeight) {
  const auto sgd = [] { return optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}); };
  for (const std::int64_t examples : {150, 147}) {
    SCOPED_TRACE(examples);
    const Trained compiled = train(TPUStrategy(), convolutional, sgd(), examples);
    const Trained mirrored = train(cpus(), convolutional, sgd(), examples);
    expect_close(compiled.weights, mirrored.weights, 1e-4);
    EXPECT_NEAR(compiled.accuracy, mirrored.accuracy, 0.01);
  }
}

}  // namespace
}  // namespace tandem::tpu_strategy_test
