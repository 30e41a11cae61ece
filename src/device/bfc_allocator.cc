#include "device/bfc_allocator.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/core_yield.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/status.h"
#include "device/mmap_memory.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) \
  (static_cast<void>(address), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) \
  (static_cast<void>(address), static_cast<void>(size))
#endif

namespace tandem {
namespace {

using bfc::Chunk;
using bfc::Handle;
using bfc::kNone;

constexpr int kUnitBits = 8;
constexpr std::size_t kUnit = std::size_t{1} << kUnitBits;
constexpr std::size_t kFirstRegion = std::size_t{2} << 20;
constexpr std::size_t kMaxInternalFragmentation = std::size_t{128} << 20;
constexpr double kBackOff = 0.9;
constexpr int kMaxWarnings = 10;
constexpr int kLockSpins = 100;

std::size_t round_up(std::size_t bytes) { return (bytes + kUnit - 1) & ~(kUnit - 1); }
std::size_t round_down(std::size_t bytes) { return bytes & ~(kUnit - 1); }

int bin_of(std::size_t bytes) {
  return std::min(static_cast<int>(std::bit_width(bytes >> kUnitBits)) - 1, 20);
}

std::size_t first_region_bytes(const BfcOptions& options) {
  return round_up(options.allow_growth ? std::min(kFirstRegion, options.total_bytes)
                                       : options.total_bytes);
}

}  // namespace

BfcAllocator::BfcAllocator(BfcOptions options, std::unique_ptr<RegionSource> source)
    : options_(std::move(options)),
      source_(std::move(source)),
      next_region_bytes_(first_region_bytes(options_)) {
  stats_.bytes_limit = static_cast<std::int64_t>(options_.total_bytes);
  hold_at_fork(mutex_, &memory_freed_);
}

BfcAllocator::~BfcAllocator() {
  forget_at_fork(mutex_);
  for (Region& region : regions_) give_back(region);
}

// The lock is held for tens of nanoseconds, so a short spin is worthwhile.
std::unique_lock<std::mutex> BfcAllocator::lock() const {
  std::unique_lock<std::mutex> held(mutex_, std::try_to_lock);
  for (int i = 0; i < kLockSpins && !held.owns_lock(); ++i) {
    pause_core();
    static_cast<void>(held.try_lock());
  }
  if (!held.owns_lock()) held.lock();
  return held;
}

void BfcAllocator::note_thread() {
  const std::thread::id me = std::this_thread::get_id();
  if (me == first_thread_ || me == options_.drained_thread) return;
  if (first_thread_ == std::thread::id())
    first_thread_ = me;
  else
    several_threads_ = true;
}

void* BfcAllocator::allocate(std::size_t bytes) {
  if (bytes == 0 || bytes > options_.total_bytes) return nullptr;
  const std::size_t rounded = round_up(bytes);
  void* memory = nullptr;
  {
    std::unique_lock<std::mutex> held = lock();
    note_thread();
    memory = allocate_locked(rounded);
    if (memory == nullptr && options_.drain) {
      held.unlock();
      options_.drain();
      held.lock();
      memory = allocate_locked(rounded);
    }
    if (memory == nullptr && waiting_can_help(rounded)) memory = wait_for_memory(held, rounded);
  }
  return hand_out(memory, bytes);
}

void* BfcAllocator::try_allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* memory = nullptr;
  bool warn = false;
  {
    const std::unique_lock<std::mutex> held = lock();
    note_thread();
    if (bytes <= options_.total_bytes) memory = allocate_locked(round_up(bytes));
    if (memory == nullptr && warnings_ < kMaxWarnings) {
      ++warnings_;
      warn = true;
    }
  }
  if (warn)
    logging::warn(
        "Allocator ({}) ran out of memory trying to allocate {}. The caller indicates that this is "
        "not a failure, but may mean that there could be performance gains if more memory were "
        "available.",
        options_.name, mebibytes(static_cast<std::int64_t>(bytes)));
  return hand_out(memory, bytes);
}

void* BfcAllocator::hand_out(void* memory, std::size_t bytes) const {
  if (memory != nullptr && options_.poison_freed) ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
  return memory;
}

bool BfcAllocator::waiting_can_help(std::size_t rounded) const {
  return rounded <= options_.total_bytes && stats_.bytes_in_use > 0 && several_threads_;
}

void* BfcAllocator::wait_for_memory(std::unique_lock<std::mutex>& held, std::size_t rounded) {
  const auto deadline = std::chrono::steady_clock::now() + options_.retry_limit;
  void* memory = nullptr;
  ++waiting_;
  while (memory == nullptr && waiting_can_help(rounded) &&
         memory_freed_.wait_until(held, deadline) != std::cv_status::timeout)
    memory = allocate_locked(rounded);
  --waiting_;
  return memory;
}

void* BfcAllocator::allocate_locked(std::size_t rounded) {
  if (chunks_[freed_].size == rounded) return use(std::exchange(freed_, kNone));
  settle();
  void* memory = take_free_chunk(rounded);
  if (memory == nullptr && extend(rounded)) memory = take_free_chunk(rounded);
  if (memory == nullptr && collect_garbage(rounded) && extend(rounded))
    memory = take_free_chunk(rounded);
  return memory;
}

