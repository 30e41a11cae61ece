#include "op/device_args.h"

#include <utility>

#include "core/status.h"

namespace tandem {
namespace {

constexpr std::size_t kAlignment = 16;

thread_local DeviceArgsScope* innermost = nullptr;

}  // namespace

DeviceArgsScope::DeviceArgsScope(const void* memory, std::size_t bytes, bool measures)
    : previous_(std::exchange(innermost, this)),
      memory_(static_cast<const std::byte*>(memory)),
      bytes_(bytes),
      measures_(measures) {}

DeviceArgsScope::~DeviceArgsScope() { innermost = previous_; }

DeviceArgsScope* DeviceArgsScope::current() { return innermost; }

void DeviceArgsScope::begin_kernel(bool changing) {
  changing_ = changing;
  placed_ = false;
}

const void* DeviceArgsScope::place(const void* attrs, DeviceArg::Compute compute,
                                   std::size_t bytes) {
  placed_ = true;
  if (!changing_) return nullptr;
  const std::size_t at = needed_;
  needed_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (measures_) return nullptr;
  if (needed_ > bytes_)
    fail<ResourceExhaustedError>(
        "{} bytes of device memory are too few for kernel arguments of {} bytes", bytes_, needed_);
  values_.push_back({attrs, compute, at});
  return memory_ + at;
}

}  // namespace tandem
