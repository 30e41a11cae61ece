// The Horovod timeline: the phases of each tensor as a Chrome trace.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/profile.h"

namespace tandem::hvd {

// One row per tensor, with Horovod's phases. Records nothing unless it is on. Counts, but does not
// keep, events after the first million. Thread-safe.
class Timeline {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }
  // Whether to mark the cycles of the coordination, too.
  bool marks_cycles() const { return on() && marks_cycles_.load(std::memory_order_relaxed); }
  void start(std::string file, bool mark_cycles);
  // Writes the file. Both throw the errors of core/file_error.h.
  void stop();

  // Adds a phase of a tensor that began at `begin` and ends now.
  void add(const std::string& tensor, std::string_view phase, std::int64_t begin);

 private:
  std::atomic<bool> on_{false}, marks_cycles_{false};
  std::mutex mutex_;
  std::string file_;
  std::int64_t start_ = 0;
  std::map<std::string, std::string> rows_;  // never erased: events point to the strings
  std::vector<profile::Event> events_;
  std::int64_t dropped_ = 0;
};

}  // namespace tandem::hvd
