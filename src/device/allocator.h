// Memory of a device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tandem {

// What memory is used for, for accounting. A thread sets the tag of its allocations with a scope.
enum class MemoryTag : std::uint8_t {
  kOther,
  kWeights,
  kActivations,
  kGradients,
  kOptimizer,
  kWorkspace
};
inline constexpr int kMemoryTags = 6;

struct AllocatorStats {
  std::int64_t num_allocs = 0;
  std::int64_t bytes_in_use = 0;  // handed out, after rounding
  std::int64_t peak_bytes_in_use = 0;
  std::int64_t largest_alloc_size = 0;
  std::int64_t bytes_limit = 0;         // 0: none
  std::int64_t bytes_reserved = 0;      // taken from the device
  std::int64_t largest_free_block = 0;  // computed when the statistics are read
  std::array<std::int64_t, kMemoryTags> bytes_by_tag{};
  // (free - largest free chunk) / free, 0 when nothing is free.
  double fragmentation() const {
    const std::int64_t free = bytes_reserved - bytes_in_use;
    return free > 0 ? static_cast<double>(free - largest_free_block) / static_cast<double>(free)
                    : 0.0;
  }
};

// Thread-safe. Memory is stream-ordered: a block given back may be handed out again at once, to
// work that is enqueued on the same device's stream later than the work that used it before.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual const std::string& name() const = 0;
  // 256-byte aligned memory, or null when `bytes` is 0 or nothing was free within the allocator's
  // waiting time.
  virtual void* allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory) noexcept = 0;
  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
  // Gives regions that are wholly free back to the device; returns the bytes given back.
  virtual std::size_t trim() = 0;
};

// Tags the allocations of the calling thread while it lives.
class MemoryTagScope {
 public:
  explicit MemoryTagScope(MemoryTag tag) : previous_(current()) { current() = tag; }
  ~MemoryTagScope() { current() = previous_; }
  MemoryTagScope(const MemoryTagScope&) = delete;
  MemoryTagScope& operator=(const MemoryTagScope&) = delete;
  static MemoryTag& current() {
    thread_local MemoryTag tag = MemoryTag::kOther;
    return tag;
  }

 private:
  MemoryTag previous_;
};

}  // namespace tandem
