#include "comm/nccl/module/connections.h"

#include <pthread.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <future>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "core/log.h"
#include "core/status.h"

namespace tandem::nccl_backend {
namespace {

using std::chrono::seconds;

constexpr const char* kLeft = "it was stopped, and its results are undefined";
constexpr seconds kGoodbye{5}, kAbort{10};
// after this time, a launch is assumed to have no waiter that checks the peers
constexpr seconds kUnattended{1};
constexpr std::chrono::milliseconds kPause{50};  // between the watch's checks
constexpr seconds kExitLimit{5};

// Aborting frees memory, and CUDA then waits for all kernels on the GPU, including hung kernels of
// other communicators. All are therefore aborted as one group, on a thread of their own.
void abort_all(std::vector<ncclComm_t> comms) noexcept {
  if (comms.empty()) return;
  try {
    std::promise<void> promise;
    const std::future<void> ended = promise.get_future();
    std::thread([comms = std::move(comms), promise = std::move(promise)]() mutable {
      ncclGroupStart();
      for (ncclComm_t comm : comms) ncclCommAbort(comm);
      ncclGroupEnd();
      promise.set_value();
    }).detach();
    if (ended.wait_for(kAbort) != std::future_status::ready)
      logging::error("[nccl] ncclCommAbort has not returned within {} s", kAbort.count());
  } catch (const std::exception& error) {
    logging::error("[nccl] could not abort the running collectives: {}", error.what());
  }
}

bool all_through(const std::vector<ncclComm_t>& comms) {
  return std::all_of(comms.begin(), comms.end(), [](ncclComm_t comm) {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError");
    check(state, "ncclCommGetAsyncError");
    return state == ncclSuccess;
  });
}

// Peers may still read what this process has sent, so NCCL finalises if it can. Ranks of one
// process may wait for each other, so their communicators finalise as one group.
bool finalize_all(const std::vector<ncclComm_t>& comms) noexcept {
  try {
    if (!all_through(comms)) return false;
    in_group([&] {
      for (ncclComm_t comm : comms) check(ncclCommFinalize(comm), "ncclCommFinalize");
    });
    for (const auto end = Connections::Clock::now() + kGoodbye; !all_through(comms);) {
      if (Connections::Clock::now() > end) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    in_group([&] {
      for (ncclComm_t comm : comms) check(ncclCommDestroy(comm), "ncclCommDestroy");
    });
    return true;
  } catch (const std::exception& error) {
    logging::debug("[nccl] no goodbye: {}", error.what());
    return false;
  }
}

}  // namespace

// The thread that monitors NCCL's work on GPUs. Starts with the first connections and ends with the
// process. Thread-safe.
class Connections::Watch {
 public:
  static Watch& get() {
    static auto* const watch = new Watch;
    return *watch;
  }

  void add(Connections& connections) {
    const std::lock_guard lock(mutex_);
    watched_.push_back(&connections);
    changed_.notify_one();
  }
  // When this returns, the watch no longer uses the connections.
  void remove(Connections& connections) {
    const std::lock_guard lock(mutex_);
    std::erase(watched_, &connections);
  }

 private:
  // CUDA shuts down at exit, after the handlers that are registered after its initialisation.
  Watch() {
    std::atexit([] { get().stop(); });
    std::thread thread([this] { run(); });
    pthread_setname_np(thread.native_handle(), "nccl-watch");
    thread.detach();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !watched_.empty() || stopped_; });
      if (stopped_) return;
      for (Connections* connections : watched_) connections->look(Clock::now());
      lock.unlock();
      std::this_thread::sleep_for(kPause);
      lock.lock();
    }
  }

  void stop() noexcept {
    const std::unique_lock lock(mutex_, kExitLimit);
    if (!lock) return;
    stopped_ = true;
    changed_.notify_one();
  }

  std::timed_mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Connections*> watched_;
  bool stopped_ = false;
};

Connections::Connections(Options options) : options_(std::move(options)) {
  Watch::get().add(*this);
}

Connections::~Connections() {
  Watch::get().remove(*this);
  std::vector<ncclComm_t> comms = take_comms();
  if (!comms.empty() && !finalize_all(comms)) abort_all(std::move(comms));
}

