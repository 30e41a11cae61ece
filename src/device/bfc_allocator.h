// Best fit with coalescing: the allocator of every device, on regions from the backend. Behaviour
// and constants are those of TensorFlow's BFC allocator: 256-byte units, 21 bins, regions that
// double from 2 MiB, the split rule with its 128 MiB, one back-off by 0.9, 10 s of waiting. In
// addition, a request that follows the freeing of a chunk of its size takes that chunk, wherever it
// lies: most requests do.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/allocator.h"
#include "device/bfc_chunks.h"
#include "device/region_source.h"

namespace tandem {

struct BfcOptions {
  std::string name;                // "GPU_0_bfc"
  std::size_t total_bytes = 0;     // the limit
  bool allow_growth = true;        // false: the first extension takes the whole limit
  bool garbage_collection = true;  // release completely free regions before running out
  // how long to wait for other threads to free memory
  std::chrono::milliseconds retry_limit{10'000};
  // Called without the lock when memory has run out: frees idle memory and finishes deferred work,
  // which may hold memory. May be empty.
  std::function<void()> drain = nullptr;
  // The thread that runs deferred work; `drain` waits for what it will free.
  std::thread::id drained_thread = {};
  // With AddressSanitizer, makes any use of freed memory an error. Only for memory that host code
  // alone uses, and not after it is freed.
  bool poison_freed = false;
};

// If a request cannot be met now, allocate() waits up to retry_limit for other threads to free
// memory. It does not wait if that cannot help: the request exceeds the limit, nothing is in use,
// or no thread but the caller (and drained_thread) has ever used the allocator.
class BfcAllocator final : public Allocator {
 public:
  BfcAllocator(BfcOptions options, std::unique_ptr<RegionSource> source);
  ~BfcAllocator() override;  // returns every region to the source, also those in use

  const std::string& name() const override { return options_.name; }
  void* allocate(std::size_t bytes) override;
  void* try_allocate(std::size_t bytes) override;
  void deallocate(void* memory) noexcept override;
  AllocatorStats stats() const override;
  void reset_peak() override;
  std::size_t trim() override;

 private:
  static constexpr int kBins = 21;

  struct Region {
    char* base = nullptr;
    std::size_t size = 0;
    // of the chunk that starts at each unit; its pages are allocated as used
    bfc::Handle* handles = nullptr;
  };

  std::unique_lock<std::mutex> lock() const;
  void note_thread();
  void* hand_out(void* memory, std::size_t bytes) const;
  bool waiting_can_help(std::size_t rounded) const;
  void* wait_for_memory(std::unique_lock<std::mutex>& held, std::size_t rounded);

  void* allocate_locked(std::size_t rounded);
  void* take_free_chunk(std::size_t rounded);
  void* use(bfc::Handle handle);
  void settle();
  void split(bfc::Handle handle, std::size_t bytes);
  bfc::Handle merge(bfc::Handle first, bfc::Handle second);
  void insert_free(bfc::Handle handle);
  void erase_free(bfc::Handle handle);

  bool extend(std::size_t rounded);
  bool collect_garbage(std::size_t rounded);
  std::size_t give_back_free_regions();
  void give_back(Region& region);
  std::size_t largest_free_block() const;
  bool wholly_free(const Region& region) const;
  Region& region_of(const void* memory);
  bfc::Handle& handle_at(const void* memory);

  const BfcOptions options_;
  const std::unique_ptr<RegionSource> source_;

  mutable std::mutex mutex_;
  std::condition_variable memory_freed_;
  int waiting_ = 0;
  std::thread::id first_thread_;
  bool several_threads_ = false;

  bfc::ChunkTable chunks_;
  std::array<bfc::ChunkTree, kBins> bins_;
  std::uint32_t bins_in_use_ = 0;  // a bit for each bin that is not empty
  // The chunk that was freed last, in no bin and not merged with its neighbours yet, or kNone: a
  // request of its size takes it as it is.
  bfc::Handle freed_ = bfc::kNone;
  std::vector<Region> regions_;  // ordered by address
  std::size_t last_region_ = 0;  // the result of the last look-up
  std::size_t next_region_bytes_;
  bool backed_off_ = false;
  int warnings_ = 0;  // logged by try_allocate()
  AllocatorStats stats_;
};

}  // namespace tandem