void* BfcAllocator::take_free_chunk(std::size_t rounded) {
  Handle handle = kNone;
  for (std::uint32_t candidates = bins_in_use_ >> bin_of(rounded) << bin_of(rounded);
       candidates != 0 && handle == kNone; candidates &= candidates - 1)
    handle =
        bins_[static_cast<std::size_t>(std::countr_zero(candidates))].best_fit(chunks_, rounded);
  if (handle == kNone) return nullptr;
  erase_free(handle);
  const std::size_t found = chunks_[handle].size;
  if (found >= 2 * rounded || found - rounded >= kMaxInternalFragmentation) split(handle, rounded);
  return use(handle);
}

void* BfcAllocator::use(Handle handle) {
  Chunk& chunk = chunks_[handle];
  chunk.in_use = true;
  chunk.tag = memory_tag;
  const auto size = static_cast<std::int64_t>(chunk.size);
  ++stats_.num_allocs;
  stats_.bytes_in_use += size;
  stats_.peak_bytes_in_use = std::max(stats_.peak_bytes_in_use, stats_.bytes_in_use);
  stats_.largest_alloc_size = std::max(stats_.largest_alloc_size, size);
  const auto tag = static_cast<std::size_t>(chunk.tag);
  stats_.bytes_by_tag[tag] += size;
  stats_.peak_by_tag[tag] = std::max(stats_.peak_by_tag[tag], stats_.bytes_by_tag[tag]);
  return chunk.address;
}

void BfcAllocator::deallocate(void* memory) noexcept {
  if (memory == nullptr) return;
  const std::unique_lock<std::mutex> held = lock();
  note_thread();
  settle();
  const Handle handle = handle_at(memory);
  TANDEM_ASSERT(handle != kNone && chunks_[handle].in_use);
  Chunk& chunk = chunks_[handle];
  if (options_.poison_freed) ASAN_POISON_MEMORY_REGION(memory, chunk.size);
  chunk.in_use = false;
  stats_.bytes_in_use -= static_cast<std::int64_t>(chunk.size);
  stats_.bytes_by_tag[static_cast<std::size_t>(chunk.tag)] -= static_cast<std::int64_t>(chunk.size);
  freed_ = handle;
  if (waiting_ > 0) memory_freed_.notify_all();
}

// Merges the chunk that was freed last with its free neighbours.
void BfcAllocator::settle() {
  if (freed_ == kNone) return;
  Handle handle = std::exchange(freed_, kNone);
  const Handle next = chunks_[handle].next, previous = chunks_[handle].previous;
  if (next != kNone && !chunks_[next].in_use) {
    erase_free(next);
    handle = merge(handle, next);
  }
  if (previous != kNone && !chunks_[previous].in_use) {
    erase_free(previous);
    handle = merge(previous, handle);
  }
  insert_free(handle);
}

void BfcAllocator::split(Handle handle, std::size_t bytes) {
  const Handle rest = chunks_.acquire();
  Chunk& chunk = chunks_[handle];
  Chunk& tail = chunks_[rest];
  tail.address = chunk.address + bytes;
  tail.size = chunk.size - bytes;
  tail.in_use = false;
  tail.previous = handle;
  tail.next = chunk.next;
  if (tail.next != kNone) chunks_[tail.next].previous = rest;
  chunk.size = bytes;
  chunk.next = rest;
  handle_at(tail.address) = rest;
  insert_free(rest);
}

// Merges two neighbours that are in no bin; `second` becomes invalid.
Handle BfcAllocator::merge(Handle first, Handle second) {
  Chunk& chunk = chunks_[first];
  const Chunk& gone = chunks_[second];
  chunk.size += gone.size;
  chunk.next = gone.next;
  if (chunk.next != kNone) chunks_[chunk.next].previous = first;
  handle_at(gone.address) = kNone;
  chunks_.release(second);
  return first;
}

void BfcAllocator::insert_free(Handle handle) {
  const int bin = bin_of(chunks_[handle].size);
  bins_[static_cast<std::size_t>(bin)].insert(chunks_, handle);
  bins_in_use_ |= 1u << bin;
}

void BfcAllocator::erase_free(Handle handle) {
  const int bin = bin_of(chunks_[handle].size);
  bins_[static_cast<std::size_t>(bin)].erase(chunks_, handle);
  if (bins_[static_cast<std::size_t>(bin)].empty()) bins_in_use_ &= ~(1u << bin);
}

