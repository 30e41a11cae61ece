/// @file
/// TPU systems: where TPUs are, how their cores are connected, and which cores a replica uses. As
/// tf.distribute.cluster_resolver.TPUClusterResolver and tf.tpu.experimental. docs/tpu.md.
/// @code
/// const td::distribute::Topology topology = td::tpu::initialize_tpu_system();
/// const auto assignment = td::distribute::DeviceAssignment::build(
///     topology, {.computation_shape = {1, 1, 1, 2}, .num_replicas = 4});
/// std::cout << assignment.tpu_device(0, 1) << '\n';  // /task:0/device:TPU:1
/// @endcode
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/errors.h"

namespace tandem::distribute {

/// Options of TPUClusterResolver.
struct TPUClusterResolverOptions {
  std::string zone{};               ///< of the TPU. Default: the one in TPU_CONFIG
  std::string project{};            ///< of the TPU. Default: the one in TPU_CONFIG
  std::string job_name = "worker";  ///< type of the TPU's tasks
  std::string coordinator_name{};   ///< type of the task that controls them. Default: none
  /// HOST:PORT of the coordinator. Needed with coordinator_name: Tandem starts no server for it.
  std::string coordinator_address{};
};

/// The name of a TPU system and the addresses of its tasks. A value. As
/// tf.distribute.cluster_resolver.TPUClusterResolver, without its requests to the metadata server
/// and to the Cloud TPU API: a name is not resolved to addresses.
///
/// Tandem runs on attached TPUs, those of a PJRT plug-in. A resolver of other TPUs has their name
/// and addresses, and initialize_tpu_system() refuses it.
class TPUClusterResolver {
 public:
  /// `tpu` is one of:
  /// - "local": the TPUs that are attached to this host.
  /// - "grpc://HOST:PORT", or several of these separated by commas: the tasks of a TPU. The default
  ///   port is 8470.
  /// - another text: the name of a TPU.
  /// - "": what the environment says: the value of KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS, else of
  ///   TPU_NAME, else "tpu_node_name" in the JSON object TPU_CONFIG, which may have "project" and
  ///   "zone", too.
  ///
  /// Throws InvalidArgumentError "Please provide a TPU Name to connect to." if the environment says
  /// nothing, for an invalid TPU_CONFIG or address, and for a coordinator without both name and
  /// address, or with the job's name.
  explicit TPUClusterResolver(const std::string& tpu = "",
                              const TPUClusterResolverOptions& options = {});
  /// Makes a resolver and initializes its system. Throws what both throw.
  static TPUClusterResolver connect(const std::string& tpu = "",
                                    const TPUClusterResolverOptions& options = {});

  /// "local", the addresses or the name.
  const std::string& tpu() const { return tpu_; }
  /// Whether the TPUs are attached to this host.
  bool is_local() const { return tpu_ == "local"; }
  /// Zone of the TPU. Empty if unknown.
  const std::string& zone() const { return options_.zone; }
  /// Project of the TPU. Empty if unknown.
  const std::string& project() const { return options_.project; }
  /// Type of the TPU's tasks.
  const std::string& task_type() const { return options_.job_name; }
  /// The index of the task that master() returns.
  int task_id() const { return 0; }
  /// The provider of the machines, which is never known.
  std::string environment() const { return ""; }

  /// The address HOST:PORT of each task, by type. Empty if is_local(). Throws InvalidArgumentError
  /// "Could not lookup TPU metadata from name ..." for a name.
  std::map<std::string, std::vector<std::string>> cluster_spec() const;
  /// "grpc://HOST:PORT" of task task_id(); "" if is_local(). Throws as cluster_spec() does.
  std::string master() const { return master(task_type(), task_id()); }
  /// The same, of another task. Throws InvalidArgumentError if it is not in the cluster.
  std::string master(const std::string& task_type, int task_id) const;
  /// As master().
  std::string get_master() const { return master(); }
  /// The number of cores per task: {{"TPU", 4}}. Initializes the devices. Throws UnimplementedError
  /// unless is_local().
  std::map<std::string, int> num_accelerators() const;

