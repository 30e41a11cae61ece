// DataParallel and DataParallelModel against one device with the same batch.
#include "parallel/data_parallel_models.h"
#include "support/tensors.h"

namespace tandem::data_parallel_test {
namespace {

using parallel::DataParallel;
using parallel::DataParallelCriterion;
using parallel::DataParallelModel;
using parallel::PerDevice;
using namespace testing;

const losses::Loss kLoss = losses::SparseCategoricalCrossentropy({.from_logits = true});

struct Step {
  Tensor outputs, loss;
  testing::Weights gradients;
};

// One step of `model` on one device.
template <class Net>
Step one_device(const Net& model, const Examples& batch) {
  const Tensor outputs = model(batch.x, {.training = true});
  const Tensor loss = kLoss(batch.y, outputs);
  loss.backward();
  Step step{outputs, loss, gradients_of(model.trainable_variables())};
  zero_gradients(model.trainable_variables());
  return step;
}

void expect_equal(const Step& step, const Step& expected) {
  expect_close(step.outputs, expected.outputs);
  expect_close(step.loss, expected.loss);
  expect_near(step.gradients, expected.gradients);
}

class DataParallelOn : public ::testing::TestWithParam<const char*> {
 protected:
  Devices devices_{GetParam(), 3};
};

TEST_P(DataParallelOn, EqualsOneDevice) {
  const Sequential net = perceptron(1);
  const DataParallel gathered(net,
                              {.device_ids = devices_.ids(), .output_device = devices_.ids()[1]});
  const DataParallelModel model(net, {.device_ids = devices_.ids()});
  const DataParallelCriterion criterion(kLoss);
  EXPECT_EQ(model.devices(), std::vector({devices_.name(0), devices_.name(1), devices_.name(2)}));
  for (const std::int64_t count : {12, 10, 2, 1}) {
    SCOPED_TRACE(count);
    const Examples batch = examples(count);
    const Step expected = one_device(net, batch);

    const Tensor outputs = gathered(batch.x);
    EXPECT_EQ(outputs.device(), devices_.name(1));
    const Tensor loss = kLoss(batch.y, outputs);
    loss.backward();
    expect_equal({outputs, loss, gradients_of(gathered.parameters())}, expected);
    zero_gradients(gathered.parameters());

    const PerDevice<Tensor> parts = model(batch.x);
    EXPECT_EQ(parts.size(), static_cast<std::size_t>(std::min<std::int64_t>(count, 3)));
    for (std::size_t i = 0; i < parts.size(); ++i)
      EXPECT_EQ(parts[i].device(), devices_.name(static_cast<int>(i)));
    const Tensor total = criterion(parts, batch.y);
    EXPECT_EQ(total.rank(), 0);
    EXPECT_EQ(total.device(), devices_.name(0));
    total.backward();
    expect_equal(
        {parallel::gather(parts, devices_.ids()[0]), total, gradients_of(model.parameters())},
        expected);
    zero_gradients(model.parameters());
  }
}

TEST_P(DataParallelOn, TrainsEagerlyAndTracedAsOneDevice) {
  for (const bool traced : {false, true}) {
    SCOPED_TRACE(traced);
    const Sequential one = perceptron(2), net = perceptron(2);
    const DataParallelModel model(net, {.device_ids = devices_.ids()});
    const DataParallelCriterion criterion(kLoss);
    const optimizers::SGDOptions options{.learning_rate = 0.1, .momentum = 0.9};
    auto optimizer = optimizers::SGD(options, model.parameters());
    auto reference = optimizers::SGD(options, one.parameters());
    const auto step = [&](const Tensor& x, const Tensor& y) {
      const Tensor loss = criterion(model(x, {.training = true}), y);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      return loss;
    };
    const auto program = function(step);
    for (int i = 0; i < 6; ++i) {
      const Examples batch = examples(i % 3 == 2 ? 7 : 9, 20 + static_cast<std::uint64_t>(i));
      const Tensor expected = kLoss(batch.y, one(batch.x));
      reference.zero_grad();
      expected.backward();
      reference.step();
      expect_close(traced ? program(batch.x, batch.y) : step(batch.x, batch.y), expected);
    }
    expect_near(weights_of(net), weights_of(one));
    EXPECT_EQ(program.num_traces(), traced ? 2U : 0U);
  }
}

TEST_P(DataParallelOn, TracedOutputsAreGatheredAndHaveGradientsOutside) {
  const Sequential net = perceptron(3);
  const DataParallel model(net, {.device_ids = devices_.ids(), .output_device = devices_.ids()[2]});
  const Examples batch = examples(8);
  const Step expected = one_device(net, batch);
  const auto forward = function([&](const Tensor& x) { return model(x); });
  const Tensor outputs = forward(batch.x);
  const Tensor loss = kLoss(batch.y, outputs);
  loss.backward();
  expect_equal({outputs, loss, gradients_of(net.parameters())}, expected);
}

TEST_P(DataParallelOn, PerDeviceValuesPassThroughTracedFunctions) {
  const Sequential net = perceptron(3);
  const DataParallelModel model(net, {.device_ids = devices_.ids()});
  const DataParallelCriterion criterion(kLoss);
  const Examples batch = examples(8);
  const Step expected = one_device(net, batch);
  const auto forward = function([&](const Tensor& x) { return model(x); });
  const auto loss_of = function(
      [&](const PerDevice<Tensor>& outputs, const Tensor& y) { return criterion(outputs, y); });
  const Tensor loss = loss_of(forward(batch.x), batch.y);
  loss.backward();
  expect_close(loss, expected.loss);
  expect_near(gradients_of(net.parameters()), expected.gradients);
}

TEST_P(DataParallelOn, DropoutDropsTheSameElements) {
  const auto make = [] {
    random::set_seed(4);
    return Sequential({layers::Dense(32, {.activation = "relu", .input_shape = {6}}),
                       layers::Dropout(0.5), layers::Dense(3)});
  };
  const Sequential one = make(), net = make();
  const DataParallelModel model(net, {.device_ids = devices_.ids()});
  const DataParallelCriterion criterion(kLoss);
  const Examples batch = examples(10);
  random::set_seed(8);
  const Step first = one_device(one, batch), second = one_device(one, batch);
  random::set_seed(8);
  for (const Step& expected : {first, second}) {
    const Tensor loss = criterion(model(batch.x, {.training = true}), batch.y);
    loss.backward();
    expect_close(loss, expected.loss);
    expect_near(gradients_of(net.parameters()), expected.gradients);
    zero_gradients(net.parameters());
  }
}

// As in PyTorch.
TEST_P(DataParallelOn, TheFirstReplicasMovingAveragesAreKept) {
  const auto make = [] {
    random::set_seed(5);
    return Sequential({layers::Dense(4, {.input_shape = {6}}), layers::BatchNormalization()});
  };
  for (const bool traced : {false, true}) {
    SCOPED_TRACE(traced);
    const Sequential one = make(), net = make();
    const DataParallel model(net, {.device_ids = devices_.ids()});
    const Examples batch = examples(9);
    const auto call = [&](const Tensor& x) { return model(x, {.training = true}); };
    const Tensor outputs = traced ? function(call)(batch.x) : call(batch.x);
    const Tensor first = one(batch.rows(0, 3).x, {.training = true});
    expect_close(slice_rows(outputs, 0, 3), first);
    expect_near(weights_of(net), weights_of(one));
  }
}

TEST_P(DataParallelOn, GivesTheSameBitsInEveryRun) {
  testing::Weights first;
  for (int run = 0; run < 4; ++run) {
    const Sequential net = perceptron(6);
    const Layer twice = net.layers()[1];
    const DataParallelModel model(net, {.device_ids = devices_.ids()});
    const auto outputs =
        model.run([&](const Tensor& x) { return net(x) + reduce_sum(twice(net.layers()[0](x))); },
                  examples(11).x);
    reduce_sum(parallel::gather(outputs, devices_.ids()[0])).backward();
    const testing::Weights gradients = gradients_of(net.parameters());
    if (run == 0)
      first = gradients;
    else
      EXPECT_EQ(gradients, first);
  }
}

TEST_P(DataParallelOn, AnEmptyBatchRunsOnTheFirstDevice) {
  const Sequential net = perceptron(1);
  const DataParallel model(net, {.device_ids = devices_.ids(), .output_device = devices_.ids()[1]});
  const Tensor outputs = model(zeros({0, 6}));
  EXPECT_EQ(outputs.shape(), Shape({0, 3}));
  EXPECT_EQ(outputs.device(), devices_.name(1));
  int calls = 0;
  const DataParallelModel parts(net, {.device_ids = devices_.ids()});
  EXPECT_EQ(parts.run([&] { return ones({++calls}); }).size(), 1U);
  EXPECT_EQ(calls, 1);
}

TEST_P(DataParallelOn, SeveralInputsAndNestedOutputs) {
  const SymbolicInput a = Input({6}), b = Input({6});
  const Functional sum({a, b}, layers::Add()({layers::Dense(3)(a), layers::Dense(3)(b)}));
  const DataParallel model(sum, {.device_ids = devices_.ids()});
  const Examples batch = examples(7);
  const Tensor other = batch.x * 2.0;
  expect_close(model({batch.x, other}), sum({batch.x, other}));

  const auto forward = [&](const std::vector<Tensor>& inputs, int n) {
    const Tensor y = sum(inputs);
    return std::pair(y, std::vector{y * static_cast<double>(n), reduce_sum(y, {.axis = Dims{1}})});
  };
  const auto [y, more] = model.run(forward, std::vector{batch.x, other}, 3);
  const auto [expected, expected_more] = forward({batch.x, other}, 3);
  expect_close(y, expected);
  ASSERT_EQ(more.size(), 2U);
  expect_close(more[0], expected_more[0]);
  expect_close(more[1], expected_more[1]);
}

TEST_P(DataParallelOn, ThreadsHaveTheCallersGradMode) {
  const Sequential net = perceptron(1);
  const DataParallel model(net, {.device_ids = devices_.ids()});
  EXPECT_TRUE(model(examples(6).x).requires_grad());
  const NoGradScope none;
  EXPECT_FALSE(model(examples(6).x).requires_grad());
}

TEST_P(DataParallelOn, TapesFollowTheCopies) {
  const Sequential net = perceptron(1);
  const DataParallelModel model(net, {.device_ids = devices_.ids()});
  const Examples batch = examples(8);
  const Step expected = one_device(net, batch);
  GradientTape tape;
  const Tensor loss = DataParallelCriterion(kLoss)(model(batch.x), batch.y);
  testing::Weights gradients;
  for (const Tensor& gradient : tape.gradient(loss, net.parameters()))
    gradients.push_back(gradient.to_vector<float>());
  expect_near(gradients, expected.gradients);
}

// Splits the batch along another axis than the first: [positions, examples, features].
TEST_P(DataParallelOn, AnotherAxisThanTheFirst) {
  const Sequential net = perceptron(1);
  const DataParallel model(net, {.device_ids = devices_.ids(), .dim = 1});
  const Tensor x = reshape(examples(14).x, {2, 7, 6});
  expect_close(model(x), net(x));
  const DataParallelModel parts(net, {.device_ids = devices_.ids(), .dim = 1});
  const Tensor y = reshape(examples(14).y, {2, 7});
  expect_close(DataParallelCriterion(kLoss)(parts(x), y), kLoss(y, net(x)));
}

TEST_P(DataParallelOn, BuildsTheModelOnTheFirstDevice) {
  const Sequential net({layers::Dense(4), layers::Dense(3)});
  const DataParallel model(net, {.device_ids = devices_.ids()});
  EXPECT_EQ(model(examples(6).x).shape(), Shape({6, 3}));
  EXPECT_EQ(net.variables()[0].device(), devices_.name(0));
}

TEST_P(DataParallelOn, ThePartsOfACallAreFunctions) {
  const Sequential net = perceptron(1);
  Tensor x = examples(8).x, same = x.detach();
  x.set_requires_grad();
  same.set_requires_grad();
  reduce_sum(net(same) * net(same)).backward();
  const testing::Weights expected = gradients_of(net.parameters());
  zero_gradients(net.parameters());

  const auto parts = parallel::scatter(x, devices_.ids());
  EXPECT_EQ(parts.sizes(), std::vector<std::int64_t>({3, 3, 2}));
  const parallel::Replicas replicas = parallel::replicate(net, devices_.ids());
  EXPECT_EQ(replicas.size(), 3U);
  const auto outputs = parallel::parallel_apply(
      replicas, [&](const Tensor& part) { return net(part); }, parts);
  const Tensor y = parallel::gather(outputs, devices_.ids()[1]);
  EXPECT_EQ(y.device(), devices_.name(1));
  reduce_sum(y * y).backward();
  expect_near(gradients_of(net.parameters()), expected);
  expect_close(x.grad(), same.grad());
}

TEST_P(DataParallelOn, ReplicasKeepTheValuesOfTheirTime) {
  const Sequential net = perceptron(1);
  const Tensor x = examples(6).x, before = net(x);
  const parallel::Replicas replicas = parallel::replicate(net, devices_.ids());
  Variable bias = net.variables().back();
  bias.assign(bias + 1.0);
  const auto outputs = parallel::parallel_apply(
      replicas, [&](const Tensor& part) { return net(part); },
      parallel::scatter(x, devices_.ids()));
  expect_close(outputs[1], slice_rows(before, 2, 4));
  expect_close(outputs[0], slice_rows(before, 0, 2) + 1.0);  // uses the variables themselves
}

INSTANTIATE_TEST_SUITE_P(Devices, DataParallelOn, ::testing::Values("cpu", "gpu"),
                         [](const auto& param) { return std::string(param.param) + "s"; });

}  // namespace
}  // namespace tandem::data_parallel_test
