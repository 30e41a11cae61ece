// Best fit with coalescing: the allocator of every device, over the regions that a backend gives it.
// Behaviour and constants are those of TensorFlow's BFC allocator (256-byte units, 21 bins, regions
// that double from 2 MiB, the split rule with its 128 MiB, one back-off by 0.9, 10 s of waiting).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/allocator.h"

namespace tandem {

// Where regions come from.
class RegionSource {
 public:
  virtual ~RegionSource() = default;
  // At least 256-byte aligned memory, or null when refused.
  virtual void* take(std::size_t bytes) = 0;
  virtual void give_back(void* region, std::size_t bytes) noexcept = 0;
};

struct BfcOptions {
  std::string name;                // "GPU_0_bfc"
  std::size_t total_bytes = 0;     // the limit
  bool allow_growth = true;        // false: the first extension takes the whole limit
  bool garbage_collection = true;  // give back regions that are wholly free before running out
  std::chrono::milliseconds retry_limit{10'000};  // how long to wait for others to free memory
};

class BfcAllocator final : public Allocator {
 public:
  BfcAllocator(BfcOptions options, std::unique_ptr<RegionSource> source);
  ~BfcAllocator() override;

  const std::string& name() const override { return options_.name; }
  void* allocate(std::size_t bytes) override;
  void deallocate(void* memory) noexcept override;
  AllocatorStats stats() const override;
  void reset_peak() override;
  std::size_t trim() override;

 private:
  BfcOptions options_;
  std::unique_ptr<RegionSource> source_;
};

}  // namespace tandem
