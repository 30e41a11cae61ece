#include "op/renewed_values.h"

#include <utility>

#include "core/status.h"

namespace tandem {
namespace {

constexpr std::size_t kAlignment = 16;

thread_local RenewalScope* innermost = nullptr;

}  // namespace

RenewalScope::RenewalScope(const void* memory, std::size_t bytes, bool measures)
    : previous_(std::exchange(innermost, this)),
      memory_(static_cast<const std::byte*>(memory)),
      bytes_(bytes),
      measures_(measures) {}

RenewalScope::~RenewalScope() { innermost = previous_; }

RenewalScope* RenewalScope::current() { return innermost; }

void RenewalScope::begin_kernel(bool renewed) {
  renewed_ = renewed;
  asked_ = false;
}

const void* RenewalScope::place(const void* attrs, RenewedValue::Compute compute,
                                std::size_t bytes) {
  asked_ = true;
  if (!renewed_) return nullptr;
  const std::size_t at = needed_;
  needed_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (measures_) return nullptr;
  if (needed_ > bytes_)
    fail<ResourceExhaustedError>("{} bytes were set apart for attributes that take {}", bytes_,
                                 needed_);
  values_.push_back({attrs, compute, at});
  return memory_ + at;
}

}  // namespace tandem
