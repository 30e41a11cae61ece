// What happened to each tensor and when, for a Chrome trace.
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

// A row a tensor, with phases as in Horovod. Thread-safe. Nothing is kept unless it is on; what
// goes beyond a million events is counted.
class Timeline {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }
  void start(std::string file);
  // Writes the file. Throws the errors of core/file_error.h, as start() does.
  void stop();

  // A phase of a tensor, from `begin` to now.
  void add(const std::string& tensor, std::string_view phase, std::int64_t begin);

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::string file_;
  std::int64_t start_ = 0;
  std::map<std::string, std::string> rows_;  // stay, for events point to them
  std::vector<profile::Event> events_;
  std::int64_t dropped_ = 0;
};

}  // namespace tandem::hvd
