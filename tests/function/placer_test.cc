#include "function/placer.h"

#include <gtest/gtest.h>

#include "device/device_manager.h"
#include "support/errors.h"
#include "support/gpus.h"
#include "tandem/tandem.h"

namespace tandem::placer_test {
namespace {

const std::string kProcess = "/job:localhost/replica:0/task:0";

// The device of each operation, as "CPU:0" for devices of this process.
class Placed {
 public:
  explicit Placed(const Graph& graph, PlacerOptions options = {.allow_soft_placement = false})
      : devices_(place_graph(graph.impl(), options)), graph_(graph) {}

  std::string operator[](std::string_view operation) const {
    const int id = graph_.operation(operation).node().id;
    const std::string& name = devices_[static_cast<std::size_t>(id)]->full_name();
    return name.substr(name.find("device:") + 7);
  }

 private:
  std::vector<DeviceImpl*> devices_;
  Graph graph_;
};

std::string error_of(const Graph& graph, PlacerOptions options = {.allow_soft_placement = false}) {
  return testing::error_of<InvalidArgumentError>([&] { place_graph(graph.impl(), options); });
}

void expect_prefix(const std::string& text, const std::string& prefix) {
  EXPECT_EQ(text.substr(0, prefix.size()), prefix);
}

template <class Body>
Graph build(const Body& body) {
  Graph graph;
  const GraphScope building(graph);
  body();
  return graph;
}

TEST(Placer, PrefersTheFirstGpu) {
  testing::use_gpus(2);
  const Graph graph = build([] { matmul(ones({2, 2}), ones({2, 2}), {.name = "y"}); });
  EXPECT_EQ(Placed(graph)["y"], "GPU:0");
}

TEST(Placer, TakesTheCpuWithoutGpus) {
  testing::use_gpus(0);
  const Graph graph = build([] { matmul(ones({2, 2}), ones({2, 2}), {.name = "y"}); });
  EXPECT_EQ(Placed(graph)["y"], "CPU:0");
}

TEST(Placer, TakesTheDefaultDeviceWhereOneIsGiven) {
  testing::use_gpus(2);
  const Graph graph = build([] {
    matmul(ones({2, 2}), ones({2, 2}), {.name = "y"});
    const DeviceScope on("/cpu:0");
    ones({2}, {.name = "asked"});
  });
  DeviceImpl* gpu1 = DeviceManager::get().find(*DeviceName::parse_full(kProcess + "/device:GPU:1"));
  const Placed placed(graph, {.default_device = gpu1});
  EXPECT_EQ(placed["y"], "GPU:1");
  EXPECT_EQ(placed["asked"], "CPU:0");
}

TEST(Placer, PartialNamesUseTheFirstMatch) {
  testing::use_gpus(2);
  const Graph graph = build([] {
    const Tensor x = ones({2, 2});
    {
      const DeviceScope on("/device:GPU:*");
      matmul(x, x, {.name = "any_gpu"});
    }
    {
      const DeviceScope on("/job:localhost");
      matmul(x, x, {.name = "any"});
    }
    const DeviceScope on("/device:CPU");
    matmul(x, x, {.name = "any_cpu"});
  });
  const Placed placed(graph);
  EXPECT_EQ(placed["any_gpu"], "GPU:0");
  EXPECT_EQ(placed["any"], "GPU:0");
  EXPECT_EQ(placed["any_cpu"], "CPU:0");
}

TEST(Placer, AssignedNodesStay) {
  testing::use_gpus(2);
  Graph graph = build([] { ones({2}, {.name = "a"}); });
  std::vector<DeviceImpl*> assigned = place_graph(graph.impl());
  DeviceImpl* gpu1 = DeviceManager::get().find(*DeviceName::parse_full(kProcess + "/device:GPU:1"));
  assigned[0] = gpu1;
  {
    const GraphScope building(graph);
    const ColocateWith with(graph.tensor("a:0"));
    add(graph.tensor("a:0"), 1.0);
    ones({2}, {.name = "b"});
  }
  const Placed placed(graph, {.allow_soft_placement = false, .assigned = assigned});
  EXPECT_EQ(placed["a"], "GPU:1");
  EXPECT_EQ(placed["b"], "GPU:1");
}

// Heuristic A.
TEST(Placer, NodesWithoutInputsFollowTheirConsumers) {
  testing::use_gpus(3);
  const Graph graph = build([] {
    const Tensor same = ones({2, 2}, {.name = "same"});
    const Tensor split = ones({2, 2}, {.name = "split"});
    const Tensor asked = [] {
      const DeviceScope on("/gpu:0");
      return ones({2, 2}, {.name = "asked"});
    }();
    {
      const DeviceScope on("/gpu:2");
      matmul(same, same);
      matmul(split, asked);
    }
    const DeviceScope on("/gpu:1");
    matmul(split, split);
  });
  const Placed placed(graph);
  EXPECT_EQ(placed["same"], "GPU:2");
  EXPECT_EQ(placed["split"], "GPU:0");
  EXPECT_EQ(placed["asked"], "GPU:0");
}

// Heuristic B.
TEST(Placer, ViewsFollowTheirInput) {
  testing::use_gpus(2);
  const Graph graph = build([] {
    Tensor x;
    {
      const DeviceScope on("/gpu:1");
      x = matmul(ones({2, 2}), ones({2, 2}));
    }
    reshape(x, {4});
    const DeviceScope on("/cpu:0");
    stop_gradient(x);
  });
  const Placed placed(graph);
  EXPECT_EQ(placed["Reshape"], "GPU:1");
  EXPECT_EQ(placed["StopGradient"], "CPU:0");
}

TEST(Placer, NodesAreColocatedWithTheirVariable) {
  testing::use_gpus(2);
  Graph graph;
  {
    const GraphScope building(graph);
    Variable v;
    {
      const DeviceScope on("/gpu:1");
      v = Variable(ones({2}), {.name = "v"});
    }
    v.value();
    const DeviceScope elsewhere("/cpu:0");  // the variable overrides it
    graph.updates("bump", [&] { v.assign(ones({2})); });
  }
  const Placed placed(graph);
  EXPECT_EQ(placed["v"], "GPU:1");
  EXPECT_EQ(placed["v/Assign"], "GPU:1");
  EXPECT_EQ(placed["ReadVariableOp"], "GPU:1");
  EXPECT_EQ(placed["AssignVariableOp"], "GPU:1");
}

TEST(Placer, CapturedVariablesStayWhereTheyAre) {
  testing::use_gpus(2);
  const DeviceScope on("/gpu:1");
  const Variable v(ones({2}), {.name = "v"});
  const DeviceScope anywhere("");
  const Graph graph = build([&] { v.value(); });
  EXPECT_EQ(Placed(graph)["v"], "GPU:1");
  EXPECT_EQ(Placed(graph)["ReadVariableOp"], "GPU:1");
}

TEST(Placer, VariablesOfTwoDevicesInOneOperationAreAnError) {
  testing::use_gpus(2);
  Graph graph;
  {
    const GraphScope building(graph);
    Variable a, b;
    {
      const DeviceScope on("/gpu:0");
      a = Variable(ones({2}), {.name = "a"});
    }
    {
      const DeviceScope on("/gpu:1");
      b = Variable(ones({2}), {.name = "b"});
    }
    const ColocateWith with(b.value());  // the read of `b`, and so `b`
    a.value();
  }
  expect_prefix(
      error_of(graph),
      "Cannot colocate nodes ReadVariableOp and ReadVariableOp_1: Cannot merge devices with "
      "incompatible ids: '/device:GPU:1' and '/device:GPU:0'");
}

TEST(Placer, VariablesOfTwoDevicesInOneUpdateAreAnError) {
  testing::use_gpus(2);
  static const OpDef both = {.name = "WritesBoth",
                             .infer = [](InferContext&) {},
                             .cpu_kernel = [](KernelContext&) {},
                             .mutated_inputs = 0b11};
  Graph graph;
  const auto variable = [&](const char* device, const char* name) {
    const GraphScope building(graph);
    const DeviceScope on(device);
    Variable(ones({2}), {.name = name});
    return Node::Input{&graph.operation(name).node(), 0};
  };
  const Node::Input inputs[] = {variable("/gpu:0", "a"), variable("/gpu:1", "b")};
  graph.impl().add(both, NoAttrs(), inputs, {.name = "write"});
  EXPECT_EQ(error_of(graph),
            "Cannot place the graph because a reference or resource edge connects colocation "
            "groups with incompatible resource devices: /device:GPU:1 vs /device:GPU:0. The edge "
            "src node is b , and the dst node is write");
}

TEST(Placer, ColocationIsFollowedAndMerged) {
  testing::use_gpus(2);
  const Graph graph = build([] {
    const Tensor a = ones({2}, {.name = "a"});
    const ColocateWith with(a);
    {
      const DeviceScope on("/gpu:1");  // applies to the whole group
      ones({2}, {.name = "b"});
    }
    ones({2}, {.name = "c"});
  });
  const Placed placed(graph);
  EXPECT_EQ(placed["a"], "GPU:1");
  EXPECT_EQ(placed["b"], "GPU:1");
  EXPECT_EQ(placed["c"], "GPU:1");
}

Graph contradicting_colocation() {
  return build([] {
    Tensor a;
    {
      const DeviceScope on("/gpu:0");
      a = ones({2}, {.name = "a"});
    }
    const ColocateWith with(a);
    const DeviceScope on("/cpu:0");
    ones({2}, {.name = "b"});
  });
}

TEST(Placer, ContradictingColocationIsAnError) {
  testing::use_gpus(1);
  const std::string error = error_of(contradicting_colocation());
  expect_prefix(error,
                "Cannot colocate nodes a and b: Cannot merge devices with incompatible types: "
                "'/device:GPU:0' and '/device:CPU:0'\nColocat");
  EXPECT_NE(error.find("\n  a (Fill) /gpu:0"), std::string::npos) << error;
}

TEST(Placer, SoftPlacementIgnoresContradictions) {
  testing::use_gpus(1);
  const Placed placed(contradicting_colocation(), {.allow_soft_placement = true});
  // Both stay together. The type is relaxed, and the first device is used.
  EXPECT_EQ(placed["a"], "GPU:0");
  EXPECT_EQ(placed["b"], "GPU:0");
}

TEST(Placer, SoftPlacementNeverRelaxesTheJob) {
  const Graph graph = build([] {
    const DeviceScope on("/job:worker/task:3/gpu:0");
    ones({2}, {.name = "a"});
  });
  for (const bool soft : {false, true})
    expect_prefix(
        error_of(graph, {.allow_soft_placement = soft}),
        "Cannot assign a device for operation a: a was explicitly assigned to "
        "'/job:worker/task:3/gpu:0' but available devices are [/job:localhost/replica:0/task");
}

TEST(Placer, AMissingGpuIsAnErrorUnlessSoft) {
  testing::use_gpus(0);
  const Graph graph = build([] {
    const DeviceScope on("/gpu:9");
    constant({1.0}, {.name = "b"});
  });
  EXPECT_EQ(error_of(graph),
            "Cannot assign a device for operation b: b was explicitly assigned to '/gpu:9' but "
            "available devices are [" +
                kProcess +
                "/device:CPU:0]. Make sure the device specification refers to a valid device. The "
                "requested device appears to be a GPU, but there is none; TANDEM_EMULATED_GPUS=N "
                "makes N emulated ones.");
  EXPECT_EQ(Placed(graph, {.allow_soft_placement = true})["b"], "CPU:0");
}

TEST(Placer, RequestsOfVariablesAreRelaxedLast) {
  testing::use_gpus(1);
  const Graph graph = build([] {
    const DeviceScope on("/gpu:7");
    const Variable v(ones({2}), {.name = "v"});
    v.value();
  });
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Placed(graph, {.allow_soft_placement = true})["v"], "GPU:0");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find(
                "Failed to place the graph without changing the devices of some resources"),
            std::string::npos);
}

