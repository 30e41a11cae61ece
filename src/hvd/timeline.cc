#include "hvd/timeline.h"

#include <fstream>

#include "core/status.h"
#include "core/trace_file.h"

namespace tandem::hvd {

constexpr std::size_t kMostEvents = 1'000'000;

void Timeline::start(std::string file) {
  const std::lock_guard lock(mutex_);
  if (on()) fail<FailedPreconditionError>("[hvd] a timeline is being recorded, to '{}'", file_);
  if (!std::ofstream(file)) fail<UnavailableError>("[hvd] cannot write the timeline '{}'", file);
  file_ = std::move(file);
  start_ = profile::now();
  on_ = true;
}

void Timeline::stop() {
  const std::lock_guard lock(mutex_);
  if (!on()) return;
  on_ = false;
  std::ofstream out(file_);
  const profile::ThreadEvents all = {
      .thread = 0, .events = events_.data(), .count = events_.size()};
  profile::write_trace(out, {.threads = {all}, .start = start_, .dropped = dropped_});
  const bool written = static_cast<bool>(out.flush());
  events_.clear();
  rows_.clear();
  dropped_ = 0;
  if (!written) fail<UnavailableError>("[hvd] cannot write the timeline '{}'", file_);
}

void Timeline::add(const std::string& tensor, std::string_view phase, std::int64_t begin) {
  const std::int64_t end = profile::now();
  const std::lock_guard lock(mutex_);
  if (!on()) return;
  if (events_.size() == kMostEvents) {
    ++dropped_;
    return;
  }
  const std::string& row = rows_.try_emplace(tensor, tensor).first->second;
  events_.push_back({.name = std::string(phase),
                     .lane = profile::Lane::kCollectives,
                     .device = &row,
                     .replica = -1,
                     .begin = begin < start_ ? start_ : begin,
                     .end = end});
}

}  // namespace tandem::hvd
