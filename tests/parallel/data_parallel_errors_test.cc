// What DataParallel refuses, and calls on fewer than two devices.
#include <atomic>

#include "parallel/data_parallel_models.h"
#include "support/tensors.h"

namespace tandem::data_parallel_errors_test {
namespace {

using parallel::DataParallel;
using parallel::DataParallelCriterion;
using parallel::DataParallelModel;
using testing::Devices;
using testing::examples;
using testing::expect_close;
using testing::expect_error;
using testing::perceptron;

TEST(DataParallelErrors, DevicesAreChecked) {
  const Devices devices("gpu", 3);
  const Sequential net = perceptron(1);
  expect_error<InvalidArgumentError>(
      [&] {
        DataParallel(net, {.device_ids = {0, 7}});
      },
      "there is no device 'GPU:7'");
  expect_error<InvalidArgumentError>(
      [&] {
        DataParallel(net, {.device_ids = {0, 1, "/gpu:1"}});
      },
      "expected different devices in device_ids, got "
      "/job:localhost/replica:0/task:0/device:GPU:1 twice");
  expect_error<InvalidArgumentError>([&] { DataParallel(net, {.output_device = 5}); },
                                     "there is no device 'GPU:5'");
  expect_error<InvalidArgumentError>(
      [&] {
        DataParallelModel(net, {.device_ids = {1, 2}});
      },
      "module must have its parameters and buffers on device "
      "/job:localhost/replica:0/task:0/device:GPU:1 (device_ids[0]) but found one of them on "
      "device: "
      "/job:localhost/replica:0/task:0/device:GPU:0");
  expect_error<InvalidArgumentError>(
      [&] {
        parallel::replicate(net, {1, 2});
      },
      "module must have its parameters");
}

TEST(DataParallelErrors, AllGpusAreTheDefault) {
  const Devices devices("gpu", 3);
  const DataParallel model(perceptron(1));
  EXPECT_EQ(model.devices(), std::vector({devices.name(0), devices.name(1), devices.name(2)}));
  EXPECT_EQ(model(examples(5).x).device(), devices.name(0));
}

TEST(DataParallelErrors, InputsAreChecked) {
  const Devices devices("gpu", 2);
  const DataParallelModel model(perceptron(1));
  const auto first = [](const Tensor& a, const Tensor&) { return a; };
  expect_error<InvalidArgumentError>(
      [&] {
        model.run(first, zeros({4, 6}), zeros({5}));
      },
      "expected tensors with equal sizes of axis 0, got shapes (4, 6) and (5,)");
  expect_error<InvalidArgumentError>(
      [&] {
        model.run(first, zeros({4, 6}), constant(1.0));
      },
      "expected tensors with axis 0, got shape ()");
  const DataParallelModel unbuilt(Sequential({layers::Dense(2)}));
  expect_error<InvalidArgumentError>([&] { unbuilt(constant(1.0)); },
                                     "expected tensors with axis 0, got shape ()");
  expect_error<FailedPreconditionError>(
      [&] {
        unbuilt.run(first, zeros({4, 6}), zeros({4}));
      },
      "the model is not built");
  const auto unknown = function([&](const Tensor& x) { return model(x); },
                                {.input_signature = {{.shape = {-1, 6}}}});
  expect_error<UnimplementedError>(
      [&] {
        unknown(zeros({4, 6}));
      },
      "expected a known size of axis 0, got shape (?, 6)");
}

TEST(DataParallelErrors, VariablesOfStrategiesAreRefused) {
  const Devices devices("gpu", 2);
  const distribute::MirroredStrategy strategy({.devices = {"/gpu:0", "/gpu:1"}});
  const auto scope = strategy.scope();
  const Sequential net = perceptron(1);
  expect_error<InvalidArgumentError>([&] { DataParallel{net}; },
                                     "expected variables that were made outside of strategies");
}

TEST(DataParallelErrors, ReplicasOnlyCompute) {
  const Devices devices("gpu", 2);
  const Sequential net = perceptron(1);
  const DataParallelModel model(net);
  const Tensor x = examples(6).x;
  auto optimizer = optimizers::SGD({.learning_rate = 0.1}, net.parameters());
  optimizer.build(net.parameters());
  const auto minimize = [&](const Tensor& part) {
    const Tensor loss = reduce_sum(net(part));
    optimizer.minimize(loss, net.parameters());
    return loss;
  };
  const auto before = testing::weights_of(net);
  EXPECT_THROW(model.run(minimize, x), InvalidArgumentError);
  EXPECT_EQ(testing::weights_of(net), before);

  Variable other(zeros({1}));
  const auto assign = [&](const Tensor& part) {
    if (part.device() == devices.name(1)) other.assign(ones({1}));
    return part;
  };
  expect_error<FailedPreconditionError>(
      [&] { model.run(assign, x); },
      "a replica assigns to variable (unnamed, of shape (1,) and dtype float32), expected one of "
      "the module's");
  const auto traced = function([&](const Tensor& part) { return net(part); });
  expect_error<UnimplementedError>([&] { model.run(traced, x); },
                                   "call the DataParallel model inside the traced function");
  expect_error<FailedPreconditionError>(
      [&] { model.run([](const Tensor& part) -> Tensor { return Variable(part).value(); }, x); },
      "was created inside a strategy's replica");
}

TEST(DataParallelErrors, TheErrorOfAReplicaIsThrown) {
  const Devices devices("gpu", 3);
  const DataParallelModel model(perceptron(1));
  const auto fails = [&](const Tensor& part) {
    if (part.device() == devices.name(1)) throw std::runtime_error("the second one");
    return part;
  };
  expect_error<std::runtime_error>([&] { model.run(fails, zeros({6, 6})); }, "the second one");
  EXPECT_EQ(model(examples(6).x).size(), 3U);  // goes on
}

TEST(DataParallelErrors, CallsInsideReplicasAreRefused) {
  const Devices devices("gpu", 2);
  const DataParallelModel model(perceptron(1));
  expect_error<RuntimeError>(
      [&] { model.run([&](const Tensor& part) { return model(part)[0]; }, examples(6).x); },
      "Method requires being in cross-replica context");
}

// As in PyTorch.
TEST(DataParallelErrors, WithoutAGpuACallIsAPlainCall) {
  config::set_visible_devices({}, "GPU");
  const Sequential net = perceptron(1);
  const DataParallel model(net, {.device_ids = {0, 1, 2, 3}, .output_device = 1});
  EXPECT_TRUE(model.devices().empty());
  const auto batch = examples(5);
  EXPECT_EQ(model(batch.x).to_vector<float>(), net(batch.x).to_vector<float>());
  const DataParallelModel parts(net, {.device_ids = {0, 1}});
  const losses::Loss loss = losses::SparseCategoricalCrossentropy({.from_logits = true});
  EXPECT_EQ(DataParallelCriterion(loss)(parts(batch.x), batch.y).item<float>(),
            loss(batch.y, net(batch.x)).item<float>());
  const auto unknown = function([&](const Tensor& x) { return model(x); },
                                {.input_signature = {{.shape = {-1, 6}}}});
  expect_close(unknown(batch.x), net(batch.x));
}

TEST(DataParallelErrors, OneDeviceIsAPlainCallThere) {
  const Devices devices("gpu", 2);
  const DeviceScope second("/gpu:1");
  const Sequential net = perceptron(1);
  const DataParallel model(net, {.device_ids = {1}});
  const auto batch = examples(5);
  EXPECT_EQ(model(batch.x.to("/gpu:0")).device(), devices.name(1));
  EXPECT_EQ(model(batch.x).to_vector<float>(), net(batch.x).to_vector<float>());
  const auto mean = [&](const Tensor& x) { return reduce_mean(net(x)); };
  EXPECT_EQ(model.run(mean, batch.x).rank(), 0);
}

}  // namespace
}  // namespace tandem::data_parallel_errors_test
