/// @file
/// Placement of operations on devices.
#pragma once

#include <memory>
#include <string_view>

namespace tandem {

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
