// Expected assignments are TensorFlow's (tpu_assignments.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "distribute/tpu_assignments.h"
#include "distribute/tpu_ring.h"
#include "support/errors.h"
#include "tandem/tpu_system.h"

namespace tandem::tpu_device_assignment_test {
namespace {

using distribute::DeviceAssignment;
using distribute::DeviceAssignmentOptions;
using distribute::DeviceOrderMode;
using distribute::Topology;
using distribute::TPUCoordinates;
using testing::error_of;

// As topology() of tpu_assignments.py.
Topology topology(const std::array<int, 4>& mesh, int tasks = 1, int missing = 0) {
  std::vector<TPUCoordinates> cores;
  for (int z = 0; z < mesh[2]; ++z)
    for (int y = 0; y < mesh[1]; ++y)
      for (int x = 0; x < mesh[0]; ++x)
        for (int core = 0; core < mesh[3]; ++core) cores.push_back({x, y, z, core});
  const std::size_t per_task = cores.size() / static_cast<std::size_t>(tasks);
  cores.resize(cores.size() - static_cast<std::size_t>(missing));
  std::vector<std::vector<TPUCoordinates>> devices;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    if (i % per_task == 0) devices.emplace_back();
    devices.back().push_back(cores[i]);
  }
  return {mesh, devices};
}

std::string invalid(const Topology& topology, const DeviceAssignmentOptions& options) {
  return error_of<InvalidArgumentError>([&] { DeviceAssignment::build(topology, options); });
}

TEST(TpuDeviceAssignment, EqualsTensorFlows) {
  ASSERT_GT(testing::tpu_assignments().size(), 20U);
  for (const testing::TpuAssignment& expected : testing::tpu_assignments()) {
    const auto assignment = DeviceAssignment::build(
        topology(expected.mesh, expected.tasks, expected.missing), expected.options);
    std::vector<std::string> cores;
    for (const auto& replica : assignment.core_assignment()) {
      std::vector<std::string> places;
      for (const TPUCoordinates& c : replica) places.push_back(fmt::format("{}", fmt::join(c, "")));
      cores.push_back(fmt::format("{}", fmt::join(places, " ")));
    }
    EXPECT_EQ(cores, expected.cores)
        << fmt::format("mesh {} shape {} stride {}", fmt::join(expected.mesh, ","),
                       fmt::join(expected.options.computation_shape, ","),
                       fmt::join(expected.options.computation_stride, ","));
    EXPECT_EQ(assignment.num_replicas(), expected.options.num_replicas);
  }
}

TEST(TpuDeviceAssignment, UsesNoCoreTwice) {
  for (const std::array<int, 4>& shape :
       {std::array<int, 4>{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 2, 1}, {2, 2, 1, 2}})
    for (const std::array<int, 4>& stride : {std::array<int, 4>{1, 1, 1, 1}, {2, 1, 1, 1}}) {
      const Topology mesh = topology({4, 4, 2, 2});
      for (int replicas = 1; replicas <= 64 / (shape[0] * shape[1] * shape[2] * shape[3]);
           ++replicas) {
        const auto assignment = DeviceAssignment::build(
            mesh,
            {.computation_shape = shape, .computation_stride = stride, .num_replicas = replicas});
        std::set<TPUCoordinates> used;
        for (const auto& replica : assignment.core_assignment())
          used.insert(replica.begin(), replica.end());
        EXPECT_EQ(static_cast<int>(used.size()), replicas * assignment.num_cores_per_replica());
      }
    }
}

// Independent of TensorFlow: each chip of a ring is next to the one before.
TEST(TpuDeviceAssignment, RingsConnectNeighbours) {
  for (const std::array<int, 3>& mesh :
       {std::array<int, 3>{4, 4, 1}, {2, 6, 1}, {4, 1, 2}, {1, 2, 8}, {4, 4, 4}, {2, 4, 6}}) {
    const auto ring = distribute::ring_order(mesh);
    EXPECT_EQ(std::set(ring.begin(), ring.end()).size(), ring.size());
    EXPECT_EQ(static_cast<int>(ring.size()), mesh[0] * mesh[1] * mesh[2]);
    for (std::size_t i = 0; i < ring.size(); ++i) {
      const auto &chip = ring[i], &next = ring[(i + 1) % ring.size()];
      int distance = 0;
      for (std::size_t axis = 0; axis < 3; ++axis) distance += std::abs(chip[axis] - next[axis]);
      EXPECT_EQ(distance, 1) << fmt::format("mesh {}, chip {}", fmt::join(mesh, ","), i);
    }
  }
}

TEST(TpuDeviceAssignment, NamesTheDevicesOfReplicas) {
  const auto assignment = DeviceAssignment::build(
      topology({4, 4, 1, 2}, 4), {.computation_shape = {1, 1, 1, 2}, .num_replicas = 16});
  EXPECT_EQ(assignment.num_replicas(), 16);
  EXPECT_EQ(assignment.num_cores_per_replica(), 2);
  EXPECT_EQ(assignment.topology().num_tasks(), 4);
  // Replica 4 is the first of the second row, from the right.
  EXPECT_EQ(assignment.coordinates(4, 1), (TPUCoordinates{3, 1, 0, 1}));
  EXPECT_EQ(assignment.tpu_ordinal(4, 1), 7);
  EXPECT_EQ(assignment.tpu_device(4, 1), "/task:1/device:TPU:7");
  EXPECT_EQ(assignment.tpu_device(4, 1, "worker"), "/job:worker/task:1/device:TPU:7");
  EXPECT_EQ(assignment.host_device(4, 1), "/task:1/device:CPU:0");
  EXPECT_EQ(assignment.host_device(4, 1, "worker"), "/job:worker/task:1/device:CPU:0");
  EXPECT_EQ(assignment.tpu_device(), "/task:0/device:TPU:0");
  EXPECT_EQ(assignment.lookup_replicas(1, 0), (std::vector<int>{4, 5, 6, 15}));
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { assignment.lookup_replicas(4, 1); }),
            "[DeviceAssignment] Can not find any replica in task: 4 contains logical_core: 1");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { assignment.lookup_replicas(0, 2); }),
            "[DeviceAssignment] Can not find any replica in task: 0 contains logical_core: 2");
  EXPECT_EQ(error_of<OutOfRangeError>([&] { assignment.tpu_ordinal(16, 0); }),
            "[DeviceAssignment] expected one of 16 replicas and 2 logical cores, got 16 and 0");
  EXPECT_EQ(error_of<OutOfRangeError>([&] { assignment.coordinates(0, -1); }),
            "[DeviceAssignment] expected one of 16 replicas and 2 logical cores, got 0 and -1");
}

