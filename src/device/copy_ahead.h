// Copies from the host that overlap with a GPU's computation.
#pragma once

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "device/device.h"

namespace tandem {

// Copies that may still be running. Their destinations must not be used or freed before join().
class CopiesAhead {
 public:
  CopiesAhead() = default;
  CopiesAhead(CopiesAhead&&) = default;
  CopiesAhead& operator=(CopiesAhead&& other) noexcept {
    join_noexcept();
    last_ = std::move(other.last_);
    return *this;
  }
  ~CopiesAhead() { join_noexcept(); }

  // Makes work that is enqueued on the devices' streams from now on wait for the copies. The host
  // does not wait.
  void join() {
    for (const auto& [device, copied] : std::exchange(last_, {})) device->stream().wait(copied);
  }

 private:
  friend class CopyAheadScope;
  // join() for places that must not throw. A device that fails no longer uses memory.
  void join_noexcept() noexcept;

  std::vector<std::pair<DeviceImpl*, StreamEvent>> last_;
};

// During its lifetime, this thread's copies from the host to GPUs (host_to_device) run on separate
// streams: after the work that the GPU has been given so far, concurrently with later work.
class CopyAheadScope {
 public:
  explicit CopyAheadScope(CopiesAhead& copies);
  ~CopyAheadScope();
  CopyAheadScope(const CopyAheadScope&) = delete;
  CopyAheadScope& operator=(const CopyAheadScope&) = delete;

  // The thread's innermost scope; null if there is none.
  static CopyAheadScope* current();
  void copy(DeviceImpl& to, void* to_memory, const void* from_memory, std::size_t bytes);

 private:
  CopyAheadScope* const previous_;
  CopiesAhead& copies_;
};

// Produces items, and starts their copies, one step ahead of their use: before the work on the
// previous item is enqueued, which the copies overlap with. For one thread.
template <class Item>
class FetchedAhead {
 public:
  // `fetch` returns the next item, or nothing at the end. Its exceptions are thrown when its item
  // is due.
  template <class Fetch>
  std::optional<Item> next(const Fetch& fetch) {
    if (!begun_) fetch_one(fetch);
    begun_ = true;
    copies_.join();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    std::optional<Item> now = std::exchange(ahead_, std::nullopt);
    if (now) fetch_one(fetch);
    return now;
  }

 private:
  template <class Fetch>
  void fetch_one(const Fetch& fetch) {
    try {
      const CopyAheadScope scope(copies_);
      ahead_ = fetch();
    } catch (...) {
      error_ = std::current_exception();
      copies_ = {};  // their memory has been freed
    }
  }

  bool begun_ = false;
  std::optional<Item> ahead_;
  std::exception_ptr error_;
  CopiesAhead copies_;  // for `ahead_`
};

}  // namespace tandem
