#include "tandem/profiler.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/atomic_file.h"
#include "core/log.h"
#include "core/profile.h"
#include "core/profile_totals.h"
#include "core/status.h"
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
  std::mutex control;  // held by start() and stop() throughout
  std::mutex mutex;    // guards `session`
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

}  // namespace

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void record(Event event) {
  thread_local EventWriter writer;
  writer.add(std::move(event));
}

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

}  // namespace profiler
}  // namespace tandem
