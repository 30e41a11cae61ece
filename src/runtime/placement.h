// Chooses the devices of eager operations.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "graph/graph.h"
#include "op/context.h"
#include "op/record.h"

namespace tandem {

// The device for `op`, by the first rule that applies: the device of its mutated input; the
// thread's device scope; for metadata and views, the device of the input; GPU:0, if it exists and
// the operation has a GPU kernel; CPU:0. Throws InvalidArgumentError "Cannot assign a device for
// operation ..." if the scope's device does not exist or has no kernel, and soft placement is off.
DeviceImpl& place(const OpDef& op, std::span<const Tensor* const> inputs);
// The device of a new constant.
DeviceImpl& place_constant(std::string_view what);

// Writes "Executing op NAME in device DEVICE" when the placement log is on.
void log_execution(std::string_view op, const DeviceImpl& device);
// The same for a call of a traced function, "__inference_NAME_NUMBER", on the thread's default
// device.
void log_call(std::string_view function, std::size_t number);

// Finds a device by any form of its name. Throws InvalidArgumentError, which lists the available
// devices.
DeviceImpl& resolve_device(std::string_view name, std::string_view for_whom);

// The request of the calling thread's innermost device scope.
struct PlacementFrame {
  const DeviceName* name = nullptr;      // merged with the names of outer scopes
  std::string_view text;                 // as the user wrote it, for messages
  mutable DeviceImpl* device = nullptr;  // the first device that matches, once looked up
  mutable bool resolved = false;
};

// Runs the calling thread's operations on a device while it lives. Like DeviceScope, for a
// DeviceImpl&.
class OnDevice {
 public:
  explicit OnDevice(DeviceImpl& device)
      : frame_{&device.name(), device.full_name(), &device, true} {}

 private:
  PlacementFrame frame_;
  Scoped<const PlacementFrame*> scope_{context.placement, &frame_};
};

// The same for the device of a tensor or of a recorded operation. For symbolic tensors and traced
// operations it is their requested device, or no request.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(const Tensor& tensor);
  explicit OnDeviceOf(const OpNode& node);

 private:
  void enter(DeviceImpl& device);
  void enter(const DeviceName& requested, std::string_view text);

  PlacementFrame frame_;
  Scoped<const PlacementFrame*> scope_{context.placement, context.placement};
};

// Node options with the request of the calling thread's innermost device scope.
NodeOptions node_options(std::string_view name = {});

}  // namespace tandem
