#include <algorithm>
#include <climits>

#include "core/joined.h"
#include "core/status.h"
#include "distribute/proto/topology.pb.h"
#include "distribute/tpu_arrays.h"
#include "distribute/tpu_system.h"
#include "tandem/tpu_system.h"

namespace tandem::distribute {
namespace {

constexpr const char* kTopology = "Topology";

template <class Numbers>
bool all_positive(const Numbers& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](int n) { return n > 0; });
}

// The cores of a mesh, at most kMaxTpuCores.
std::size_t num_cores(const std::array<int, 4>& mesh_shape) {
  std::size_t cores = 1;
  for (const int size : mesh_shape) {
    cores *= static_cast<std::size_t>(size);  // at most 2^20 * 2^31
    if (cores > kMaxTpuCores)
      fail<InvalidArgumentError>("[{}] expected a mesh of at most {} cores, got `mesh_shape={}`",
                                 kTopology, kMaxTpuCores, numpy_text(mesh_shape));
  }
  return cores;
}

void check_devices_per_task(const std::vector<std::vector<TPUCoordinates>>& coordinates) {
  for (std::size_t task = 1; task < coordinates.size(); ++task)
    if (coordinates[task].size() != coordinates[0].size())
      fail<InvalidArgumentError>(
          "[{}] `device_coordinates` must be a rank 3 int32 array with minor dimension equal to "
          "the `mesh_shape` rank, got {} devices of task 0 and {} of task {}",
          kTopology, coordinates[0].size(), coordinates[task].size(), task);
}

bool is_within(const TPUCoordinates& coordinates, const std::array<int, 4>& mesh_shape) {
  for (std::size_t axis = 0; axis < mesh_shape.size(); ++axis)
    if (coordinates[axis] < 0 || coordinates[axis] >= mesh_shape[axis]) return false;
  return true;
}

void check_device(const TPUCoordinates& coordinates, const std::array<int, 4>& mesh_shape) {
  if (std::any_of(coordinates.begin(), coordinates.end(), [](int n) { return n < 0; }))
    fail<InvalidArgumentError>("[{}] All values in `device_coordinates` must be >= 0, got {}",
                               kTopology, numpy_text(coordinates));
  if (!is_within(coordinates, mesh_shape))
    fail<InvalidArgumentError>("[{}] expected `device_coordinates` within `mesh_shape={}`, got {}",
                               kTopology, numpy_text(mesh_shape), numpy_text(coordinates));
}

// Checks the counts of a message; the constructor checks the coordinates.
void check_message(const proto::TopologyProto& message) {
  if (message.mesh_shape_size() != 4 || !all_positive(message.mesh_shape()))
    fail<InvalidArgumentError>(
        "[{}] `mesh_shape` must be a vector of size 4 with positive entries; got {}", kTopology,
        numpy_text(message.mesh_shape()));
  const std::int64_t tasks = message.num_tasks(), devices = message.num_tpu_devices_per_task();
  if (tasks < 0)
    fail<InvalidArgumentError>("[{}] `num_tasks` must be >= 0; got {}", kTopology, tasks);
  if (devices < 0)
    fail<InvalidArgumentError>("[{}] `num_tpu_devices_per_task` must be >= 0; got {}", kTopology,
                               devices);
  const std::int64_t rows = message.device_coordinates_size() / 4;
  if (message.device_coordinates_size() % 4 != 0 || tasks * devices != rows)
    fail<InvalidArgumentError>(
        "[{}] `device_coordinates` must have shape num_tasks ({}) * num_tpu_devices_per_task ({}) "
        "* len(mesh_shape) ([{}]); got shape {}",
        kTopology, tasks, devices, joined(message.mesh_shape(), ", "),
        message.device_coordinates_size());
  if (devices == 0 && tasks > static_cast<std::int64_t>(kMaxTpuCores))
    fail<InvalidArgumentError>("[{}] expected at most {} tasks, got `num_tasks` {}", kTopology,
                               kMaxTpuCores, tasks);
}

std::string in_job(const std::string& job, int task) {
  return job.empty() ? fmt::format("/task:{}", task) : fmt::format("/job:{}/task:{}", job, task);
}

}  // namespace