 private:
  std::string tpu_;
  TPUClusterResolverOptions options_;
};

/// A place in the mesh of TPU cores: x, y and z of the chip, and the core on the chip.
using TPUCoordinates = std::array<int, 4>;

/// Which core of a mesh is which device of which task. A value. As tf.tpu.experimental.Topology.
class Topology {
 public:
  /// `mesh_shape`: the number of cores along each axis. `device_coordinates`: by task, by device.
  ///
  /// Throws InvalidArgumentError, with TensorFlow's messages where it has one: if a size is not
  /// positive, if tasks have different numbers of devices, for coordinates outside of the mesh, for
  /// two devices at one place, and for a mesh of more than 2^20 cores.
  Topology(const std::array<int, 4>& mesh_shape,
           std::vector<std::vector<TPUCoordinates>> device_coordinates);
  /// Reads TensorFlow's TopologyProto. Throws InvalidArgumentError as the constructor does, and for
  /// bytes that are none.
  static Topology parse(std::string_view serialized);
  /// TensorFlow's TopologyProto.
  std::string serialized() const;

  /// The number of cores along each axis.
  const std::array<int, 4>& mesh_shape() const { return mesh_shape_; }
  /// The number of axes.
  int mesh_rank() const { return static_cast<int>(mesh_shape_.size()); }
  /// Coordinates of each device, by task, by device.
  const std::vector<std::vector<TPUCoordinates>>& device_coordinates() const {
    return device_coordinates_;
  }
  /// The coordinates without a device, in lexicographic order.
  std::vector<TPUCoordinates> missing_devices() const;
  /// The number of tasks.
  int num_tasks() const { return static_cast<int>(device_coordinates_.size()); }
  /// The number of devices of each task.
  int num_tpus_per_task() const {
    return device_coordinates_.empty() ? 0 : static_cast<int>(device_coordinates_[0].size());
  }

  /// The task of a core; -1 if there is no device. As all methods with coordinates it throws
  /// OutOfRangeError outside of the mesh.
  int task_ordinal_at_coordinates(const TPUCoordinates& coordinates) const;
  /// The number of the device in its task; -1 if there is none.
  int tpu_device_ordinal_at_coordinates(const TPUCoordinates& coordinates) const;
  /// "/job:JOB/task:0/device:CPU:0": the host of a core; "/task:..." if `job` is empty. Throws
  /// NotFoundError if there is no device.
  std::string cpu_device_name_at_coordinates(const TPUCoordinates& coordinates,
                                             const std::string& job = "") const;
  /// "/job:JOB/task:0/device:TPU:3": the device of a core; "/task:..." if `job` is empty. Throws
  /// NotFoundError if there is no device.
  std::string tpu_device_name_at_coordinates(const TPUCoordinates& coordinates,
                                             const std::string& job = "") const;

 private:
  struct Device {
    int task = -1, ordinal = -1;
  };
  std::size_t index(const TPUCoordinates& coordinates) const;
  const Device& device_at(const TPUCoordinates& coordinates) const;