const NcclConnection& Connections::add(int rank, int size, const ncclUniqueId& id,
                                       cudaStream_t stream) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  return *all_.emplace_back(std::make_unique<NcclConnection>(rank, size, id, stream));
}

bool Connections::ready() {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  return std::all_of(all_.begin(), all_.end(), [](const auto& one) { return one->ready(); });
}

bool Connections::ready(const NcclConnection& connection) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  return connection.ready();
}

void Connections::call(const std::function<void()>& calls) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  // queries it before later work is enqueued on the stream
  for (const auto& launch : under_way_) launch->ended();
  in_group(calls);
}

void Connections::watch(std::shared_ptr<NcclLaunch> launch) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  under_way_.push_back(std::move(launch));
}

bool Connections::ended(NcclLaunch& launch) {
  const std::lock_guard lock(mutex_);
  throw_if_failed();
  try {
    if (!launch.ended()) return false;
  } catch (const Error& error) {
    throw error_during(launch, error);
  }
  under_way_.remove_if([&](const auto& one) { return one.get() == &launch; });
  return true;
}

void Connections::restart_limit(const NcclLaunch& launch) {
  const std::lock_guard lock(mutex_);
  for (const auto& one : under_way_)
    if (one->stream_ == launch.stream_) one->since_ = Clock::now();
}

bool Connections::failed() const {
  const std::lock_guard lock(mutex_);
  return failure_ != nullptr;
}

void Connections::check_unreported() {
  const std::lock_guard lock(mutex_);
  if (const auto error = unreported_ ? unreported_->take() : nullptr) std::rethrow_exception(error);
}

void Connections::abort(std::exception_ptr error) noexcept {
  std::vector<ncclComm_t> comms;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = std::move(error);
    comms = take_comms();
  }
  abort_all(std::move(comms));
}

void Connections::look(Clock::time_point now) noexcept {
  std::vector<ncclComm_t> comms;
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = find_failure(now);
    if (!failure_) return;
    unreported_ = std::make_shared<SharedFailure>(failure_);
    comms = take_comms();
  }
  if (options_.on_failure) options_.on_failure(unreported_);
  abort_all(std::move(comms));
}

// A caller that receives this needs no further report.
void Connections::throw_if_failed() const {
  if (!failure_) return;
  if (unreported_) unreported_->take();
  std::rethrow_exception(failure_);
}

AbortedError Connections::error_during(const NcclLaunch& launch, const Error& error) const {
  return AbortedError(
      fmt::format("{}, in {} on {}; {}", error.what(), launch.describe(), options_.name, kLeft));
}

std::exception_ptr Connections::find_failure(Clock::time_point now) {
  if (under_way_.empty()) return nullptr;
  try {
    under_way_.remove_if([](const auto& launch) { return launch->ended(); });
    if (under_way_.empty()) return nullptr;
    for (const auto& connection : all_) connection->ready();
  } catch (const Error& error) {
    return std::make_exception_ptr(error_during(*under_way_.front(), error));
  }
  std::set<cudaStream_t> busy;  // streams with an earlier launch
  for (const auto& launch : under_way_) {
    try {
      if (!busy.insert(launch->stream_).second || !launch->reached()) continue;
    } catch (const Error& error) {  // a GPU is broken
      return std::make_exception_ptr(error_during(*launch, error));
    }
    if (!launch->since_) launch->since_ = now;
    const auto patience = now - *launch->since_;
    if (patience >= options_.time_limit)
      return std::make_exception_ptr(DeadlineExceededError(
          fmt::format("[nccl] {} did not end within {} ms on {}; {}", launch->describe(),
                      options_.time_limit.count(), options_.name, kLeft)));
    if (!options_.check_peers || patience < kUnattended) continue;
    try {
      options_.check_peers();
    } catch (...) {
      return std::current_exception();
    }
  }
  return nullptr;
}

std::vector<ncclComm_t> Connections::take_comms() {
  under_way_.clear();
  std::vector<ncclComm_t> comms;
  for (const auto& connection : all_)
    if (ncclComm_t comm = connection->take_comm()) comms.push_back(comm);
  return comms;
}

}  // namespace tandem::nccl_backend