TEST(Placer, SoftPlacementDefaultsToTheProcessSetting) {
  testing::use_gpus(0);
  const Graph graph = build([] {
    const DeviceScope on("/gpu:9");
    constant({1.0}, {.name = "b"});
  });
  EXPECT_EQ(Placed(graph, {})["b"], "CPU:0");
  config::set_soft_device_placement(false);
  EXPECT_THROW(place_graph(graph.impl()), InvalidArgumentError);
}

// An operation without a kernel for GPUs.
TEST(Placer, OperationsWithoutAKernel) {
  testing::use_gpus(1);
  static const OpDef host_only = {.name = "HostOnly",
                                  .infer = [](InferContext& c) { c.add_output(float32, {2}); },
                                  .cpu_kernel = [](KernelContext&) {},
                                  .gpu = false};
  static const OpDef nowhere = {.name = "Nowhere",
                                .infer = [](InferContext& c) { c.add_output(float32, {2}); }};
  Graph graph;
  {
    const GraphScope building(graph);
    graph.impl().add(host_only, NoAttrs(), {}, {.name = "h"});
  }
  EXPECT_EQ(Placed(graph)["h"], "CPU:0");
  const DeviceName gpu = *DeviceName::parse_full("/gpu:0");
  graph.impl().add(host_only, NoAttrs(), {},
                   {.requested = &gpu, .requested_text = "/gpu:0", .name = "g"});
  expect_prefix(error_of(graph),
                "Cannot assign a device for operation g: Could not satisfy explicit device "
                "specification '/gpu:0' because no supported kernel for GPU devices is");
  EXPECT_NE(error_of(graph).find("Registered kernels of HostOnly: CPU"), std::string::npos);
  EXPECT_EQ(Placed(graph, {.allow_soft_placement = true})["g"], "CPU:0");

  Graph other;
  Tensor a;
  {
    const GraphScope building(other);
    {
      const DeviceScope on("/gpu:0");
      a = ones({2}, {.name = "a"});
    }
    const ColocateWith with(a);
    other.impl().add(host_only, NoAttrs(), {}, {.name = "h"});
  }
  expect_prefix(
      error_of(other),
      "Cannot assign a device for operation a: Could not satisfy explicit device "
      "specification '/gpu:0' because the node a was colocated with a group of nodes that "
      "required incompatible device 'CPU'. All");

  Graph none;
  none.impl().add(nowhere, NoAttrs(), {}, {.name = "n"});
  expect_prefix(
      error_of(none, {.allow_soft_placement = true}),
      "Cannot assign a device for operation n: Node had no OpKernel registered to support "
      "this operation: Operation was Nowhere and inputs were [].\nColocati");
}

}  // namespace
}  // namespace tandem::placer_test