TEST(TpuDeviceAssignment, RefusesWhatDoesNotFit) {
  const Topology mesh = topology({2, 2, 1, 2});
  EXPECT_EQ(invalid(mesh, {.computation_shape = {1, 1, 1, 0}}),
            "[DeviceAssignment] computation_shape must be positive; got "
            "computation_shape=[1 1 1 0]");
  EXPECT_EQ(invalid(mesh, {.computation_stride = {1, -1, 1, 1}}),
            "[DeviceAssignment] computation_stride must be positive; got "
            "computation_stride=[ 1 -1  1  1]");
  EXPECT_EQ(invalid(mesh, {.num_replicas = 0}),
            "[DeviceAssignment] num_replicas must be positive; got num_replicas=0");
  EXPECT_EQ(invalid(mesh, {.computation_shape = {4, 2, 1, 2}, .computation_stride = {1, 10, 1, 1}}),
            "[DeviceAssignment] computation footprint [ 4 20  1  2] does not fit in TPU topology "
            "shape [2 2 1 2]");
  EXPECT_EQ(invalid(mesh, {.computation_stride = {INT_MAX, INT_MAX, 1, 1}}),
            "[DeviceAssignment] computation footprint [2147483647 2147483647          1          "
            "1] does not fit in TPU topology shape [2 2 1 2]");
  EXPECT_EQ(invalid(mesh, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 9}),
            "[DeviceAssignment] requested 9 replicas but only 4 replicas with shape [1 1 1 2] and "
            "computation_stride [1 1 1 1] fit in a TPU mesh of shape [2 2 1 2]");
}

TEST(TpuDeviceAssignment, RefusesRingsThatDoNotFillTheMesh) {
  const std::string message =
      "[DeviceAssignment] device_order_mode=DeviceOrderMode.RING is not compatible with the 3D "
      "tiling current topology.  Try setting device_order_mode=DeviceOrderMode.AUTO";
  const auto ring = DeviceOrderMode::kRing;
  const Topology mesh = topology({2, 2, 1, 2});
  EXPECT_EQ(invalid(mesh, {.num_replicas = 8, .device_order_mode = ring}), message);
  EXPECT_EQ(
      invalid(mesh,
              {.computation_shape = {1, 1, 1, 2}, .num_replicas = 3, .device_order_mode = ring}),
      message);
  EXPECT_EQ(invalid(mesh, {.computation_shape = {1, 1, 1, 2},
                           .computation_stride = {2, 1, 1, 1},
                           .num_replicas = 4,
                           .device_order_mode = ring}),
            message);
}

TEST(TpuDeviceAssignment, RefusesWhatDoesNotFitIntoTheDevicesThatThereAre) {
  const Topology mesh = topology({4, 4, 1, 2}, 4, 8);
  EXPECT_EQ(
      invalid(mesh, {.computation_shape = {2, 2, 1, 2}, .num_replicas = 4}),
      "[DeviceAssignment] requested 4 replicas with shape [2 2 1 2] but the topology has only "
      "24 devices");
  EXPECT_EQ(invalid(mesh, {.computation_stride = {2, 1, 1, 1}}),
            "[DeviceAssignment] expected computation_stride [1 1 1 1] for a topology with missing "
            "devices, got [2 1 1 1]");
}

TEST(TpuDeviceAssignment, ChecksTheAssignmentThatIsGiven) {
  const Topology mesh({2, 1, 1, 1}, {{{0, 0, 0, 0}}});
  EXPECT_EQ(DeviceAssignment(mesh, {{{0, 0, 0, 0}}}).tpu_device(), "/task:0/device:TPU:0");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { DeviceAssignment(mesh, {}); }),
            "[DeviceAssignment] expected at least one replica with at least one core, got no "
            "replica");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              DeviceAssignment(mesh, {{}, {}});
            }),
            "[DeviceAssignment] expected at least one replica with at least one core, got no core");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              DeviceAssignment(mesh, {{{0, 0, 0, 0}}, {{0, 0, 0, 0}, {0, 0, 0, 0}}});
            }),
            "[DeviceAssignment] core_assignment must be a rank 3 numpy array, got 1 cores of "
            "replica 0 and 2 of replica 1");
  EXPECT_EQ(error_of<NotFoundError>([&] {
              DeviceAssignment(mesh, {{{1, 0, 0, 0}}});
            }),
            "[Topology] the device at [1 0 0 0] is missing");
  EXPECT_EQ(error_of<OutOfRangeError>([&] {
              DeviceAssignment(mesh, {{{2, 0, 0, 0}}});
            }),
            "[Topology] expected coordinates within `mesh_shape=[2 1 1 1]`, got [2 0 0 0]");
}

}  // namespace
}  // namespace tandem::tpu_device_assignment_test