bool BfcAllocator::extend(std::size_t rounded) {
  const std::size_t available =
      round_down(options_.total_bytes - static_cast<std::size_t>(stats_.bytes_reserved));
  if (rounded > available) return false;
  bool enlarged = false;
  while (rounded > next_region_bytes_) {
    next_region_bytes_ *= 2;
    enlarged = true;
  }
  Region region;
  region.size = std::min(next_region_bytes_, available);
  region.base = static_cast<char*>(source_->take(region.size));
  if (region.base == nullptr && !backed_off_) {
    backed_off_ = true;
    while (region.base == nullptr && region.size > rounded) {
      region.size = std::max(
          rounded,
          round_down(static_cast<std::size_t>(static_cast<double>(region.size) * kBackOff)));
      region.base = static_cast<char*>(source_->take(region.size));
    }
  }
  if (region.base == nullptr) return false;
  region.handles = static_cast<Handle*>(map_memory(region.size / kUnit * sizeof(Handle)));
  if (region.handles == nullptr) {
    source_->give_back(region.base, region.size);
    return false;
  }
  if (!enlarged) next_region_bytes_ *= 2;
  stats_.bytes_reserved += static_cast<std::int64_t>(region.size);

  const Handle handle = chunks_.acquire();
  Chunk& chunk = chunks_[handle];
  chunk.address = region.base;
  chunk.size = region.size;
  chunk.in_use = false;
  chunk.previous = chunk.next = kNone;
  region.handles[0] = handle;
  const auto after = std::find_if(regions_.begin(), regions_.end(),
                                  [&](const Region& each) { return each.base > region.base; });
  regions_.insert(after, region);
  insert_free(handle);
  return true;
}

bool BfcAllocator::wholly_free(const Region& region) const {
  const Chunk& first = chunks_[region.handles[0]];
  return !first.in_use && first.size == region.size;
}

bool BfcAllocator::collect_garbage(std::size_t rounded) {
  if (!options_.garbage_collection) return false;
  std::size_t free = 0;
  for (const Region& region : regions_)
    if (wholly_free(region)) free += region.size;
  const std::size_t room =
      options_.total_bytes - static_cast<std::size_t>(stats_.bytes_reserved) + free;
  if (free == 0 || rounded > room) return false;
  give_back_free_regions();
  return true;
}

std::size_t BfcAllocator::give_back_free_regions() {
  std::size_t bytes = 0;
  for (Region& region : regions_) {
    if (!wholly_free(region)) continue;
    const Handle handle = region.handles[0];
    erase_free(handle);
    chunks_.release(handle);
    bytes += region.size;
    give_back(region);
  }
  std::erase_if(regions_, [](const Region& region) { return region.base == nullptr; });
  stats_.bytes_reserved -= static_cast<std::int64_t>(bytes);
  return bytes;
}

void BfcAllocator::give_back(Region& region) {
  if (options_.poison_freed) ASAN_UNPOISON_MEMORY_REGION(region.base, region.size);
  source_->give_back(region.base, region.size);
  unmap_memory(region.handles, region.size / kUnit * sizeof(Handle));
  region.base = nullptr;
}

std::size_t BfcAllocator::trim() {
  const std::unique_lock<std::mutex> held = lock();
  settle();
  const std::size_t bytes = give_back_free_regions();
  if (regions_.empty()) next_region_bytes_ = first_region_bytes(options_);
  return bytes;
}

BfcAllocator::Region& BfcAllocator::region_of(const void* memory) {
  const auto* address = static_cast<const char*>(memory);
  const auto holds = [&](const Region& region) {
    return address >= region.base && address < region.base + region.size;
  };
  if (last_region_ < regions_.size() && holds(regions_[last_region_]))
    return regions_[last_region_];
  // The region before the first one that starts after the address contains it, or none does.
  const auto after = std::upper_bound(
      regions_.begin(), regions_.end(), address,
      [](const char* wanted, const Region& region) { return wanted < region.base; });
  TANDEM_ASSERT(after != regions_.begin() && holds(*std::prev(after)));
  last_region_ = static_cast<std::size_t>(std::prev(after) - regions_.begin());
  return regions_[last_region_];
}

Handle& BfcAllocator::handle_at(const void* memory) {
  Region& region = region_of(memory);
  const auto offset = static_cast<std::size_t>(static_cast<const char*>(memory) - region.base);
  TANDEM_ASSERT(offset % kUnit == 0);
  return region.handles[offset >> kUnitBits];
}

AllocatorStats BfcAllocator::stats() const {
  const std::unique_lock<std::mutex> held = lock();
  AllocatorStats result = stats_;
  result.largest_free_block = static_cast<std::int64_t>(largest_free_block());
  return result;
}

std::size_t BfcAllocator::largest_free_block() const {
  std::size_t freed = chunks_[freed_].size;  // 0 if there is none, as of the record kNone
  for (const Handle neighbour : {chunks_[freed_].previous, chunks_[freed_].next})
    if (!chunks_[neighbour].in_use) freed += chunks_[neighbour].size;
  if (bins_in_use_ == 0) return freed;
  const auto& bin = bins_[static_cast<std::size_t>(std::bit_width(bins_in_use_) - 1)];
  return std::max(freed, bin.largest(chunks_));
}

void BfcAllocator::reset_peak() {
  const std::unique_lock<std::mutex> held = lock();
  stats_.peak_bytes_in_use = stats_.bytes_in_use;
  stats_.peak_by_tag = stats_.bytes_by_tag;
}

}  // namespace tandem
