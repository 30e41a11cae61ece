// The coordinator of a process set: owns its communicator, and runs the cycles in which its
// ranks agree on operations.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/communicator.h"
#include "core/threads.h"
#include "hvd/autotune.h"
#include "hvd/collective_executor.h"
#include "hvd/negotiation.h"
#include "hvd/settings.h"
#include "hvd/stall.h"
#include "hvd/timeline.h"

namespace tandem::hvd {

struct ProcessSetOptions {
  int id = 0;
  std::vector<int> ranks;  // numbered as in the job, in the order of the set
  std::string backend;     // "SHM"
  Settings settings;
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);
  std::function<void()> wake;  // wakes the background thread, which sleeps longer while idle
  // Reports an error of this rank to the others, which cannot detect it themselves.
  std::function<void(const std::string& reason)> report;
  std::string autotune_log;
};

// In a cycle every rank announces the operations it waits for: a bit for each cached one, a request
// for others. Those that all ranks wait for are run. The next cycle may begin while they run. A
// thread that waits for an operation runs the cycles itself; otherwise the background thread runs
// them, and never blocks. Where the communicator is for its owner's calls alone, the background
// thread runs none. Thread-safe; in a forked process the first four functions throw
// FailedPreconditionError. Waiting threads may keep it alive after the World is gone.
class ProcessSetCoordinator : public std::enable_shared_from_this<ProcessSetCoordinator> {
 public:
  // Every rank of the set constructs one.
  ProcessSetCoordinator(std::unique_ptr<Communicator> communicator, ProcessSetOptions options,
                        std::shared_ptr<Timeline> timeline);
  ~ProcessSetCoordinator();

  int id() const { return options_.id; }
  const std::vector<int>& ranks() const { return options_.ranks; }
  int rank() const { return rank_; }
  int size() const { return static_cast<int>(options_.ranks.size()); }
  // Memory from which operations are fastest (Handle::State::bucket).
  std::shared_ptr<void> allocate(std::size_t bytes) { return communicator_->allocate(bytes); }

  // Throws InvalidArgumentError if an operation of that name is in progress, and the error
  // that ended the coordinator.
  void submit(const OperationRef& operation);
  // Returns when the operation is done.
  void wait(const Handle::State& operation);
  // Whether it is done. If the background thread may not run cycles, this call runs one.
  bool poll(const Handle::State& operation);
  int join();

  // Called by the background thread: does what is possible without blocking. Operations wait for
  // one cycle time, so that later ones can be fused with them.
  enum class TickResult { kIdle, kPending, kDriven };
  TickResult tick();
  std::chrono::microseconds cycle_time() const {
    return std::chrono::microseconds(cycle_microseconds_.load(std::memory_order_relaxed));
  }
  // Tells every rank that this one has finished, waiting at most `limit`.
  void shut_down(std::chrono::milliseconds limit);
  // Fails the operations in progress and all later ones with `error`.
  void abort(std::exception_ptr error);
  // Aborts because a step was left while its operations were in progress and their memory is about
  // to be freed. Returns when no thread accesses that memory.
  void abort_and_wait();
  bool failed() const;
  // Waits until no thread and no collective accesses the operations' memory. False if that takes
  // longer than `limit`: some backends cannot cancel a collective. REQUIRES: failed().
  bool wait_idle(std::chrono::milliseconds limit);

 private:
  enum class Phase { kIdle, kAgree, kRequests, kExecute };
  // Runs cycles on this thread, with `lock` released meanwhile. REQUIRES: no thread runs them.
  void drive_cycles(std::unique_lock<std::mutex>& lock, bool may_wait);
  // Returns when a cycle has ended, or when it would have to block and may not.
  void run_cycles(bool may_wait);
  bool try_advance(bool may_wait);
  void begin_cycle();
  bool read_headers();  // returns whether there are requests to gather
  void gather_requests();
  void settle();
  void end_cycle();
  bool may_begin_ahead(bool may_wait) const;
  bool work_is_done(bool may_wait);
  void check_peers();
  std::shared_ptr<CollectiveWork> gather(std::span<const std::byte> mine,
                                         std::span<const std::size_t> bytes,
                                         std::vector<std::byte>& all);
  OperationRef take(const std::string& name);
  void complete(const OperationRef& operation, std::exception_ptr error);
  void check_stalls();

  ProcessSetOptions options_;
  int rank_;
  std::shared_ptr<Timeline> timeline_;
  std::atomic<std::int64_t> cycle_microseconds_;

  OwnProcess process_;
  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool driven_ = false;
  std::chrono::steady_clock::time_point submitted_at_;  // of the oldest in submitted_
  std::vector<OperationRef> submitted_;
  std::unordered_map<std::string, OperationRef> by_name_;
  std::exception_ptr failure_;
  bool joining_ = false, finishing_ = false;
  int last_joined_ = -1;
  std::uint64_t joins_ = 0;  // how often all ranks have joined

  // Used only by the thread that runs cycles:
  std::unique_ptr<Communicator> communicator_;
  CollectiveExecutor executor_;
  Negotiation negotiation_;
  StallWatch stalls_;
  std::optional<Autotune> autotune_;
  Phase phase_ = Phase::kIdle;
  std::shared_ptr<CollectiveWork> work_;
  std::vector<OperationRef> waiting_;  // not yet submitted by all ranks
  std::vector<std::byte> mine_, gathered_, requests_, gathered_requests_;
  std::vector<std::size_t> header_bytes_, request_bytes_;
  std::vector<std::uint64_t> hits_;
  CycleMessages messages_;
  std::int64_t fusion_threshold_;
  std::chrono::steady_clock::time_point began_, checked_peers_;
  bool stalled_ = false;
  bool began_ahead_ = false;  // this thread has begun a cycle while operations were in progress
};

}  // namespace tandem::hvd
