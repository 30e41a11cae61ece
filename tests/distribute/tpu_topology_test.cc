#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "distribute/tpu_system.h"
#include "support/errors.h"
#include "tandem/tpu_system.h"

namespace tandem::tpu_topology_test {
namespace {

using distribute::Topology;
using distribute::topology_of;
using distribute::TPUCoordinates;
using distribute::TpuCore;
using testing::error_of;
using Coordinates = std::vector<std::vector<TPUCoordinates>>;

// Two chips of two cores for each of two tasks, on a square whose second row is the second task's.
Coordinates square() {
  return {{{0, 0, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}, {1, 0, 0, 1}},
          {{0, 1, 0, 0}, {0, 1, 0, 1}, {1, 1, 0, 0}, {1, 1, 0, 1}}};
}

std::string invalid(const std::array<int, 4>& mesh, const Coordinates& devices) {
  return error_of<InvalidArgumentError>([&] { Topology(mesh, devices); });
}

std::string unparsable(const std::string& bytes) {
  return error_of<InvalidArgumentError>([&] { Topology::parse(bytes); });
}

// A field of a message: packed numbers of one byte each.
std::string numbers(int field, const std::string& values) {
  return std::string{static_cast<char>(field << 3 | 2), static_cast<char>(values.size())} + values;
}
std::string count(int field, char value) { return {static_cast<char>(field << 3), value}; }
// A number of a repeated field, as an unpacked varint. Negative ones take ten bytes.
std::string minus_one(int field) {
  return static_cast<char>(field << 3) + std::string(9, '\xff') + '\x01';
}

const std::string kMesh = numbers(1, {2, 2, 1, 1});

TEST(TpuTopology, MapsCoordinatesToDevicesOfTasks) {
  const Topology topology({2, 2, 1, 2}, square());
  EXPECT_EQ(topology.mesh_shape(), (std::array<int, 4>{2, 2, 1, 2}));
  EXPECT_EQ(topology.mesh_rank(), 4);
  EXPECT_EQ(topology.num_tasks(), 2);
  EXPECT_EQ(topology.num_tpus_per_task(), 4);
  EXPECT_EQ(topology.device_coordinates(), square());
  EXPECT_TRUE(topology.missing_devices().empty());
  const TPUCoordinates place = {1, 1, 0, 1};
  EXPECT_EQ(topology.task_ordinal_at_coordinates(place), 1);
  EXPECT_EQ(topology.tpu_device_ordinal_at_coordinates(place), 3);
  EXPECT_EQ(topology.tpu_device_name_at_coordinates(place), "/task:1/device:TPU:3");
  EXPECT_EQ(topology.tpu_device_name_at_coordinates(place, "worker"),
            "/job:worker/task:1/device:TPU:3");
  EXPECT_EQ(topology.cpu_device_name_at_coordinates(place), "/task:1/device:CPU:0");
  EXPECT_EQ(topology.cpu_device_name_at_coordinates({0, 0, 0, 1}, "worker"),
            "/job:worker/task:0/device:CPU:0");
}

TEST(TpuTopology, ListsMissingDevices) {
  const Topology topology({2, 1, 2, 1}, {{{1, 0, 0, 0}}});
  EXPECT_EQ(topology.missing_devices(),
            (std::vector<TPUCoordinates>{{0, 0, 0, 0}, {0, 0, 1, 0}, {1, 0, 1, 0}}));
  EXPECT_EQ(topology.task_ordinal_at_coordinates({0, 0, 1, 0}), -1);
  EXPECT_EQ(topology.tpu_device_ordinal_at_coordinates({0, 0, 1, 0}), -1);
  const std::string missing = "[Topology] the device at [0 0 1 0] is missing";
  EXPECT_EQ(error_of<NotFoundError>([&] {
              topology.tpu_device_name_at_coordinates({0, 0, 1, 0});
            }),
            missing);
  EXPECT_EQ(error_of<NotFoundError>([&] {
              topology.cpu_device_name_at_coordinates({0, 0, 1, 0});
            }),
            missing);
  EXPECT_EQ(error_of<OutOfRangeError>([&] {
              topology.task_ordinal_at_coordinates({0, 0, 2, 0});
            }),
            "[Topology] expected coordinates within `mesh_shape=[2 1 2 1]`, got [0 0 2 0]");
  EXPECT_EQ(error_of<OutOfRangeError>([&] {
              topology.tpu_device_ordinal_at_coordinates({0, -1, 0, 0});
            }),
            "[Topology] expected coordinates within `mesh_shape=[2 1 2 1]`, got [ 0 -1  0  0]");
}

TEST(TpuTopology, RefusesWhatIsNoMesh) {
  EXPECT_EQ(invalid({2, 0, 1, 2}, square()),
            "[Topology] `mesh_shape` must be a sequence of 4 positive entries; got "
            "`mesh_shape=[2 0 1 2]`");
  EXPECT_EQ(invalid({2, 2}, square()),
            "[Topology] `mesh_shape` must be a sequence of 4 positive entries; got "
            "`mesh_shape=[2 2 0 0]`");
  EXPECT_EQ(invalid({1 << 20, 2, 1, 1}, {}),
            "[Topology] expected a mesh of at most 1048576 cores, got `mesh_shape=[1048576       2 "
            "      1       1]`");
  EXPECT_EQ(invalid({2, 2, 1, 2}, {{{0, 0, 0, 0}, {0, 0, 0, 1}}, {{1, 0, 0, 0}}}),
            "[Topology] `device_coordinates` must be a rank 3 int32 array with minor dimension "
            "equal to the `mesh_shape` rank, got 2 devices of task 0 and 1 of task 1");
  EXPECT_EQ(invalid({2, 2, 1, 2}, {{{0, 0, -1, 0}}}),
            "[Topology] All values in `device_coordinates` must be >= 0, got [ 0  0 -1  0]");
  EXPECT_EQ(
      invalid({2, 2, 1, 2}, {{{0, 2, 0, 0}}}),
      "[Topology] expected `device_coordinates` within `mesh_shape=[2 2 1 2]`, got [0 2 0 0]");
  EXPECT_EQ(invalid({2, 2, 1, 2}, {{{0, 1, 0, 0}, {1, 1, 0, 0}}, {{0, 0, 0, 0}, {1, 1, 0, 0}}}),
            "[Topology] expected one device at [1 1 0 0], got device 1 of task 0 and device 1 of "
            "task 1");
}

// The bytes that TensorFlow 2.21 writes for one task of this mesh.
TEST(TpuTopology, SerializesAsTensorFlowDoes) {
  Coordinates devices(1);
  for (const auto& task : square()) devices[0].insert(devices[0].end(), task.begin(), task.end());
  const std::string bytes = numbers(1, {2, 2, 1, 2}) + count(2, 1) + count(3, 8) +
                            numbers(4, {0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 1,
                                        0, 1, 0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1, 1, 0, 1});
  EXPECT_EQ(Topology({2, 2, 1, 2}, devices).serialized(), bytes);
  const Topology parsed = Topology::parse(bytes);
  EXPECT_EQ(parsed.mesh_shape(), (std::array<int, 4>{2, 2, 1, 2}));
  EXPECT_EQ(parsed.device_coordinates(), devices);
  // Fields that Tandem does not know, such as tpu_hardware_feature, are left out.
  EXPECT_EQ(Topology::parse(bytes + numbers(5, {8, 1})).serialized(), bytes);
  const Topology two({2, 2, 1, 2}, square());
  EXPECT_EQ(Topology::parse(two.serialized()).device_coordinates(), square());
}

TEST(TpuTopology, RefusesBytesThatAreNoTopology) {
  EXPECT_EQ(unparsable("\x0a\xff"),
            "[Topology] expected a serialized TopologyProto, got 2 bytes of another form");
  EXPECT_EQ(unparsable(""),
            "[Topology] `mesh_shape` must be a vector of size 4 with positive entries; got []");
  EXPECT_EQ(
      unparsable(numbers(1, {2, 2, 1})),
      "[Topology] `mesh_shape` must be a vector of size 4 with positive entries; got [2 2 1]");
  EXPECT_EQ(unparsable(numbers(1, {2, 2, 1}) + minus_one(1)),
            "[Topology] `mesh_shape` must be a vector of size 4 with positive entries; got [ 2  2  "
            "1 -1]");
  EXPECT_EQ(unparsable(kMesh + minus_one(2)), "[Topology] `num_tasks` must be >= 0; got -1");
  EXPECT_EQ(unparsable(kMesh + count(2, 1) + minus_one(3)),
            "[Topology] `num_tpu_devices_per_task` must be >= 0; got -1");
  EXPECT_EQ(unparsable(kMesh + count(2, 1) + count(3, 2) + numbers(4, {1, 2, 3})),
            "[Topology] `device_coordinates` must have shape num_tasks (1) * "
            "num_tpu_devices_per_task (2) * len(mesh_shape) ([2, 2, 1, 1]); got shape 3");
  EXPECT_EQ(unparsable(kMesh + count(2, 1) + count(3, 1) + numbers(4, {0, 0}) + minus_one(4) +
                       numbers(4, {0})),
            "[Topology] All values in `device_coordinates` must be >= 0, got [ 0  0 -1  0]");
  const std::string many = "\x10\xff\xff\xff\xff\x07";  // num_tasks: 2^31 - 1
  EXPECT_EQ(unparsable(kMesh + many),
            "[Topology] expected at most 1048576 tasks, got `num_tasks` 2147483647");
}

TEST(TpuTopology, OfAttachedCoresBeginsAtTheirFirstCoordinates) {
  const std::vector<TpuCore> cores = {{{4, 3, 7}, 0}, {{4, 3, 7}, 1}, {{5, 3, 7}, 0}};
  const Topology topology = topology_of(cores);
  EXPECT_EQ(topology.mesh_shape(), (std::array<int, 4>{2, 1, 1, 2}));
  EXPECT_EQ(topology.device_coordinates(),
            (Coordinates{{{0, 0, 0, 0}, {0, 0, 0, 1}, {1, 0, 0, 0}}}));
  EXPECT_EQ(topology.missing_devices(), (std::vector<TPUCoordinates>{{1, 0, 0, 1}}));
}

TEST(TpuTopology, OfAttachedCoresTakesMeshesOfFewerAxes) {
  const std::vector<TpuCore> cores = {{{1, 0}, 0}, {{0, 0}, 0}};
  EXPECT_EQ(topology_of(cores).mesh_shape(), (std::array<int, 4>{2, 1, 1, 1}));
  EXPECT_EQ(topology_of(cores).device_coordinates(), (Coordinates{{{1, 0, 0, 0}, {0, 0, 0, 0}}}));
}

TEST(TpuTopology, OfAttachedCoresIsALineIfPlacesAreUnknown) {
  const Coordinates line = {{{0, 0, 0, 0}, {1, 0, 0, 0}}};
  for (const std::vector<TpuCore>& cores : std::vector<std::vector<TpuCore>>{
           {{{}, 0}, {{}, 0}},                      // none
           {{{1, 1, 1}, 0}, {{}, 0}},               // not of all
           {{{0, 0, 0}, 0}, {{0, 0, 0}, 0}},        // the same for both
           {{{0, 0, 0, 0}, 0}, {{0, 0, 0, 1}, 0}},  // of four axes
       }) {
    EXPECT_EQ(topology_of(cores).mesh_shape(), (std::array<int, 4>{2, 1, 1, 1}));
    EXPECT_EQ(topology_of(cores).device_coordinates(), line);
  }
}

TEST(TpuTopology, OfAttachedCoresRefusesAMeshThatIsTooLarge) {
  const std::vector<TpuCore> far = {{{INT64_MIN}, 0}, {{INT64_MAX}, 0}};
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { topology_of(far); }),
            "expected coordinates on axis 0 that differ by less than 1048576, got "
            "-9223372036854775808 and 9223372036854775807");
  const std::vector<TpuCore> wide = {{{0, 0}, 0}, {{4000, 4000}, 0}};
  testing::expect_parts(error_of<InvalidArgumentError>([&] { topology_of(wide); }),
                        {"expected a mesh of at most 1048576 cores", "4001"});
}

}  // namespace
}  // namespace tandem::tpu_topology_test