Topology::Topology(const std::array<int, 4>& mesh_shape,
                   std::vector<std::vector<TPUCoordinates>> device_coordinates)
    : mesh_shape_(mesh_shape), device_coordinates_(std::move(device_coordinates)) {
  if (!all_positive(mesh_shape_))
    fail<InvalidArgumentError>(
        "[{}] `mesh_shape` must be a sequence of 4 positive entries; got `mesh_shape={}`",
        kTopology, numpy_text(mesh_shape_));
  check_devices_per_task(device_coordinates_);
  devices_.resize(num_cores(mesh_shape_));
  for (int task = 0; task < num_tasks(); ++task)
    for (int ordinal = 0; ordinal < num_tpus_per_task(); ++ordinal) {
      const TPUCoordinates& coordinates =
          device_coordinates_[static_cast<std::size_t>(task)][static_cast<std::size_t>(ordinal)];
      check_device(coordinates, mesh_shape_);
      Device& device = devices_[index(coordinates)];
      if (device.task >= 0)
        fail<InvalidArgumentError>(
            "[{}] expected one device at {}, got device {} of task {} and device {} of task {}",
            kTopology, numpy_text(coordinates), device.ordinal, device.task, ordinal, task);
      device = {.task = task, .ordinal = ordinal};
    }
}

Topology Topology::parse(std::string_view serialized) {
  proto::TopologyProto message;
  if (serialized.size() > INT_MAX ||
      !message.ParseFromArray(serialized.data(), static_cast<int>(serialized.size())))
    fail<InvalidArgumentError>(
        "[{}] expected a serialized TopologyProto, got {} bytes of another form", kTopology,
        serialized.size());
  check_message(message);
  std::array<int, 4> mesh_shape{};
  std::copy(message.mesh_shape().begin(), message.mesh_shape().end(), mesh_shape.begin());
  std::vector<std::vector<TPUCoordinates>> devices(
      static_cast<std::size_t>(message.num_tasks()),
      std::vector<TPUCoordinates>(static_cast<std::size_t>(message.num_tpu_devices_per_task())));
  auto next = message.device_coordinates().begin();
  for (auto& task : devices)
    for (TPUCoordinates& coordinates : task)
      for (int& coordinate : coordinates) coordinate = *next++;
  return {mesh_shape, std::move(devices)};
}

std::string Topology::serialized() const {
  proto::TopologyProto message;
  message.mutable_mesh_shape()->Add(mesh_shape_.begin(), mesh_shape_.end());
  message.set_num_tasks(num_tasks());
  message.set_num_tpu_devices_per_task(num_tpus_per_task());
  for (const auto& task : device_coordinates_)
    for (const TPUCoordinates& coordinates : task)
      message.mutable_device_coordinates()->Add(coordinates.begin(), coordinates.end());
  return message.SerializeAsString();
}

std::vector<TPUCoordinates> Topology::missing_devices() const {
  std::vector<TPUCoordinates> missing;
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i].task >= 0) continue;
    TPUCoordinates& coordinates = missing.emplace_back();
    std::size_t rest = i;
    for (std::size_t axis = mesh_shape_.size(); axis-- > 0;) {
      const auto size = static_cast<std::size_t>(mesh_shape_[axis]);
      coordinates[axis] = static_cast<int>(rest % size);
      rest /= size;
    }
  }
  return missing;
}

std::size_t Topology::index(const TPUCoordinates& coordinates) const {
  if (!is_within(coordinates, mesh_shape_))
    fail<OutOfRangeError>("[{}] expected coordinates within `mesh_shape={}`, got {}", kTopology,
                          numpy_text(mesh_shape_), numpy_text(coordinates));
  std::size_t index = 0;
  for (std::size_t axis = 0; axis < mesh_shape_.size(); ++axis)
    index = index * static_cast<std::size_t>(mesh_shape_[axis]) +
            static_cast<std::size_t>(coordinates[axis]);
  return index;
}

const Topology::Device& Topology::device_at(const TPUCoordinates& coordinates) const {
  const Device& device = devices_[index(coordinates)];
  if (device.task < 0)
    fail<NotFoundError>("[{}] the device at {} is missing", kTopology, numpy_text(coordinates));
  return device;
}

int Topology::task_ordinal_at_coordinates(const TPUCoordinates& coordinates) const {
  return devices_[index(coordinates)].task;
}

int Topology::tpu_device_ordinal_at_coordinates(const TPUCoordinates& coordinates) const {
  return devices_[index(coordinates)].ordinal;
}

std::string Topology::cpu_device_name_at_coordinates(const TPUCoordinates& coordinates,
                                                     const std::string& job) const {
  return in_job(job, device_at(coordinates).task) + "/device:CPU:0";
}

std::string Topology::tpu_device_name_at_coordinates(const TPUCoordinates& coordinates,
                                                     const std::string& job) const {
  const Device& device = device_at(coordinates);
  return fmt::format("{}/device:TPU:{}", in_job(job, device.task), device.ordinal);
}

}  // namespace tandem::distribute
