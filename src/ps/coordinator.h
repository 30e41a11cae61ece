// Schedules closures on workers, and replaces workers that are lost.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/threads.h"
#include "ps/closure_queue.h"
#include "ps/decisions.h"
#include "ps/lost_updates.h"
#include "ps/remote_result.h"
#include "ps/worker_service.h"
#include "tandem/tensor.h"

namespace tandem::ps {

// Each worker has as many threads as closures that it gets at the same time, by default one. How a
// closure ends:
//
//   the worker cannot be reached, or is lost   another worker runs it; the threads wait for the
//                                              worker to come back
//   its updates are too stale (Decisions)      any worker runs it again; the same one if it took
//                                              elements of an iterator
//   a worker stays lost                        UnavailableError of schedule(), join() or done(),
//                                              once after each recovery limit
//   a server cannot be reached                 UnavailableError of these
//   any other error                            the same error of these
//   the error of another one is thrown         AbortedError if none of its updates was applied, nor
//                                              is later; DataLossError if they were, and its result
//                                              is lost; UnavailableError if a server does not say
//
// A closure may run more than once, but its updates are applied once (ParameterStore).
//
// Each worker has its own iterator over a whole dataset of add_iterator(), and closures take the
// next elements of their worker's. The position after the last closure that finished on a worker is
// kept here. When the worker was lost, its iterator continues there: no element is left out, and
// none is taken again by a closure that finishes. A closure that was lost takes elements of the
// worker that repeats it, and the lost worker gives those that the closure took there to its next
// one. (If the worker had sent the closure's updates before it was lost, these elements count twice
// and those of the repetition do not count.) Elements of a closure that failed or was cancelled
// are not given again, unless the worker is lost before it finishes another one.
//
// Thread-safe.
class Coordinator {
 public:
  struct Options {
    std::chrono::milliseconds run_limit = std::chrono::hours(1);        // of one closure
    std::chrono::milliseconds recovery_limit = std::chrono::hours(1);   // of a lost worker
    std::chrono::milliseconds settle_limit = std::chrono::seconds(10);  // of servers after an error
    ClosureQueue::Options queue = {};
    Decisions::Rules rules = {};
    std::size_t closures_per_worker = 1;  // at the same time; at least 1
    // Gets the updates of closures that finish, and of the steps of Decisions. Null: none.
    std::shared_ptr<LostUpdates> lost_updates = {};
  };
  struct WorkerTask {
    std::string name;  // for messages: "worker 0 (HOST:PORT)"
    std::shared_ptr<rpc::Channel> channel;
  };

  // `servers`: by their index.
  Coordinator(std::vector<WorkerTask> workers, std::vector<std::shared_ptr<ServerClient>> servers,
              const Options& options);
  // Cancels what is queued and running.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Adds a function, whose updates the servers have already. A worker gets it before it runs it.
  // The result expires when the function was removed and no closure uses it any more.
  std::weak_ptr<const void> add_function(std::uint64_t id, proto::Function function);
  // Closures that were scheduled still use it. Its id is not used again.
  void remove_function(std::uint64_t id);
  // Adds an iterator, which each worker makes for itself before it runs the first closure with this
  // id among its iterators, and makes again after it was lost. It starts at `start`. Throws
  // FailedPreconditionError while a function is traced or a graph is built.
  void add_iterator(std::uint64_t id, data::DatasetDescription dataset,
                    const data::IterateOptions& start = {});
  // Closures that were scheduled still use it. Its id is not used again.
  void remove_iterator(std::uint64_t id);
  // An argument that is another tensor on each worker.
  struct WorkersArgument {
    std::size_t index = 0;                              // in FunctionRun::arguments
    std::shared_ptr<const std::vector<Tensor>> values;  // by worker
  };
  // Adds a closure to the queue; waits while that is full. Sets `closure` and `finished` of the
  // run, and, when a worker runs it, the arguments of `workers`. Throws the error of an earlier
  // closure (ClosureQueue).
  std::shared_ptr<RemoteResult> schedule(FunctionRun run,
                                         std::vector<WorkersArgument> workers = {});
  void join() { queue_.join(); }
  bool done() { return queue_.done(); }

  // Counters since the start.
  struct Counts {
    std::int64_t finished = 0;
    std::int64_t put_back = 0;               // closures that lost their worker
    std::int64_t lost_workers = 0;           // a worker that is lost twice counts twice
    Staleness staleness;                     // of the updates of finished closures
    std::vector<std::int64_t> updates_lost;  // LostUpdates
  };
  Counts counts() const;

 private:
  class RunClosure;
  struct RunEnd;
  struct WorkerState;
  struct WorkersFunction;
  struct WorkersIterator;
  using FunctionPtr = std::shared_ptr<const WorkersFunction>;

  void cancel_running();
  void settle(const ClosureQueue::Closures& unknown);
  void open(RunClosure& closure);
  void count_recomputed();
  void serve(WorkerState& worker);
  void run(WorkerState& worker, const std::shared_ptr<RunClosure>& closure);
  // `run`: among those of the worker.
  RunEnd run_to_end(WorkerState& worker, const std::shared_ptr<RunClosure>& closure,
                    std::uint64_t run);
  RunEnd run_at_once(WorkerState& worker, RunClosure& closure, std::uint64_t run);
  RunEnd run_decided(WorkerState& worker, const std::shared_ptr<RunClosure>& closure,
                     std::uint64_t run, bool& superseded);
  // Has the servers apply the step that the closure completed.
  Staleness commit(WorkerState& worker, RunClosure& closure, std::uint64_t run);
  void set_result(RunClosure& closure, RunResult result);
  void report(const std::vector<AppliedUpdates>& applied) const;
  // Waits until the closures that took elements before these have ended. Returns false if one of
  // them was lost: the worker gives its elements, and these, again.
  bool advance_iterators(WorkerState& worker, std::uint64_t run,
                         const std::vector<TakenElements>& taken);
  // `function`: the closure's. `attempt`: FunctionRun.
  RunResult call(WorkerState& worker, RunClosure& closure, const FunctionPtr& function,
                 std::uint64_t run, std::optional<std::uint64_t> attempt);
  WorkerClient::Running start_on(WorkerState& worker, RunClosure& closure,
                                 const FunctionPtr& function, std::optional<std::uint64_t> attempt);
  void send_function(WorkerState& worker, const FunctionPtr& function);
  void send_iterators(WorkerState& worker, const RunClosure& closure);
  // Waits until the worker answers again. Reports an error after each recovery limit. REQUIRES: no
  // closure runs there.
  void recover(WorkerState& worker);
  void finish(std::uint64_t closure);
  proto::FinishedClosures finished() const;

  const Options options_;
  const std::vector<std::shared_ptr<ServerClient>> servers_;
  std::vector<std::unique_ptr<WorkerState>> workers_;
  Decisions decisions_;
  ClosureQueue queue_;
  std::atomic<bool> stopped_ = false;
  OwnProcess process_;
  mutable std::mutex mutex_;  // guards the following
  std::map<std::uint64_t, std::shared_ptr<const WorkersFunction>> functions_;
  std::map<std::uint64_t, std::shared_ptr<const WorkersIterator>> iterators_;
  std::set<std::uint64_t> open_;  // closures that have not ended
  std::uint64_t next_closure_ = 0, next_run_ = 0;
  std::uint64_t last_ended_ = 0;  // the largest closure that has ended, and 1
  Counts counts_;
};

}  // namespace tandem::ps
