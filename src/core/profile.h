// Records profiler events (tandem/profiler.h). One relaxed load if no profile is running.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace tandem::profile {

extern constinit std::atomic<bool> running;
inline bool on() { return running.load(std::memory_order_relaxed); }

// The replica that the calling thread runs; -1 if none.
extern constinit thread_local int current_replica;

// The row of a thread's or stream's events. Events of a row are nested; overlapping events use
// another row.
enum class Lane : std::uint8_t {
  kSteps,
  kData,
  kHost,
  kKernels,
  kCopies,
  kCopiesAhead,
  kCollectives
};

struct Event {
  std::string name;
  Lane lane = Lane::kHost;
  // The full name of the device, which lives as long as the process; null for the host.
  const std::string* device = nullptr;
  int replica = current_replica;
  std::int64_t begin = 0, end = 0;  // nanoseconds of now()
  // Details; empty or negative if there are none.
  std::string node;
  std::string shapes;
  std::int64_t bytes = -1;
};

// Nanoseconds of a monotonic clock.
std::int64_t now();

// Stores the event as one of the calling thread, or counts it as dropped if there is no room.
// Ignores it if no profile is running any more. Locks only once per some hundred events.
void record(Event event);

// An event with this object's lifetime, on the calling thread.
class Span {
 public:
  explicit Span(Event event) { begin(std::move(event)); }
  // Does nothing unless a profile is running; only then calls `make` for the event.
  template <class Make>
  requires requires(const Make& make) { Event(make()); }
  explicit Span(const Make& make) {
    if (on()) [[unlikely]]
      begin(make());
  }
  ~Span() {
    if (event_) [[unlikely]]
      end();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

 private:
  void begin(Event event);
  void end() noexcept;

  Event* event_ = nullptr;  // null if no profile was running
};

}  // namespace tandem::profile