  std::array<int, 4> mesh_shape_;
  std::vector<std::vector<TPUCoordinates>> device_coordinates_;
  std::vector<Device> devices_;  // of each core of the mesh, in row-major order
};

/// How DeviceAssignment::build() orders cores. As tf.tpu.experimental.DeviceOrderMode.
enum class DeviceOrderMode : std::uint8_t {
  kAuto,  ///< rings where that is possible
  kRing,  ///< replicas, and the cores of a replica, form rings
  kMesh,  ///< they form meshes
};

/// Options of DeviceAssignment::build().
struct DeviceAssignmentOptions {
  std::array<int, 4> computation_shape = {1, 1, 1, 1};   ///< block of cores of one replica
  std::array<int, 4> computation_stride = {1, 1, 1, 1};  ///< distance of its cores along each axis
  int num_replicas = 1;                                  ///< number of replicas
  DeviceOrderMode device_order_mode = DeviceOrderMode::kAuto;  ///< order of cores
};

/// The cores that each replica uses. A replica's cores are numbered: logical core 0, 1 and so on. A
/// value. As tf.tpu.experimental.DeviceAssignment.
class DeviceAssignment {
 public:
  /// `core_assignment`: the coordinates of each core, by replica, by logical core.
  ///
  /// Throws InvalidArgumentError if replicas have different numbers of cores, or none;
  /// OutOfRangeError for coordinates outside of the mesh, and NotFoundError for a missing device.
  DeviceAssignment(Topology topology, std::vector<std::vector<TPUCoordinates>> core_assignment);
  /// Places replicas as TensorFlow does: in blocks that are close to each other. If devices are
  /// missing, replicas take the devices in the order of the tasks.
  ///
  /// Throws InvalidArgumentError, with TensorFlow's messages where it has one: for numbers that are
  /// not positive, for replicas that do not fit, for kRing unless the replicas fill the mesh, take
  /// all cores of each chip and have no stride, and for a stride if devices are missing.
  static DeviceAssignment build(const Topology& topology,
                                const DeviceAssignmentOptions& options = {});

  /// The topology of the cores.
  const Topology& topology() const { return topology_; }
  /// The coordinates of each core, by replica, by logical core.
  const std::vector<std::vector<TPUCoordinates>>& core_assignment() const {
    return core_assignment_;
  }
  /// The number of replicas.
  int num_replicas() const { return static_cast<int>(core_assignment_.size()); }
  /// The number of cores of each replica.
  int num_cores_per_replica() const { return static_cast<int>(core_assignment_[0].size()); }

  /// The place of a replica's core. As all methods with a replica it throws OutOfRangeError for one
  /// that does not exist.
  const TPUCoordinates& coordinates(int replica, int logical_core) const;
  /// The number of the core's device in its task.
  int tpu_ordinal(int replica = 0, int logical_core = 0) const;
  /// The host of the core: "/job:JOB/task:0/device:CPU:0"; "/task:..." if `job` is empty.
  std::string host_device(int replica = 0, int logical_core = 0, const std::string& job = "") const;
  /// The device of the core: "/job:JOB/task:0/device:TPU:3"; "/task:..." if `job` is empty.
  std::string tpu_device(int replica = 0, int logical_core = 0, const std::string& job = "") const;
  /// The replicas, in ascending order, whose core `logical_core` is a device of the task. Throws
  /// InvalidArgumentError "Can not find any replica in task: ..." if there are none.
  std::vector<int> lookup_replicas(int task_id, int logical_core) const;

 private:
  Topology topology_;
  std::vector<std::vector<TPUCoordinates>> core_assignment_;
};

}  // namespace tandem::distribute

/// Functions for the TPU system as a whole. As tf.tpu.experimental.
namespace tandem::tpu {

/// Initializes the devices, if they are not, and returns the topology of the attached TPUs. The
/// mesh begins at their smallest coordinates. It is a line, {n, 1, 1, 1}, if the plug-in tells no
/// coordinates. As tf.tpu.experimental.initialize_tpu_system.
///
/// `resolver`: the system. Default: the one that the environment names (TPUClusterResolver), else
/// "local". A second call warns as TensorFlow does, but nothing is lost.
///
/// Throws NotFoundError "TPUs not found in the cluster. Failed in initialization: ..." if no TPU is
/// attached, UnimplementedError for a system that is not local, and RuntimeError in a traced
/// function.
distribute::Topology initialize_tpu_system(
    const std::optional<distribute::TPUClusterResolver>& resolver = {});

/// Forgets that the system was initialized; warns if it was not. The devices live as long as the
/// process, with all variables. Parameters and errors as initialize_tpu_system(), but it needs no
/// TPU. As tf.tpu.experimental.shutdown_tpu_system.
void shutdown_tpu_system(const std::optional<distribute::TPUClusterResolver>& resolver = {});

}  // namespace tandem::tpu
