// Schedules traced functions on the workers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ps/coordinator.h"
#include "ps/variable_servers.h"

namespace tandem::ps {

// Sends each function once to the servers and, by the coordinator, to the workers. Functions and
// variables that are gone here are removed there when another function is sent. Thread-safe.
class FunctionScheduler {
 public:
  struct Options {
    std::optional<std::uint64_t> max_staleness;  // FunctionRun
    std::uint32_t contributions = 1;
  };
  FunctionScheduler(std::shared_ptr<VariableServers> servers, Coordinator& coordinator,
                    const Options& options)
      : servers_(std::move(servers)), coordinator_(coordinator), options_(options) {}

  // Schedules a call with these tensors among the arguments. `iterators`: the coordinator's, in the
  // order of the iterators among the arguments. `workers`: arguments that differ between workers.
  // The call gets the learning rates, step numbers and random numbers that it would have if the
  // function ran here. The learning rates and step numbers of calls whose updates are averaged are
  // those of one step.
  //
  // Throws FailedPreconditionError for a function that uses variables of other strategies,
  // UnimplementedError as split(), and as Coordinator::schedule().
  std::shared_ptr<RemoteResult> schedule(const std::shared_ptr<const TracedFunction>& function,
                                         std::vector<Tensor> arguments,
                                         std::vector<std::uint64_t> iterators,
                                         std::vector<Coordinator::WorkersArgument> workers = {});

 private:
  struct Sent {
    std::weak_ptr<const TracedFunction> function;  // keeps the nodes below
    std::weak_ptr<const void> used;                // expires: Coordinator::add_function()
    std::uint64_t id = 0;
    std::vector<const Node*> worker_attributes, update_attributes;  // SplitFunction
    std::uint32_t calls_of_step = 0;
  };

  Sent& send(const std::shared_ptr<const TracedFunction>& function);
  void remove_expired();

  const std::shared_ptr<VariableServers> servers_;
  Coordinator& coordinator_;
  const Options options_;
  std::mutex mutex_;  // one call at a time
  std::map<const TracedFunction*, Sent> sent_;
  // By id: functions that are gone here, and whether closures still use them.
  std::map<std::uint64_t, std::weak_ptr<const void>> gone_;
  std::vector<VariableId> dropped_;  // variables of functions that are gone
  std::uint64_t next_id_ = 0;
};

}  // namespace tandem::ps
