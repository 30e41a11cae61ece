// A second, plain implementation of best fit with coalescing, written for clarity alone: ordered
// maps, no records, no bins. Regions lie where ScriptedSource puts them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "device/bfc_allocator.h"

namespace tandem {

// Hands out addresses that are never touched: each region starts a gigabyte-aligned gap after the
// one before. Refuses regions above `largest`, when set.
class ScriptedSource final : public RegionSource {
 public:
  struct Log {
    std::map<std::uintptr_t, std::size_t> regions;
    std::size_t largest = SIZE_MAX;
    int refused = 0;
    int given_back = 0;
  };
  explicit ScriptedSource(Log& log) : log_(log) {}

  static std::uintptr_t address_after(std::uintptr_t& next, std::size_t bytes) {
    const std::uintptr_t address = next;
    next += (bytes / kGap + 2) * kGap;
    return address;
  }

  void* take(std::size_t bytes) override {
    if (bytes > log_.largest) {
      ++log_.refused;
      return nullptr;
    }
    const std::uintptr_t address = address_after(next_, bytes);
    log_.regions[address] = bytes;
    return reinterpret_cast<void*>(address);  // NOLINT: made up on purpose
  }
  void give_back(void* region, std::size_t bytes) noexcept override {
    const auto found = log_.regions.find(reinterpret_cast<std::uintptr_t>(region));
    if (found == log_.regions.end() || found->second != bytes) std::abort();
    log_.regions.erase(found);
    ++log_.given_back;
  }

  static constexpr std::uintptr_t kGap = std::uintptr_t{1} << 30;
  static constexpr std::uintptr_t kStart = std::uintptr_t{1} << 40;

 private:
  Log& log_;
  std::uintptr_t next_ = kStart;
};

class BfcModel {
 public:
  BfcModel(std::size_t total, bool growth)
      : total_(total),
        first_region_(growth ? std::min<std::size_t>(total, 2 << 20) : (total + 255) / 256 * 256),
        next_region_(first_region_) {}

  std::uintptr_t allocate(std::size_t bytes, MemoryTag tag = MemoryTag::kActivations) {
    const std::size_t need = (bytes + 255) / 256 * 256;
    auto found = undo_free(need);
    if (!found) found = best_fit(need);
    if (!found && extend(need)) found = best_fit(need);
    if (!found && collect(need) && extend(need)) found = best_fit(need);
    if (!found) return 0;
    auto [size, address] = *found;
    free_.erase(*found);
    if (size >= 2 * need || size - need >= std::size_t{128} << 20) {
      free_.insert({size - need, address + need});
      size = need;
    }
    used_[address] = {size, tag};
    ++allocations;
    in_use += size;
    peak = std::max(peak, in_use);
    by_tag[tag] += size;
    peak_by_tag[tag] = std::max(peak_by_tag[tag], by_tag[tag]);
    largest = std::max(largest, size);
    return address;
  }

  void deallocate(std::uintptr_t address) {
    auto [size, tag] = used_.at(address);
    used_.erase(address);
    in_use -= size;
    by_tag[tag] -= size;
    const auto region = std::prev(regions_.upper_bound(address));
    last_free_ = {.block = {size, address}};
    for (auto each = free_.begin(); each != free_.end();) {
      const auto [other_size, other] = *each;
      const bool same = other >= region->first && other < region->first + region->second;
      if (same && other + other_size == address) {
        address = other;
        size += other_size;
        last_free_.neighbours.insert(free_.extract(each++));
      } else if (same && address + size == other) {
        size += other_size;
        last_free_.neighbours.insert(free_.extract(each++));
      } else {
        ++each;
      }
    }
    free_.insert({size, address});
    last_free_.merged = {size, address};
  }

  std::size_t trim() {
    last_free_ = {};
    const std::size_t bytes = drop_free_regions();
    if (regions_.empty()) next_region_ = first_region_;
    return bytes;
  }

  void reset_peak() {
    peak = in_use;
    peak_by_tag = by_tag;
  }

  // Whether every region is one free block.
  bool coalesced() const {
    for (const auto& [address, size] : regions_)
      if (!free_.contains({size, address})) return false;
    return free_.size() == regions_.size();
  }

  std::size_t largest_free() const { return free_.empty() ? 0 : free_.rbegin()->first; }

  std::size_t in_use = 0, peak = 0, largest = 0, reserved = 0, allocations = 0;
  std::map<MemoryTag, std::size_t> by_tag, peak_by_tag;

 private:
  using SizeAndAddress = std::pair<std::size_t, std::uintptr_t>;

  // The block that was freed last, as it was before, if its size is the one that is needed.
  std::optional<SizeAndAddress> undo_free(std::size_t need) {
    LastFree last = std::exchange(last_free_, {});
    if (last.block.first != need) return std::nullopt;
    free_.erase(last.merged);
    free_.merge(last.neighbours);
    free_.insert(last.block);
    return last.block;
  }
  std::optional<SizeAndAddress> best_fit(std::size_t need) const {
    const auto found = free_.lower_bound({need, 0});
    return found == free_.end() ? std::nullopt : std::optional(*found);
  }
  bool extend(std::size_t need) {
    const std::size_t available = (total_ - reserved) / 256 * 256;
    if (need > available) return false;
    const bool enlarge = need > next_region_;
    while (need > next_region_) next_region_ *= 2;
    const std::size_t bytes = std::min(next_region_, available);
    if (!enlarge) next_region_ *= 2;
    const std::uintptr_t address = ScriptedSource::address_after(next_address_, bytes);
    regions_[address] = bytes;
    reserved += bytes;
    free_.insert({bytes, address});
    return true;
  }
  bool collect(std::size_t need) {
    std::size_t bytes = 0;
    for (const auto& [address, size] : regions_)
      if (free_.contains({size, address})) bytes += size;
    if (bytes == 0 || need > total_ - reserved + bytes) return false;
    drop_free_regions();
    return true;
  }
  std::size_t drop_free_regions() {
    std::size_t bytes = 0;
    for (auto region = regions_.begin(); region != regions_.end();) {
      const auto [address, size] = *region;
      if (free_.erase({size, address}) == 0) {
        ++region;
        continue;
      }
      bytes += size;
      region = regions_.erase(region);
    }
    reserved -= bytes;
    return bytes;
  }

  std::size_t total_, first_region_, next_region_;
  std::uintptr_t next_address_ = ScriptedSource::kStart;
  std::set<SizeAndAddress> free_;
  struct LastFree {
    SizeAndAddress block = {}, merged = {};
    std::set<SizeAndAddress> neighbours;
  };
  LastFree last_free_;
  struct Used {
    std::size_t size = 0;
    MemoryTag tag = MemoryTag::kActivations;
  };
  std::map<std::uintptr_t, Used> used_;
  std::map<std::uintptr_t, std::size_t> regions_;
};

}  // namespace tandem
