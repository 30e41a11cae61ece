// A worker: runs closures with the variables of the servers.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "ps/lost_updates.h"
#include "ps/part_program.h"
#include "ps/server_client.h"
#include "tandem/data.h"
#include "tandem/random.h"

namespace tandem::ps {

// One run of a function.
struct FunctionRun {
  std::uint64_t function = 0;
  std::uint64_t closure = 0;  // see ParameterStore::apply()
  proto::FinishedClosures finished = {};
  std::vector<Tensor> arguments;
  std::vector<std::uint64_t> iterators;  // by index in the arguments
  // The servers keep the updates for a decision about this attempt. Then the worker keeps the
  // elements that the closure took, for its next attempt here. None: they apply them at once.
  std::optional<std::uint64_t> attempt;
  std::vector<std::uint64_t> settled;  // closures whose elements are not needed any more
  random::GeneratorState random;       // of its random operations
  std::vector<proto::RunAttributes> worker_attributes;
  std::vector<proto::RunAttributes> update_attributes;  // of the updates that have any
};

// The staleness of updates, in writes of the variable since it was read.
struct Staleness {
  std::uint64_t updates = 0;   // that were applied or kept, by this run or by one that was lost
  std::uint64_t measured = 0;  // those of this run, of which the following is known
  std::uint64_t sum = 0, max = 0;
  std::uint64_t recomputed = 0;  // how often calls were computed again because of it

  void add(const Staleness& other) {
    updates += other.updates;
    measured += other.measured;
    sum += other.sum;
    max = std::max(max, other.max);
    recomputed += other.recomputed;
  }
};

// Where an iterator was before and after a run took its elements.
struct TakenElements {
  std::uint64_t iterator = 0;
  data::IterateOptions before, after;
};

struct RunResult {
  std::vector<Tensor> tensors;
  Staleness staleness;
  std::vector<TakenElements> taken;
  std::vector<AppliedUpdates> applied;
};

// Thread-safe. A run reads variables and applies updates while another one computes; those of one
// function compute one after the other. Runs that take elements end in the order in which they took
// them.
class Worker {
 public:
  // `servers`: by their index.
  explicit Worker(std::vector<std::shared_ptr<ServerClient>> servers);
  ~Worker();

  // A random number that identifies this object.
  std::uint64_t incarnation() const { return incarnation_; }

  // Adds a function; again: nothing happens. Its updates have to be added to the servers before it
  // runs. Throws InvalidArgumentError for variables of a server that does not exist, and for an
  // update of variables on several servers.
  void add_function(std::uint64_t id, const proto::Function& function);
  // Runs that have begun still use it.
  void remove_function(std::uint64_t id);
  std::size_t num_functions() const;
  // The iterator replaces an earlier one with this id, whose elements are not kept any more.
  void add_iterator(std::uint64_t id, data::Iterator iterator);
  void remove_iterator(std::uint64_t id);

  using Cancelled = std::function<bool()>;
  // Takes the elements, reads the variables, runs the worker's part, sends the updates, and returns
  // the results.
  // Throws NotFoundError for an unknown function or iterator, OutOfRangeError at the end of an
  // iterator, errors of the function, UnavailableError if a server cannot be reached, and
  // AbortedError if `cancelled` is true before it computes, before it sends the updates, or while
  // it waits to end.
  RunResult run(
      const FunctionRun& run, const Cancelled& cancelled = [] { return false; });

 private:
  class Function;
  struct SharedIterator {
    std::mutex mutex;  // guards the following
    data::Iterator iterator;
  };

  class Turn;
  struct Elements {
    std::vector<Tensor> tensors;  // inputs of a run
    std::vector<TakenElements> taken;
  };

  std::shared_ptr<SharedIterator> iterator(std::uint64_t id) const;
  // Those that the run takes, or that an earlier attempt took.
  Elements elements_of(const FunctionRun& run, const Function& function);
  Elements take_elements(const FunctionRun& run, const Function& function) const;

  const std::uint64_t incarnation_;
  std::vector<std::shared_ptr<ServerClient>> servers_;
  mutable std::mutex mutex_;  // guards the following
  std::map<std::uint64_t, std::shared_ptr<Function>> functions_;
  std::map<std::uint64_t, std::shared_ptr<SharedIterator>> iterators_;
  std::mutex taking_;                       // one run at a time takes elements and its turn
  std::condition_variable turn_ended_;      // with mutex_
  std::set<std::uint64_t> turns_;           // of runs that have not ended
  std::map<std::uint64_t, Elements> kept_;  // by closure, for its next attempt
  std::uint64_t next_turn_ = 0;
};

}  // namespace tandem::ps
