// Decides which calls' updates happen, for strategies with a bound of staleness.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "ps/closure_queue.h"
#include "ps/server_client.h"
#include "ps/worker.h"

namespace tandem::ps {

// One decision per call, made here, in the chief, for all servers. A worker has the servers keep
// the updates of an attempt. A decision is then sent to the servers until each has answered. An
// attempt:
//
//   begin() --> runs: the worker reads and computes, and the servers keep its updates
//   runs --decide()--> stale: dropped, and the call gets another attempt
//   runs --a step of others is decided, after which it would be stale--> superseded: another worker
//          gets the call at once, and the attempt has no effect
//   runs --decide()--> waits: contributes to the next step of its function, with other calls
//   runs --decide()--> complete: so does its call, and that step is decided
//   complete --commit()--> every server has applied the step
//
// A step is the mean of the contributions of `calls_per_update` different calls. If a task
// ends between two of these:
//
//   the worker, before the decision   the call gets another attempt, whose updates the servers keep
//                                     instead
//   the worker, after it              the step needs nothing of the worker
//   a server that has kept updates    commit() names the calls that have to run again for it. The
//                                     decision stays: the servers that have applied the step do not
//                                     apply it again
//   a server that has applied a step  it continues from a snapshot; a step that this does not have
//                                     is lost, and counted by LostUpdates
//   the chief                         ends the job, and no task asks for the decision
//
// The staleness of an attempt is the largest number of steps, among the variables that it reads,
// that were decided since it began, or that a server may not have had then. No two steps that write
// the same variable are sent at the same time, so all servers apply them in the same order. With a
// bound of 0 the calls are serial. Thread-safe.
class Decisions {
 public:
  struct Rules {
    std::optional<std::uint64_t> max_staleness;  // none: workers apply their updates at once
    std::uint32_t calls_per_update = 1;
    std::chrono::milliseconds turn_limit = std::chrono::minutes(2);  // for steps of others
  };
  // A function, as far as it matters here.
  struct Function {
    Function(std::uint64_t id, const proto::Function& message);

    const std::uint64_t id;
    std::set<VariableId> reads, writes;
    std::map<std::size_t, std::vector<std::uint32_t>> updates;  // by server: indices
  };

  // `superseded` is called, without locks, with the calls of superseded attempts.
  Decisions(std::vector<std::shared_ptr<ServerClient>> servers, const Rules& rules,
            std::function<void(const std::shared_ptr<Closure>&)> superseded);

  bool decides() const { return rules_.max_staleness.has_value(); }

  // Returns the number of a new attempt, of a call that is known as `closure` to the servers. Waits
  // while steps are being sent after which it would be stale.
  std::uint64_t begin(std::uint64_t closure, std::shared_ptr<Closure> call,
                      std::shared_ptr<const Function> function);
  // From now on the attempt may be superseded. It is at once if it would be stale.
  void may_move(std::uint64_t attempt);
  // The attempt has failed or was lost. Returns false if it was superseded before.
  bool release(std::uint64_t attempt);

  enum class Outcome { kStale, kSuperseded, kReadOnly, kWaits, kComplete };
  Outcome decide(std::uint64_t attempt);

  struct Missing {
    std::shared_ptr<Closure> call;
    std::uint64_t attempt = 0;  // the number with which it has to run again
  };
  struct Committed {
    std::vector<Missing> missing;  // if not empty, commit() has to be called again after their runs
    Staleness staleness;
    std::vector<AppliedUpdates> applied;  // by the servers that have answered now
  };
  // Sends the step that `closure` completed. Throws the error of a server that does not apply it,
  // and DeadlineExceededError if steps of others are not sent within the limit.
  Committed commit(std::uint64_t closure, const proto::FinishedClosures& finished);

  // The call has ended without an effect that is known. Its step is not sent any more.
  void drop(std::uint64_t closure);
  // The calls that have ended and wait for others.
  std::vector<std::uint64_t> waiting() const;
  // Nothing is scheduled any more that could complete a step of this function.
  void forget(std::uint64_t function);

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Attempt {
    std::uint64_t closure = 0;
    std::shared_ptr<Closure> call;
    std::shared_ptr<const Function> function;
    // Steps that every server had when it began.
    std::map<VariableId, std::uint64_t> seen = {};
    bool may_move = false;
  };
  struct Contribution {
    std::uint64_t closure = 0, attempt = 0;
    std::shared_ptr<Closure> call;
  };
  struct Step {
    std::shared_ptr<const Function> function;
    std::vector<Contribution> contributions;  // in the order of their closures
    std::set<std::size_t> servers = {};       // that have to apply it
    bool sent = false;
  };
  // Steps that write a variable.
  struct Writes {
    std::uint64_t decided = 0, applied = 0;
    bool sending = false;
  };

  // REQUIRES: mutex_ is held.
  std::uint64_t staleness_of(const Attempt& attempt) const;
  bool is_superseded(const Attempt& attempt) const;
  std::vector<std::uint64_t> waiting_closures() const;
  void end(std::uint64_t closure);

  std::vector<std::pair<std::size_t, Pending<ServerClient::Committed>>> send(
      const Step& step, std::uint64_t closure, const proto::FinishedClosures& finished,
      std::span<const std::uint64_t> waiting) const;

  const std::vector<std::shared_ptr<ServerClient>> servers_;
  const Rules rules_;
  const std::function<void(const std::shared_ptr<Closure>&)> superseded_;
  mutable std::mutex mutex_;  // guards the following
  std::condition_variable changed_;
  std::uint64_t last_attempt_ = 0;
  std::map<std::uint64_t, Attempt> running_;                    // by number
  std::map<std::uint64_t, std::vector<Contribution>> waiting_;  // by function
  std::map<std::uint64_t, Step> decided_;                       // by the closure that completed it
  std::map<VariableId, Writes> writes_;
};

}  // namespace tandem::ps
