// Where operations run.
#pragma once

#include <memory>
#include <string_view>

namespace tandem {

// Operations that this thread runs while the scope lives go to the device of that name. Names may
// be partial ("/gpu:1", "GPU:1", "/device:GPU:*", "/job:localhost"); nested scopes merge field by
// field, the inner one winning. An empty name resets to the default placement. Throws
// InvalidArgumentError when the name does not parse or its type is none of CPU, GPU and TPU; a
// device that does not exist is reported by the operation that wants to run there.
class DeviceScope {
 public:
  explicit DeviceScope(std::string_view device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

// Blocks until everything enqueued on every device is done; throws what failed there.
void synchronize();

namespace debugging {
/// Writes "Executing op MatMul in device /job:..." to stderr for each operation that runs by
/// itself, "Executing op _EagerConst in device ..." for each constant, and
/// "Executing op __inference_NAME_N in device ..." for each call of a traced function (trace N of
/// it; NAME is "fit" for a step of fit()). Where its operations run is written to stdout and to the
/// log when a program is made of them: "MatMul: (MatMul): /job:...". As TensorFlow does.
void set_log_device_placement(bool enabled);
bool get_log_device_placement();
}  // namespace debugging

}  // namespace tandem
