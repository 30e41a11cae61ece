// Which device an eager operation runs on.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "op/op.h"

namespace tandem {

// The device for `op`: where its mutated input is; else where the thread's device scope says; else
// (metadata and views) where its input is; else GPU:0 if there is one and the operation has a kernel
// for it; else CPU:0. Throws InvalidArgumentError "Cannot assign a device for operation ..." when the
// scope's device does not exist or has no kernel and soft placement is off.
Device& place(const OpDef& op, std::span<const Tensor* const> inputs);
// Where a new tensor that no operation makes (a constant) lives.
Device& place_constant(std::string_view what);

// A device by any name that users write. Throws InvalidArgumentError naming the devices there are.
Device& resolve_device(std::string_view name, std::string_view for_whom);

// Puts the calling thread on one device while it lives: DeviceScope for a Device that is at hand.
class OnDevice {
 public:
  explicit OnDevice(Device& device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const void* previous_;
  alignas(8) unsigned char scope_[16];
};

}  // namespace tandem
