#include "op/scratch_scope.h"

#include <algorithm>
#include <utility>

#include "core/status.h"

namespace tandem {
namespace {

constexpr std::size_t kScratchAlignment = 256;

thread_local ScratchScope* innermost_scratch = nullptr;

}  // namespace

ScratchScope::ScratchScope(void* memory, std::size_t bytes, bool measures)
    : previous_(std::exchange(innermost_scratch, this)),
      memory_(static_cast<std::byte*>(memory)),
      bytes_(bytes),
      measures_(measures) {}

ScratchScope::~ScratchScope() { innermost_scratch = previous_; }

ScratchScope* ScratchScope::current() { return innermost_scratch; }

void* ScratchScope::take(std::size_t bytes) {
  const std::size_t at = taken_;
  taken_ += (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
  needed_ = std::max(needed_, taken_);
  if (measures_) return nullptr;
  if (taken_ > bytes_)
    fail<ResourceExhaustedError>("a workspace of {} bytes is too small for {} bytes", bytes_,
                                 taken_);
  return memory_ + at;
}

}  // namespace tandem
