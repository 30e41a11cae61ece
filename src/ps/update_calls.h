// The calls that change the variables of one parameter server.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "ps/parameter_store.h"

namespace tandem::ps {

// The updates of a closure on one server: applied at once, or kept until the coordinator has
// decided (ps/decisions.h). A closure on a server:
//
//   unknown --apply--> applied
//   unknown --stage--> kept --commit--> applied
//                      kept --stage, of a later attempt--> kept
//                      kept --close--> dropped
//   any     --close--> closed: what arrives later has no effect
//
// Updates that are kept do not survive a restart of the server, and those that were computed from a
// state that a restart has lost are not applied: commit() then names the closures that are missing,
// and changes nothing. A snapshot has all updates of a call, or none. Thread-safe.
class UpdateCalls {
 public:
  using Cancelled = std::function<bool()>;

  // `store` has to outlive this object.
  explicit UpdateCalls(ParameterStore& store) : store_(store) {}

  struct Update {
    std::uint32_t index = 0;
    std::vector<Tensor> inputs;
    std::vector<proto::RunAttributes> attributes;
    std::optional<std::uint64_t> read_version;  // ParameterStore::apply()
  };
  struct Updates {
    std::uint64_t function = 0;
    std::uint64_t closure = 0;
    proto::FinishedClosures finished = {};
    std::vector<Update> updates = {};
  };
  // Applies all of them, or none if it throws InvalidArgumentError.
  std::vector<ParameterStore::Applied> apply(const Updates& updates);
  // Keeps them, instead of those of an earlier attempt. Throws as apply().
  void stage(Updates updates, std::uint64_t attempt);

  struct Contribution {
    std::uint64_t closure = 0, attempt = 0;
  };
  struct Commit {
    std::uint64_t function = 0;
    std::uint64_t closure = 0;                // for ParameterStore::apply()
    std::vector<std::uint32_t> indices = {};  // of the updates
    std::vector<Contribution> contributions = {};
  };
  struct Committed {
    std::vector<std::uint64_t> missing;  // closures. Not empty: nothing has happened
    std::uint64_t measured = 0, sum = 0, max = 0;
    std::vector<std::uint64_t> numbers;  // ParameterStore::Applied, also if it was applied before
  };
  // Applies the mean of the kept contributions, in their order, with the attributes of the first;
  // integers are those of the first. Again: nothing happens. Throws InvalidArgumentError, before
  // anything happens, if a contribution lacks one of the updates.
  Committed commit(const Commit& commit);

  // Drops what is kept of finished closures, except `waiting`.
  void drop(const proto::FinishedClosures& finished, std::span<const std::uint64_t> waiting);
  // From now on nothing happens for closures below this one. Waits until their calls that run have
  // ended. Returns how many updates were applied for each of `closures`. Throws AbortedError if
  // `cancelled` becomes true.
  std::vector<std::uint64_t> close_below(std::uint64_t closure,
                                         std::span<const std::uint64_t> closures,
                                         const Cancelled& cancelled);

  proto::ServerLife life() const { return store_.life(); }

 private:
  // A call that runs, unless its closure is closed.
  class Running;
  struct Kept {
    std::uint64_t attempt = 0;
    Updates updates;
  };

  void check(const Updates& updates) const;
  bool of_lost_state(const Updates& updates) const;
  // Returns the kept contributions of a commit. Closures that have none become `missing`.
  std::vector<std::shared_ptr<const Kept>> contributions_of(const Commit& commit,
                                                            std::vector<std::uint64_t>& missing);
  // The update of this index in each contribution; at least one. Throws InvalidArgumentError.
  static std::vector<const Update*> updates_of(
      std::uint64_t function, std::uint32_t index,
      std::span<const std::shared_ptr<const Kept>> contributions);
  // Applies the mean of the contributions to the update of this index, and adds to `result`.
  void apply_mean(const Commit& commit, std::uint32_t index,
                  std::span<const Update* const> contributions,
                  const ParameterStore::Change& change, Committed& result);

  ParameterStore& store_;
  std::mutex mutex_;  // guards the following
  std::condition_variable ended_;
  std::uint64_t closed_below_ = 0;
  std::multiset<std::uint64_t> running_;                       // closures of calls that run
  std::map<std::uint64_t, std::shared_ptr<const Kept>> kept_;  // by closure
};

}  // namespace tandem::ps
