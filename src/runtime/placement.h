// Which device an eager operation runs on.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "graph/graph.h"
#include "op/record.h"

namespace tandem {

// The device for `op`: where its mutated input is; else where the thread's device scope says; else
// (metadata and views) where its input is; else GPU:0 if there is one and the operation has a
// kernel for it; else CPU:0. Throws InvalidArgumentError "Cannot assign a device for operation ..."
// when the scope's device does not exist or has no kernel and soft placement is off.
Device& place(const OpDef& op, std::span<const Tensor* const> inputs);
// Where a new tensor that no operation makes (a constant) lives.
Device& place_constant(std::string_view what);

// Writes "Executing op NAME in device DEVICE" when the placement log is on.
void log_execution(std::string_view op, const Device& device);
// The same for a call of a traced function, "__inference_NAME_NUMBER", on the device where
// operations of this thread go by themselves.
void log_call(std::string_view function, std::size_t number);

// A device by any name that users write. Throws InvalidArgumentError naming the devices there are.
Device& resolve_device(std::string_view name, std::string_view for_whom);

// What the calling thread's innermost device scope asks for.
struct PlacementFrame {
  const DeviceName* name = nullptr;  // merged with the outer scopes'
  std::string_view text;             // as the user wrote it, for messages
  mutable Device* device = nullptr;  // the first device that matches, once looked up
  mutable bool resolved = false;
};
extern constinit thread_local const PlacementFrame* placement_frame;  // null: default placement

// Puts the calling thread on one device while it lives: DeviceScope for a Device that is at hand.
class OnDevice {
 public:
  explicit OnDevice(Device& device)
      : frame_{&device.name(), device.full_name(), &device, true}, previous_(placement_frame) {
    placement_frame = &frame_;
  }
  ~OnDevice() { placement_frame = previous_; }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  PlacementFrame frame_;
  const PlacementFrame* previous_;
};

// Puts the calling thread where a tensor is or a recorded operation ran; for symbolic tensors and
// traced operations: where they asked to be, which is anywhere when they did not.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(const Tensor& tensor);
  explicit OnDeviceOf(const OpNode& node);
  ~OnDeviceOf() { placement_frame = previous_; }
  OnDeviceOf(const OnDeviceOf&) = delete;
  OnDeviceOf& operator=(const OnDeviceOf&) = delete;

 private:
  void enter(Device& device);
  void enter(const DeviceName& requested, std::string_view text);

  PlacementFrame frame_;
  const PlacementFrame* previous_ = placement_frame;
};

// The calling thread's innermost device scope as a node's request.
NodeOptions node_options(std::string_view name = {});

}  // namespace tandem
