// Device memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/scoped.h"

namespace tandem {

// The purpose of an allocation, for statistics.
enum class MemoryTag : std::uint8_t {
  kWeights,      // variables except those of an optimizer
  kActivations,  // results of operations
  kGradients,    // results of backward passes
  kOptimizer,    // an optimizer's slots and counters
  kWorkspace,    // temporary memory of a kernel or a collective
  kOther         // data and constants
};
inline constexpr int kMemoryTags = 6;
// "weights"
const char* name_of(MemoryTag tag);
// "12.5 MiB"
std::string mebibytes(std::int64_t bytes);

using BytesByTag = std::array<std::int64_t, kMemoryTags>;

struct AllocatorStats {
  std::int64_t num_allocs = 0;
  std::int64_t bytes_in_use = 0;  // allocated, after rounding
  std::int64_t peak_bytes_in_use = 0;
  std::int64_t largest_alloc_size = 0;
  std::int64_t bytes_limit = 0;         // 0 if there is no limit
  std::int64_t bytes_reserved = 0;      // taken from the device
  std::int64_t largest_free_block = 0;  // computed when the statistics are read
  BytesByTag bytes_by_tag{};            // their sum is bytes_in_use
  BytesByTag peak_by_tag{};             // of each tag by itself, at different times

  std::int64_t bytes_of(MemoryTag tag) const { return bytes_by_tag[static_cast<std::size_t>(tag)]; }
  std::int64_t peak_of(MemoryTag tag) const { return peak_by_tag[static_cast<std::size_t>(tag)]; }
  // (free - largest free chunk) / free; 0 if nothing is free.
  double fragmentation() const {
    const std::int64_t free = bytes_reserved - bytes_in_use;
    return free > 0 ? static_cast<double>(free - largest_free_block) / static_cast<double>(free)
                    : 0.0;
  }
};

// Thread-safe. Memory is stream-ordered: a freed block may be reused at once by work that is
// enqueued on the same device's stream later than the work that used it before.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual const std::string& name() const = 0;
  // Memory aligned to 256 bytes. Null if `bytes` is 0, or if nothing was free within the
  // allocator's waiting time.
  virtual void* allocate(std::size_t bytes) = 0;
  // For callers that can do with less memory: does not wait. A failure logs a warning that more
  // memory might be faster, at most ten times per allocator.
  virtual void* try_allocate(std::size_t bytes) = 0;
  virtual void deallocate(void* memory) noexcept = 0;
  virtual AllocatorStats stats() const = 0;
  virtual void reset_peak() = 0;
  // Returns completely free regions to the device, and reports their total bytes.
  virtual std::size_t trim() = 0;
};

// The tag of the calling thread's allocations: kActivations, unless a Scoped sets another one.
extern constinit thread_local MemoryTag memory_tag;

}  // namespace tandem
