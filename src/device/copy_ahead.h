// Copies from the host that go on while a GPU computes.
#pragma once

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "device/device.h"

namespace tandem {

// Copies that may still be under way. What they write must not be used, nor given back, before
// join().
class CopiesAhead {
 public:
  CopiesAhead() = default;
  CopiesAhead(CopiesAhead&&) = default;
  CopiesAhead& operator=(CopiesAhead&& other) noexcept {
    abandon();
    last_ = std::move(other.last_);
    return *this;
  }
  ~CopiesAhead() { abandon(); }

  // What is enqueued on the devices' streams from now on sees them. The host does not wait.
  void join() {
    for (const auto& [device, copied] : std::exchange(last_, {})) device->stream().wait(copied);
  }

 private:
  friend class CopyAheadScope;
  // join() where nothing can be thrown: a device that fails uses no memory any more.
  void abandon() noexcept;

  std::vector<std::pair<Device*, Event>> last_;
};

// While it lives, copies from the host to GPUs that this thread enqueues (host_to_device) go on
// streams of their own: behind what the GPU has been given by now, and beside what comes.
class CopyAheadScope {
 public:
  explicit CopyAheadScope(CopiesAhead& copies);
  ~CopyAheadScope();
  CopyAheadScope(const CopyAheadScope&) = delete;
  CopyAheadScope& operator=(const CopyAheadScope&) = delete;

  // The thread's innermost; null: none.
  static CopyAheadScope* current();
  void copy(Device& to, void* to_memory, const void* from_memory, std::size_t bytes);

 private:
  CopyAheadScope* const previous_;
  CopiesAhead& copies_;
};

// Items that are made, and their copies on the way, one turn before they are used: before the work
// on the one before is enqueued, which is what the copies go beside. Of one thread.
template <class Item>
class FetchedAhead {
 public:
  // `fetch` makes the next item, or nothing at the end. What it throws comes when its item's turn
  // does.
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
      copies_ = {};  // their memory has been given back
    }
  }

  bool begun_ = false;
  std::optional<Item> ahead_;
  std::exception_ptr error_;
  CopiesAhead copies_;  // of `ahead_`
};

}  // namespace tandem
