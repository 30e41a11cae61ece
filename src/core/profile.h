// Events for the profile (tandem/profiler.h). While none runs, all of this is one relaxed load.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

namespace tandem::profile {

extern constinit std::atomic<bool> running;
inline bool on() { return running.load(std::memory_order_relaxed); }

// The replica that the calling thread runs; -1: none.
extern constinit thread_local int current_replica;

class ReplicaScope {
 public:
  explicit ReplicaScope(int replica) : previous_(std::exchange(current_replica, replica)) {}
  ~ReplicaScope() { current_replica = previous_; }
  ReplicaScope(const ReplicaScope&) = delete;
  ReplicaScope& operator=(const ReplicaScope&) = delete;

 private:
  int previous_;
};

// Rows of one thread or stream. Events of a row nest; what would cross has another row.
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
  // The full name of the device that it ran on, which lives as long as the process; null: the host.
  const std::string* device = nullptr;
  int replica = current_replica;
  std::int64_t begin = 0, end = 0;  // nanoseconds of now()
  // Told with the event unless empty or negative.
  std::string node;
  std::string shapes;
  std::int64_t bytes = -1;
};

// Nanoseconds of a clock that never steps back.
std::int64_t now();

// Keeps the event as one of the calling thread, or counts it where there is no room; forgets it
// when no profile runs any more. Takes no lock but once in some hundred events.
void record(Event event);

// An event that lasts as long as this does, on the calling thread.
class Span {
 public:
  explicit Span(Event event) { begin(std::move(event)); }
  // Nothing unless a profile runs; only then is `make` called, for the Event.
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

  Event* event_ = nullptr;  // null: no profile ran
};

}  // namespace tandem::profile
