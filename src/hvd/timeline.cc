#include "hvd/timeline.h"

#include <utility>

#include "core/atomic_file.h"
#include "core/status.h"
#include "core/trace_file.h"

namespace tandem::hvd {

namespace {

constexpr std::size_t kMostEvents = 1'000'000;
constexpr const char* kWhat = "hvd timeline";

}  // namespace

void Timeline::start(std::string file, bool mark_cycles) {
  const std::lock_guard lock(mutex_);
  if (on()) fail<FailedPreconditionError>("[hvd] a timeline is being recorded, to '{}'", file_);
  const AtomicFile writable(file, kWhat);  // throws now if the file cannot be written
  file_ = std::move(file);
  start_ = profile::now();
  marks_cycles_ = mark_cycles;
  on_ = true;
}

void Timeline::stop() {
  const std::lock_guard lock(mutex_);
  if (!on()) return;
  on_ = false;
  const std::vector<profile::Event> events = std::exchange(events_, {});
  const auto rows = std::exchange(rows_, {});  // the events point to their names
  const std::int64_t dropped = std::exchange(dropped_, 0);
  AtomicFile out(file_, kWhat);
  const profile::ThreadEvents all = {.thread = 0, .events = events.data(), .count = events.size()};
  profile::write_trace(out, {.threads = {all}, .start = start_, .dropped = dropped});
  out.commit();
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
