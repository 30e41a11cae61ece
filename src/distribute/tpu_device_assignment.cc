#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "core/status.h"
#include "distribute/tpu_arrays.h"
#include "distribute/tpu_ring.h"
#include "tandem/tpu_system.h"

namespace tandem::distribute {
namespace {

constexpr const char* kAssignment = "DeviceAssignment";
constexpr std::size_t kRank = 4;

using Extents = std::array<std::int64_t, kRank>;
using Assignment = std::vector<std::vector<TPUCoordinates>>;

std::int64_t product(const Extents& extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

Extents widened(const std::array<int, kRank>& numbers) {
  Extents extents{};
  std::copy(numbers.begin(), numbers.end(), extents.begin());
  return extents;
}

// How blocks of cores tile the mesh.
struct Tiling {
  Extents mesh, shape, stride;
  Extents footprint;  // size along each axis of a block with its stride
  Extents counts;     // the most blocks along each axis
  std::int64_t num_replicas;

  bool fills_mesh() const { return num_replicas == product(counts); }
};

void check_positive(const char* name, const std::array<int, kRank>& numbers) {
  if (std::any_of(numbers.begin(), numbers.end(), [](int n) { return n < 1; }))
    fail<InvalidArgumentError>("[{}] {} must be positive; got {}={}", kAssignment, name, name,
                               numpy_text(numbers));
}

Tiling tiling_of(const Topology& topology, const DeviceAssignmentOptions& options) {
  check_positive("computation_shape", options.computation_shape);
  check_positive("computation_stride", options.computation_stride);
  if (options.num_replicas < 1)
    fail<InvalidArgumentError>("[{}] num_replicas must be positive; got num_replicas={}",
                               kAssignment, options.num_replicas);
  Tiling t{.mesh = widened(topology.mesh_shape()),
           .shape = widened(options.computation_shape),
           .stride = widened(options.computation_stride),
           .footprint = {},
           .counts = {},
           .num_replicas = options.num_replicas};
  bool fits = true;
  for (std::size_t axis = 0; axis < kRank; ++axis) {
    t.footprint[axis] = t.shape[axis] * t.stride[axis];
    t.counts[axis] = t.mesh[axis] / t.footprint[axis] * t.stride[axis];
    fits = fits && t.footprint[axis] <= t.mesh[axis];
  }
  if (!fits)
    fail<InvalidArgumentError>(
        "[{}] computation footprint {} does not fit in TPU topology shape {}", kAssignment,
        numpy_text(t.footprint), numpy_text(t.mesh));
  if (t.num_replicas > product(t.counts))
    fail<InvalidArgumentError>(
        "[{}] requested {} replicas but only {} replicas with shape {} and computation_stride {} "
        "fit in a TPU mesh of shape {}",
        kAssignment, t.num_replicas, product(t.counts), numpy_text(t.shape), numpy_text(t.stride),
        numpy_text(t.mesh));
  return t;
}

// The block of replicas, as close to a cube as the mesh allows. The axis with the fewest places is
// chosen first, so that the others can hold the rest; of axes with equally many, the cores of a
// chip, then x, y and z, so that replicas that are next to each other are on one host.
Extents replica_block(const Tiling& t) {
  std::array<std::size_t, kRank> axes = {kRank - 1, 0, 1, 2};
  std::stable_sort(axes.begin(), axes.end(),
                   [&](auto a, auto b) { return t.counts[a] < t.counts[b]; });
  Extents block{};
  std::int64_t rest = t.num_replicas;
  for (std::size_t i = 0; i < kRank; ++i) {
    const double root = std::pow(static_cast<double>(rest), 1.0 / static_cast<double>(kRank - i));
    std::int64_t& size = block[axes[i]];
    size = std::min(static_cast<std::int64_t>(std::ceil(root)), t.counts[axes[i]]);
    rest = (rest + size - 1) / size;
  }
  TANDEM_ASSERT(rest == 1);
  return block;
}

// Replicas, and the chips of each, in ring order. A replica has all cores of its chips.
Assignment rings(const Tiling& t) {
  const auto chips = [](const Extents& extents) {
    return ring_order(
        {static_cast<int>(extents[0]), static_cast<int>(extents[1]), static_cast<int>(extents[2])});
  };
  const auto inner = chips(t.shape), outer = chips(replica_block(t));
  Assignment assignment;
  for (const std::array<int, 3>& block : outer) {
    std::vector<TPUCoordinates>& replica = assignment.emplace_back();
    for (const std::array<int, 3>& chip : inner)
      for (std::int64_t core = 0; core < t.mesh.back(); ++core) {
        TPUCoordinates& place = replica.emplace_back();
        for (std::size_t axis = 0; axis < 3; ++axis)
          place[axis] = block[axis] * static_cast<int>(t.shape[axis]) + chip[axis];
        place.back() = static_cast<int>(core);
      }
  }
  return assignment;
}

// The position of a number in a block whose cores of a chip vary fastest, then x, y and z.
Extents position_in(const Extents& block, std::int64_t number) {
  Extents position{};
  for (const std::size_t axis : {kRank - 1, std::size_t{0}, std::size_t{1}, std::size_t{2}}) {
    position[axis] = number % block[axis];
    number /= block[axis];
  }
  return position;
}

// Replicas in a block. Blocks of cores with strides are interleaved.
Assignment mesh(const Tiling& t) {
  const Extents block = replica_block(t);
  Assignment assignment(static_cast<std::size_t>(t.num_replicas));
  for (std::int64_t r = 0; r < t.num_replicas; ++r) {
    const Extents position = position_in(block, r);
    for (std::int64_t core = 0; core < product(t.shape); ++core) {
      TPUCoordinates& place = assignment[static_cast<std::size_t>(r)].emplace_back();
      std::int64_t rest = core;
      for (std::size_t axis = kRank; axis-- > 0;) {  // row-major
        const std::int64_t offset =
            position[axis] / t.stride[axis] * t.footprint[axis] + position[axis] % t.stride[axis];
        place[axis] = static_cast<int>(offset + rest % t.shape[axis] * t.stride[axis]);
        rest /= t.shape[axis];
      }
    }
  }
  return assignment;
}

// The devices that there are, in the order of the tasks.
Assignment in_task_order(const Topology& topology, const Tiling& t) {
  if (product(t.stride) != 1)
    fail<InvalidArgumentError>(
        "[{}] expected computation_stride [1 1 1 1] for a topology with missing devices, got {}",
        kAssignment, numpy_text(t.stride));
  const std::int64_t available = std::int64_t{topology.num_tasks()} * topology.num_tpus_per_task();
  const std::int64_t cores = product(t.shape);
  if (t.num_replicas * cores > available)
    fail<InvalidArgumentError>(
        "[{}] requested {} replicas with shape {} but the topology has only {} devices",
        kAssignment, t.num_replicas, numpy_text(t.shape), available);
  Assignment assignment;
  for (const auto& task : topology.device_coordinates())
    for (const TPUCoordinates& coordinates : task) {
      if (assignment.empty() || std::ssize(assignment.back()) == cores) {
        if (std::ssize(assignment) == t.num_replicas) return assignment;
        assignment.emplace_back();
      }
      assignment.back().push_back(coordinates);
    }
  return assignment;
}

}  // namespace

DeviceAssignment::DeviceAssignment(Topology topology, Assignment core_assignment)
    : topology_(std::move(topology)), core_assignment_(std::move(core_assignment)) {
  const std::size_t cores = core_assignment_.empty() ? 0 : core_assignment_[0].size();
  if (cores == 0)
    fail<InvalidArgumentError>("[{}] expected at least one replica with at least one core, got {}",
                               kAssignment, core_assignment_.empty() ? "no replica" : "no core");
  for (std::size_t replica = 0; replica < core_assignment_.size(); ++replica) {
    if (core_assignment_[replica].size() != cores)
      fail<InvalidArgumentError>(
          "[{}] core_assignment must be a rank 3 numpy array, got {} cores of replica 0 and {} of "
          "replica {}",
          kAssignment, cores, core_assignment_[replica].size(), replica);
    for (const TPUCoordinates& coordinates : core_assignment_[replica])
      topology_.tpu_device_name_at_coordinates(coordinates);  // throws
  }
}

DeviceAssignment DeviceAssignment::build(const Topology& topology,
                                         const DeviceAssignmentOptions& options) {
  const Tiling t = tiling_of(topology, options);
  if (!topology.missing_devices().empty()) return {topology, in_task_order(topology, t)};
  const bool tiles = t.shape.back() == t.mesh.back() && product(t.stride) == 1 && t.fills_mesh();
  if (options.device_order_mode == DeviceOrderMode::kRing && !tiles)
    fail<InvalidArgumentError>(
        "[{}] device_order_mode=DeviceOrderMode.RING is not compatible with the 3D tiling current "
        "topology.  Try setting device_order_mode=DeviceOrderMode.AUTO",
        kAssignment);
  const bool ring = tiles && options.device_order_mode != DeviceOrderMode::kMesh;
  return {topology, ring ? rings(t) : mesh(t)};
}

const TPUCoordinates& DeviceAssignment::coordinates(int replica, int logical_core) const {
  if (replica < 0 || replica >= num_replicas() || logical_core < 0 ||
      logical_core >= num_cores_per_replica())
    fail<OutOfRangeError>("[{}] expected one of {} replicas and {} logical cores, got {} and {}",
                          kAssignment, num_replicas(), num_cores_per_replica(), replica,
                          logical_core);
  return core_assignment_[static_cast<std::size_t>(replica)]
                         [static_cast<std::size_t>(logical_core)];
}

int DeviceAssignment::tpu_ordinal(int replica, int logical_core) const {
  return topology_.tpu_device_ordinal_at_coordinates(coordinates(replica, logical_core));
}

std::string DeviceAssignment::host_device(int replica, int logical_core,
                                          const std::string& job) const {
  return topology_.cpu_device_name_at_coordinates(coordinates(replica, logical_core), job);
}

std::string DeviceAssignment::tpu_device(int replica, int logical_core,
                                         const std::string& job) const {
  return topology_.tpu_device_name_at_coordinates(coordinates(replica, logical_core), job);
}

std::vector<int> DeviceAssignment::lookup_replicas(int task_id, int logical_core) const {
  std::vector<int> replicas;
  for (int r = 0; logical_core >= 0 && logical_core < num_cores_per_replica() && r < num_replicas();
       ++r)
    if (topology_.task_ordinal_at_coordinates(coordinates(r, logical_core)) == task_id)
      replicas.push_back(r);
  if (replicas.empty())
    fail<InvalidArgumentError>(
        "[{}] Can not find any replica in task: {} contains logical_core: {}", kAssignment, task_id,
        logical_core);
  return replicas;
}

}  // namespace tandem::distribute
