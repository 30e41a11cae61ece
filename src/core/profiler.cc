#include "tandem/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <ostream>
#include <span>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/atomic_file.h"
#include "core/log.h"
#include "core/mutex.h"
#include "core/profile.h"
#include "core/status.h"
#include "core/thread_object.h"
#include "core/trace_file.h"

namespace tandem {
namespace profile {

constinit std::atomic<bool> running{false};
constinit thread_local int current_replica = -1;

namespace {

constexpr std::int64_t kChunkEvents = 512;

// A block of one thread's events. The thread writes an event and then the count. The thread that
// stops the profile reads the count and then that many events, while more may be added.
struct EventChunk {
  EventChunk(int of, std::int64_t room)
      : thread(of), capacity(static_cast<std::size_t>(room)), events(new Event[capacity]) {}
  int thread;
  std::size_t capacity;
  std::unique_ptr<Event[]> events;
  std::atomic<std::size_t> count{0};
};

// The running profile.
struct ActiveProfile {
  std::filesystem::path path;
  std::int64_t start = 0;
  std::int64_t room = 0;  // for events not yet assigned to a chunk
  int threads = 0;
  std::vector<std::shared_ptr<EventChunk>> chunks;
};

struct ProfilerState {
  Mutex control{"profiler"};  // held by start() and stop() throughout
  std::mutex mutex;           // guards `session`
  const HeldAtFork held_at_fork{mutex};
  std::unique_ptr<ActiveProfile> session;
  std::atomic<bool> full{false};
  std::atomic<std::int64_t> dropped{0};
};

// Never destroyed: threads may end after main().
ProfilerState& state() {
  static ProfilerState* const instance = new ProfilerState;
  return *instance;
}

// The calling thread's position in the profile. The session owns the chunks.
class EventWriter {
 public:
  void add(Event&& event) {
    std::shared_ptr<EventChunk> chunk = chunk_.lock();
    std::size_t at = chunk ? chunk->count.load(std::memory_order_relaxed) : 0;
    if (!chunk || at == chunk->capacity) {
      const int thread = chunk ? chunk->thread : -1;
      if (state().full.load(std::memory_order_relaxed) || !(chunk = next_chunk(thread))) {
        if (on()) state().dropped.fetch_add(1, std::memory_order_relaxed);
        return;
      }
      at = 0;
    }
    chunk->events[at] = std::move(event);
    chunk->count.store(at + 1, std::memory_order_release);
  }

 private:
  // `thread`: this thread's number, or -1 if the session has not assigned one.
  std::shared_ptr<EventChunk> next_chunk(int thread) {
    const std::lock_guard lock(state().mutex);
    ActiveProfile* session = state().session.get();
    if (!session) return nullptr;
    const std::int64_t room = std::min(kChunkEvents, session->room);
    if (room == 0) {
      state().full = true;
      return nullptr;
    }
    session->room -= room;
    if (thread < 0) thread = session->threads++;
    chunk_ = session->chunks.emplace_back(std::make_shared<EventChunk>(thread, room));
    return session->chunks.back();
  }

