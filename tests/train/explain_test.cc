// Compares the results of explain() with measurements of real runs.
#include "tandem/explain.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "comm/bucket.h"
#include "device/device_manager.h"
#include "op/op.h"
#include "runtime/dispatch.h"
#include "runtime/placement.h"
#include "support/gpus.h"
#include "support/nccl.h"
#include "support/trace.h"
#include "tandem/tandem.h"

namespace tandem::explain_test {
namespace {

using testing::read_trace;
using testing::TemporaryDirectory;

const std::string kDevice = "/job:localhost/replica:0/task:0/device:";

Model small_model(const optimizers::Optimizer& optimizer) {
  Model model = Sequential({layers::Dense(300, {.activation = "relu", .input_shape = {50}}),
                            layers::BatchNormalization(), layers::Dense(7)});
  model.compile({.optimizer = optimizer,
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  return model;
}

constexpr std::int64_t kTrainable = 50 * 300 + 300 + 2 * 300 + 300 * 7 + 7;
constexpr std::int64_t kMoving = 2 * 300;

data::Example batch_of(std::int64_t examples) {
  const DeviceScope host("/cpu:0");
  return {random::normal({examples, 50}), zeros({examples}, {.dtype = int64})};
}

const Explanation::DeviceEntry& entry(const Explanation& explanation, const std::string& device) {
  for (const auto& each : explanation.devices)
    if (each.device == kDevice + device) return each;
  throw NotFoundError(device);
}

std::int64_t used(const std::string& device, MemoryTag tag) {
  DeviceImpl& found = resolve_device("/" + device, "test");
  found.stream().synchronize();
  return found.allocator().stats().bytes_by_tag[static_cast<std::size_t>(tag)];
}

// The allocator rounds each allocation up to 256 bytes.
void expect_measured(std::int64_t measured, std::int64_t explanation, std::int64_t allocations,
                     const char* what) {
  EXPECT_GE(measured, explanation) << what;
  EXPECT_LT(measured, explanation + 256 * allocations) << what;
}

TEST(Explain, VariableMemoryEqualsTheMeasurement) {
  testing::use_gpus(1, 64);
  Model model = small_model(optimizers::Adam());
  const Explanation explanation = explain(model, batch_of(32));
  EXPECT_EQ(explanation.batch, 32);
  EXPECT_EQ(explanation.num_replicas, 1);
  const auto& gpu = entry(explanation, "GPU:0");
  EXPECT_EQ(gpu.limit, 64 << 20);
  EXPECT_EQ(gpu.weights, (kTrainable + kMoving) * 4);
  EXPECT_EQ(gpu.optimizer, 2 * kTrainable * 4);
  EXPECT_TRUE(gpu.fits());
  expect_measured(used("GPU:0", MemoryTag::kWeights), gpu.weights, 8, "weights");
  expect_measured(used("GPU:0", MemoryTag::kOptimizer), gpu.optimizer, 12, "optimizer");
  EXPECT_EQ(entry(explanation, "CPU:0").optimizer, 8);  // the count of steps
  // A real step allocates no more.
  model.fit(data::Dataset::from_tensors(batch_of(32)), {.verbose = 0});
  expect_measured(used("GPU:0", MemoryTag::kWeights), gpu.weights, 8, "weights");
  expect_measured(used("GPU:0", MemoryTag::kOptimizer), gpu.optimizer, 12, "optimizer");
}

// fit()'s program holds the memory plan's arena, the loss, and up to three small constants that
// the passes computed.
TEST(Explain, ArenaMemoryEqualsTheMeasurement) {
  testing::use_gpus(1, 64);
  const distribute::OneDeviceStrategy strategy("/gpu:0");
  Model model;
  {
    const auto scope = strategy.scope();
    model = small_model(optimizers::Adam());
  }
  const data::Example batch = batch_of(32);
  const Explanation explanation = explain(model, batch);
  EXPECT_EQ(used("GPU:0", MemoryTag::kActivations), 0);
  model.fit(data::Dataset::from_tensors(batch), {.verbose = 0});
  const auto& gpu = entry(explanation, "GPU:0");
  EXPECT_EQ(gpu.inputs, 32 * 50 * 4 + 32 * 8);
  EXPECT_GE(gpu.gradients, kTrainable * 4);
  EXPECT_GT(gpu.activations, 0);
  expect_measured(used("GPU:0", MemoryTag::kActivations), gpu.gradients + gpu.activations, 5,
                  "arena");
}

Model wide_model(const char* dtype) {
  Sequential model({layers::Dense(128, {.activation = "tanh", .input_shape = {128}}),
                    layers::Dense(128, {.activation = "tanh"}),
                    layers::Dense(128, {.activation = "tanh"}), layers::Dense(4)});
  model.compile({.optimizer = optimizers::Adam(),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .dtype = dtype});
  return model;
}

TEST(Explain, MixedPrecisionHalvesTheActivations) {
  testing::use_gpus(1, 64);
  constexpr std::int64_t kExamples = 2048, kInputs = 128;
  data::Example batch;
  {
    const DeviceScope host("/cpu:0");
    batch = {random::normal({kExamples, kInputs}), zeros({kExamples}, {.dtype = int64})};
  }
  const Explanation exact = explain(wide_model("float32"), batch);
  Model model = wide_model("mixed_bfloat16");
  const Explanation mixed = explain(model, batch);
  const auto &wide = entry(exact, "GPU:0"), &narrow = entry(mixed, "GPU:0");
  // Half as much, and the inputs in bfloat16.
  EXPECT_NEAR(static_cast<double>(narrow.activations - kExamples * kInputs * 2),
              0.5 * static_cast<double>(wide.activations),
              0.05 * static_cast<double>(wide.activations));
  // Weights and slots stay in float32, and the program has a copy of each weight in bfloat16.
  EXPECT_EQ(narrow.weights, wide.weights + wide.weights / 2);
  EXPECT_EQ(narrow.optimizer, wide.optimizer);
  model.fit(data::Dataset::from_tensors(batch), {.verbose = 0});
  expect_measured(used("GPU:0", MemoryTag::kWeights), narrow.weights, 32, "weights");
  expect_measured(used("GPU:0", MemoryTag::kActivations),
                  narrow.gradients + narrow.activations + narrow.constants, 5, "arena");
}

TEST(Explain, ListsVariablesAndOperations) {
  testing::use_gpus(0);
  const Explanation explanation =
      explain(small_model(optimizers::SGD({.momentum = 0.9})), batch_of(4));
  ASSERT_EQ(explanation.devices.size(), 1u);
  std::int64_t weights = 0, optimizer = 0;
  for (const auto& variable : explanation.variables) {
    EXPECT_EQ(variable.bytes,
              variable.shape.num_elements() * static_cast<std::int64_t>(size_of(variable.dtype)));
    EXPECT_EQ(variable.devices, std::vector<std::string>{kDevice + "CPU:0"});
    (variable.optimizer ? optimizer : weights) += variable.bytes;
  }
  EXPECT_EQ(weights, explanation.devices[0].weights);
  EXPECT_EQ(optimizer, explanation.devices[0].optimizer);
  int products = 0;
  for (const auto& operation : explanation.operations) {
    EXPECT_EQ(operation.device, kDevice + "CPU:0");
    EXPECT_FALSE(operation.name.empty());
    products += operation.type.find("MatMul") != std::string::npos ||
                operation.type.find("Dense") != std::string::npos;
  }
  EXPECT_GE(products, 2);
  EXPECT_TRUE(explanation.collectives.empty());
  EXPECT_TRUE(explanation.fallbacks.empty());
}

TEST(Explain, DoesNotAffectTraining) {
  const auto loss_after = [](bool explained) {
    random::set_seed(3);
    Model model = small_model(optimizers::Adam());
    random::set_seed(4);
    const data::Example batch = batch_of(8);
    if (explained) explain(model, batch);
    return model.fit(data::Dataset::from_tensors(batch), {.epochs = 3, .verbose = 0}).at("loss");
  };
  EXPECT_EQ(loss_after(true), loss_after(false));
}

// Compares the bytes of a step's collectives with those in a profile of a real step.
void expect_collectives(std::int64_t examples, const std::string& type) {
  const distribute::MirroredStrategy strategy({.devices = {"/" + type + ":0", "/" + type + ":1"}});
  Model model;
  {
    const auto scope = strategy.scope();
    model = small_model(optimizers::Adam());
  }
  const data::Example batch = batch_of(examples);
  const Explanation explanation = explain(model, batch);
  EXPECT_EQ(explanation.num_replicas, 2);
  EXPECT_EQ(explanation.replica_devices,
            (std::vector<std::string>{kDevice + type + ":0", kDevice + type + ":1"}));
  std::int64_t bytes = 0;
  std::size_t variables = 0;
  for (const auto& collective : explanation.collectives) {
    EXPECT_EQ(collective.type, "all_reduce");
    EXPECT_EQ(collective.replicas, 2);
    bytes += collective.bytes;
    variables += collective.variables.size();
  }
  EXPECT_EQ(variables, model.trainable_variables().size());
  EXPECT_EQ(bytes, kTrainable * 4);

  const TemporaryDirectory directory;
  profiler::start({.file = directory / "t"});
  model.fit(data::Dataset::from_tensors(batch), {.verbose = 0});
  profiler::stop();
  // NCCL reduces padded buckets.
  const bool packed = type == "GPU" && testing::nccl_joins_gpus();
  std::int64_t moved = 0;
  for (const Variable& variable : model.trainable_variables()) {
    const std::int64_t count = variable.shape().num_elements();
    moved += packed ? static_cast<std::int64_t>(Bucket::array_bytes(count, float32)) : count * 4;
  }
  for (int replica : {0, 1}) {
    const std::string device = type + ":" + std::to_string(replica);
    std::int64_t counted = 0;
    for (const auto& event : read_trace(directory / "t"))
      if (event.category == "collective" && event.process == kDevice + device)
        counted += event.args["bytes"].get<std::int64_t>();
    EXPECT_EQ(counted, moved) << device;
    if (type == "CPU") continue;  // other work has left gaps there, which are not used up whole
    const auto& memory = entry(explanation, device);
    expect_measured(used(device, MemoryTag::kWeights), memory.weights, 8, "weights");
    expect_measured(used(device, MemoryTag::kOptimizer), memory.optimizer, 13, "optimizer");
  }
  // The first replica gets the larger part of an uneven batch.
  const std::int64_t first = (examples + 1) / 2;
  EXPECT_EQ(entry(explanation, type + ":0").inputs, first * (50 * 4 + 8));
  EXPECT_EQ(entry(explanation, type + ":1").inputs, (examples - first) * (50 * 4 + 8));
}

TEST(Explain, CountsASharedCopyOfVariablesOnce) {
  config::set_logical_cpus(3);
  const distribute::CentralStorageStrategy strategy(
      {.compute_devices = {"/cpu:0", "/cpu:1"}, .parameter_device = "/cpu:2"});
  Model model;
  {
    const auto scope = strategy.scope();
    model = small_model(optimizers::Adam());
  }
  const Explanation explanation = explain(model, batch_of(8));
  EXPECT_EQ(explanation.replica_devices,
            (std::vector<std::string>{kDevice + "CPU:0", kDevice + "CPU:1"}));
  EXPECT_GE(entry(explanation, "CPU:2").weights, kTrainable * 4);
  EXPECT_GE(entry(explanation, "CPU:2").optimizer, 2 * kTrainable * 4);
  for (const char* device : {"CPU:0", "CPU:1"}) {
    EXPECT_EQ(entry(explanation, device).weights, 0);
    EXPECT_LT(entry(explanation, device).optimizer, 64);  // the step counter
  }
}

TEST(Explain, CollectiveBytesEqualTheProfile) {
  config::set_logical_cpus(2);
  expect_collectives(9, "CPU");
}

TEST(Explain, CollectiveBytesOfGpusEqualTheProfile) {
  testing::use_gpus(2, 64);
  expect_collectives(8, "GPU");
}

TEST(Explain, ReportsWhatDoesNotFit) {
  testing::use_gpus(1, 1);
  const Explanation explanation = explain(small_model(optimizers::SGD()), batch_of(4000));
  EXPECT_FALSE(entry(explanation, "GPU:0").fits());
  EXPECT_GT(entry(explanation, "GPU:0").total(), 1 << 20);
}

void infer_same(InferContext& c) { c.add_output(c.dtype(0), c.shape(0)); }
void copy_kernel(KernelContext& c) {
  std::copy_n(c.inputs[0].as<float>(), c.inputs[0].size(), c.outputs[0].as<float>());
}
void same_gradient(GradContext& c) { c.set_grad(0, c.grad()); }
const OpDef kHostOnly = {.name = "HostOnly",
                         .infer = infer_same,
                         .gradient = same_gradient,
                         .cpu_kernel = copy_kernel,
                         .gpu = false};

TEST(Explain, ReportsWhyOperationsFellBackToTheCpu) {
  testing::use_gpus(1, 64);
  Model model = Sequential({layers::Dense(4, {.input_shape = {50}}),
                            layers::Lambda([](const Tensor& x) { return run(kHostOnly, {&x}); })});
  model.compile({.optimizer = optimizers::SGD(), .loss = losses::MeanSquaredError()});
  const Explanation explanation = explain(model, {zeros({2, 50}), zeros({2, 4})});
  ASSERT_EQ(explanation.fallbacks.size(), 1u);
  EXPECT_EQ(explanation.fallbacks[0].type, "HostOnly");
  EXPECT_EQ(explanation.fallbacks[0].device, kDevice + "CPU:0");
  EXPECT_EQ(explanation.fallbacks[0].reason, "HostOnly has no kernel for GPUs");
}

TEST(Explain, RefusesInvalidArguments) {
  EXPECT_THROW(explain(Sequential({layers::Dense(3, {.input_shape = {4}})}), batch_of(4)),
               FailedPreconditionError);
  const Model model = small_model(optimizers::SGD());
  EXPECT_THROW(explain(model, {zeros({4, 50})}), InvalidArgumentError);
  EXPECT_THROW(explain(model, {zeros({4, 50}), zeros({3}, {.dtype = int64})}),
               InvalidArgumentError);
  EXPECT_THROW(explain(model, {zeros({4, 51}), zeros({4}, {.dtype = int64})}),
               InvalidArgumentError);
}

// A layer that selects between two branches by its input's elements.
class Choosing final : public LayerBase {
 public:
  Choosing() : LayerBase("") {}
  std::string kind() const override { return "choosing"; }
  std::vector<Layer> children() const override { return {dense_}; }
  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) override {
    return cond(
        greater(reduce_sum(inputs[0]), 0.0), [&] { return dense_(inputs[0], options); },
        [&] { return tanh(dense_(inputs[0], options)); });
  }
  Shape output_shape(std::span<const Shape> shapes) const override {
    return Shape({shapes[0][0], 300});
  }

 private:
  Layer dense_ = layers::Dense(300);
};

TEST(Explain, CountsBodiesOfControlFlow) {
  testing::use_gpus(0);
  const auto explained = [](const Layer& first) {
    Model model = Sequential({layers::Dense(50, {.input_shape = {50}}), first, layers::Dense(7)});
    model.compile({.optimizer = optimizers::SGD(),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
    return explain(model, batch_of(128));
  };
  const Explanation plain = explained(layers::Dense(300));
  const Explanation choosing = explained(std::make_shared<Choosing>());
  const auto count = [&](const char* type) {
    return std::count_if(choosing.operations.begin(), choosing.operations.end(),
                         [&](const auto& operation) { return operation.type == type; });
  };
  EXPECT_EQ(count("If"), 1);
  EXPECT_EQ(count("IfGradient"), 1);
  EXPECT_GT(choosing.operations.size(), plain.operations.size());
  // The backward pass of each branch contains its forward part, too.
  EXPECT_GT(entry(choosing, "CPU:0").activations, entry(plain, "CPU:0").activations);
  EXPECT_EQ(entry(choosing, "CPU:0").weights, entry(plain, "CPU:0").weights);
}

}  // namespace
}  // namespace tandem::explain_test
