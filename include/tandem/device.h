// Where operations run.
#pragma once

#include <memory>
#include <string_view>

namespace tandem {

// Operations that this thread runs while the scope lives go to the device of that name. Names may
// be partial ("/gpu:1", "GPU:1", "/device:GPU:*", "/job:localhost"); nested scopes merge field by
// field, the inner one winning. An empty name resets to the default placement. Throws
// InvalidArgumentError when the name does not parse; a device that does not exist is reported by
// the operation that wants to run there.
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

// Whether an operation asked onto a device that does not exist, or that has no kernel for it, runs
// on another one instead (on by default). May change at any time.
void set_soft_device_placement(bool enabled);
bool get_soft_device_placement();

// Blocks until everything enqueued on every device is done; throws what failed there.
void synchronize();

namespace debugging {
// Writes "Executing op MatMul in device /job:..." to stderr for every operation that runs.
void set_log_device_placement(bool enabled);
bool get_log_device_placement();
}  // namespace debugging

}  // namespace tandem
