/// @file
/// Placement of operations on devices.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

namespace tandem {

/// The types of devices.
enum class DeviceType : std::uint8_t {
  kCpu,         ///< a CPU
  kGpu,         ///< a GPU
  kTpu,         ///< a TPU
  CPU = kCpu,   ///< as kCpu
  CUDA = kGpu,  ///< as kGpu
};

/// The name of a device as a value. Usable where a device is named: x.to(device), DeviceScope, the
/// lists of strategies. The device need not exist. As torch.device.
class Device {
 public:
  /// A name such as "GPU:0", "/gpu:0" or "/job:localhost/device:GPU:0", and PyTorch's "cuda:0",
  /// "cuda" and "cpu"; a type alone means its first device. Throws InvalidArgumentError if the name
  /// cannot be parsed or its type is not CPU, GPU or TPU.
  template <std::convertible_to<std::string_view> Name>
  requires(!std::same_as<Name, Device>) Device(const Name& name)  // NOLINT: a name stands for it
      : Device(std::string_view(name), Parsed()) {}
  /// Device `index` of this type. Throws InvalidArgumentError for a negative index.
  Device(DeviceType type, int index = 0);  // NOLINT: a type stands for its first device

  /// "/gpu:0"; in a cluster with the job and the task.
  const std::string& name() const { return name_; }
  const std::string& str() const { return name_; }  ///< as name()
  DeviceType type() const { return type_; }         ///< type
  int index() const { return index_; }              ///< number among the devices of its type
  bool is_cpu() const { return type_ == DeviceType::kCpu; }   ///< whether it is a CPU
  bool is_gpu() const { return type_ == DeviceType::kGpu; }   ///< whether it is a GPU
  bool is_cuda() const { return type_ == DeviceType::kGpu; }  ///< as is_gpu()
  /// @{
  /// The name.
  operator std::string_view() const { return name_; }  // NOLINT: usable as a name
  operator std::string() const { return name_; }       // NOLINT
  /// @}
  /// Whether both name the same device. Also with a name, as in x.device() == device.
  friend bool operator==(const Device& a, const Device& b) { return a.name_ == b.name_; }

 private:
  struct Parsed {};
  Device(std::string_view name, Parsed);

  std::string name_;
  DeviceType type_ = DeviceType::kCpu;
  int index_ = 0;
};

/// Prints the name.
std::ostream& operator<<(std::ostream& out, const Device& device);

/// Operations that this thread runs while the scope exists are placed on this device. As tf.device.
///
/// The name may be partial ("/gpu:1", "GPU:1", "/device:GPU:*", "/job:localhost"). Nested scopes
/// merge field by field; the inner scope has priority. An empty name restores the default
/// placement. Throws InvalidArgumentError if the name cannot be parsed or its type is not CPU, GPU
/// or TPU. If the device does not exist, the operation that is placed there throws.
class DeviceScope {
 public:
  /// Opens the scope.
  explicit DeviceScope(std::string_view device);
  /// Closes the scope.
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

/// The GPU of a thread. As torch.cuda.
namespace cuda {
/// Operations that the calling thread runs outside of device scopes are placed on this GPU from now
/// on, as in a DeviceScope that stays open. Throws InvalidArgumentError if the GPU does not exist,
/// and FailedPreconditionError inside a DeviceScope. As torch.cuda.set_device.
void set_device(int index);
/// The GPU of set_device(), or 0. As torch.cuda.current_device.
int current_device();
}  // namespace cuda

/// Blocks until all work enqueued on all devices is done; throws its errors. As
/// torch.cuda.synchronize.
void synchronize();

namespace debugging {
/// Logs the device of each operation. As tf.debugging.set_log_device_placement.
///
/// Writes to stderr "Executing op MatMul in device /job:..." for each eager operation, "Executing
/// op _EagerConst in device ..." for each constant, and "Executing op __inference_NAME_N in device
/// ..." for each call of a traced function (its trace N; NAME is "fit" for a step of fit()). When a
/// graph becomes a program, the devices of its operations are written to stdout and to the log:
/// "MatMul: (MatMul): /job:...".
void set_log_device_placement(bool enabled);
/// Returns the setting of set_log_device_placement().
bool get_log_device_placement();
}  // namespace debugging

}  // namespace tandem