  std::weak_ptr<EventChunk> chunk_;
};

using profiler::OperationTotal;

struct EventSums {
  std::int64_t calls = 0, time = 0, inner = 0;  // nanoseconds
};
// By device and name; the empty string is the host.
using SumsByName = std::map<std::pair<std::string_view, std::string_view>, EventSums>;

std::string_view device_of(const Event& event) {
  return event.device ? std::string_view(*event.device) : std::string_view();
}

// `events`: of one thread and device, ordered by begin, longer ones first.
void add_up(SumsByName& sums, const std::vector<const Event*>& events) {
  std::vector<const Event*> around;
  for (const Event* event : events) {
    const std::int64_t time = event->end - event->begin;
    while (!around.empty() && around.back()->end < event->end) around.pop_back();
    if (!around.empty()) sums[{device_of(*event), around.back()->name}].inner += time;
    around.push_back(event);
    EventSums& own = sums[{device_of(*event), event->name}];
    ++own.calls;
    own.time += time;
  }
}

double seconds_of(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

// The totals by name and device, in the order of profiler::Summary::totals.
std::vector<OperationTotal> totals_of(const TraceContents& contents) {
  std::map<std::pair<int, std::string_view>, std::vector<const Event*>> by_thread;
  for (const ThreadEvents& thread : contents.threads)
    for (std::size_t i = 0; i < thread.count; ++i) {
      const Event& event = thread.events[i];
      by_thread[{thread.thread, device_of(event)}].push_back(&event);
    }
  SumsByName sums;
  for (auto& [thread, events] : by_thread) {
    std::stable_sort(events.begin(), events.end(), [](const Event* a, const Event* b) {
      return std::pair(a->begin, -a->end) < std::pair(b->begin, -b->end);
    });
    add_up(sums, events);
  }
  std::map<std::string_view, std::int64_t> of_device;
  for (const auto& [key, each] : sums) of_device[key.first] += each.time - each.inner;
  std::vector<OperationTotal> totals;
  for (const auto& [key, each] : sums) {
    const std::int64_t self = each.time - each.inner, all = of_device[key.first];
    totals.push_back(
        {.name = std::string(key.second),
         .device = std::string(key.first),
         .calls = each.calls,
         .seconds = seconds_of(each.time),
         .self_seconds = seconds_of(self),
         .share = all > 0 ? static_cast<double>(self) / static_cast<double>(all) : 0.0});
  }
  std::stable_sort(totals.begin(), totals.end(), [](const auto& a, const auto& b) {
    return std::tuple(std::string_view(a.device), -a.self_seconds) <
           std::tuple(std::string_view(b.device), -b.self_seconds);
  });
  return totals;
}

}  // namespace

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void record(Event event) { thread_object<EventWriter>().add(std::move(event)); }

void Span::begin(Event event) {
  event_ = new Event(std::move(event));
  event_->begin = now();
}

void Span::end() noexcept {
  const std::unique_ptr<Event> event(event_);
  event->end = now();
  try {
    record(std::move(*event));
  } catch (const std::bad_alloc&) {  // a profile with gaps is better than a failing program
    state().dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

}  // namespace profile

namespace profiler {
namespace {

constexpr const char* kWhat = "profiler";

std::string row_of(const OperationTotal& total) {
  return fmt::format("{:<44}{:>10}{:>14.3f}{:>14.4f}{:>14.3f}{:>8.1f}%\n", total.name, total.calls,
                     total.seconds * 1e3, total.mean_seconds() * 1e3, total.self_seconds * 1e3,
                     total.share * 100.0);
}

// Sums up several rows.
OperationTotal rest_of(std::span<const OperationTotal> totals) {
  OperationTotal rest{.name = fmt::format("{} others", totals.size())};
  for (const OperationTotal& total : totals) {
    rest.calls += total.calls;
    rest.seconds += total.seconds;
    rest.self_seconds += total.self_seconds;
    rest.share += total.share;
  }
  return rest;
}

}  // namespace

void start(const ProfilerOptions& options) {
  profile::ProfilerState& state = profile::state();
  const std::lock_guard control(state.control);
  if (state.session)
    fail<FailedPreconditionError>("[profiler] a profile is already running, for the file '{}'",
                                  state.session->path.string());
  if (options.max_events < 1)
    fail<InvalidArgumentError>("[profiler] expected max_events of at least 1, got {}",
                               options.max_events);
  auto session = std::make_unique<profile::ActiveProfile>();
  session->path = options.file;
  // Throws now if the file cannot be written. It is written when the profile ends.
  if (!options.file.empty()) const AtomicFile writable(options.file, kWhat);
  session->room = options.max_events;
  session->start = profile::now();
  state.full = false;
  state.dropped = 0;
  {
    const std::lock_guard lock(state.mutex);
    state.session = std::move(session);
  }
  profile::running.store(true);
}

Summary stop() {
  profile::ProfilerState& state = profile::state();
  const std::lock_guard control(state.control);
  std::unique_ptr<profile::ActiveProfile> session;
  {
    const std::lock_guard lock(state.mutex);
    session = std::move(state.session);
  }
  if (!session)
    throw FailedPreconditionError("[profiler] stop() was called, but no profile is running");
  profile::running.store(false);

  profile::TraceContents contents{.start = session->start, .dropped = state.dropped.load()};
  Summary summary{.dropped = contents.dropped,
                  .seconds = static_cast<double>(profile::now() - session->start) * 1e-9};
  for (const auto& chunk : session->chunks) {
    const std::size_t count = chunk->count.load(std::memory_order_acquire);
    contents.threads.push_back({chunk->thread, chunk->events.get(), count});
    summary.events += static_cast<std::int64_t>(count);
  }
  if (summary.dropped > 0)
    logging::warn("[profiler] the profile has {} events; {} more were dropped", summary.events,
                  summary.dropped);
  summary.totals = profile::totals_of(contents);
  if (!session->path.empty()) {
    AtomicFile file(session->path, kWhat);
    profile::write_trace(file, contents);
    file.commit();
  }
  return summary;
}

bool running() { return profile::on(); }

Scope::Scope(std::string_view name) {
  if (!profile::on()) return;
  name_ = name;
  begin_ = profile::now();
}

Scope::~Scope() {
  if (begin_ < 0) return;
  try {
    profile::record({.name = std::move(name_), .begin = begin_, .end = profile::now()});
  } catch (const std::bad_alloc&) {
    profile::state().dropped.fetch_add(1, std::memory_order_relaxed);
  }
}

std::string Summary::to_string(std::size_t most) const {
  std::string text;
  for (auto first = totals.begin(); first != totals.end();) {
    const auto end = std::find_if(first, totals.end(),
                                  [&](const auto& each) { return each.device != first->device; });
    text += fmt::format("{}{:<44}{:>10}{:>14}{:>14}{:>14}{:>9}\n", text.empty() ? "" : "\n",
                        first->device.empty() ? "host" : first->device, "calls", "total ms",
                        "mean ms", "self ms", "share");
    const auto shown =
        first + std::min<std::ptrdiff_t>(end - first, static_cast<std::ptrdiff_t>(most));
    for (auto at = first; at != shown; ++at) text += row_of(*at);
    if (shown != end) text += row_of(rest_of({shown, end}));
    first = end;
  }
  return text;
}

std::ostream& operator<<(std::ostream& out, const Summary& summary) {
  return out << summary.to_string();
}

}  // namespace profiler
}  // namespace tandem
