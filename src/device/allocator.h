// Memory of a device.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace tandem {

// What memory is used for, for accounting. A thread sets the tag of its allocations with a scope;
// without one they are activations, which is what operations compute.
enum class MemoryTag : std::uint8_t {
  kWeights,      // variables, but an optimizer's
  kActivations,  // what operations compute
  kGradients,    // what backward passes compute
  kOptimizer,    // an optimizer's slots and counts
  kWorkspace,    // what a kernel or a collective needs while it runs
  kOther         // data and constants
};
inline constexpr int kMemoryTags = 6;
// "weights"
const char* name_of(MemoryTag tag);

using BytesByTag = std::array<std::int64_t, kMemoryTags>;

struct AllocatorStats {
  std::int64_t num_allocs = 0;
  std::int64_t bytes_in_use = 0;  // handed out, after rounding
  std::int64_t peak_bytes_in_use = 0;
  std::int64_t largest_alloc_size = 0;
  std::int64_t bytes_limit = 0;         // 0: none
  std::int64_t bytes_reserved = 0;      // taken from the device
  std::int64_t largest_free_block = 0;  // computed when the statistics are read
  BytesByTag bytes_by_tag{};            // their sum is bytes_in_use
  BytesByTag peak_by_tag{};             // of each by itself; the times differ

  std::int64_t bytes_of(MemoryTag tag) const { return bytes_by_tag[static_cast<std::size_t>(tag)]; }
  std::int64_t peak_of(MemoryTag tag) const { return peak_by_tag[static_cast<std::size_t>(tag)]; }
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
  // The same for a caller that can do with less: waits for nothing, and a failure is a warning that
  // more memory might be faster, at most ten times in the allocator's life.
  virtual void* try_allocate(std::size_t bytes) = 0;
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
    thread_local MemoryTag tag = MemoryTag::kActivations;
    return tag;
  }

 private:
  MemoryTag previous_;
};

}  // namespace tandem
