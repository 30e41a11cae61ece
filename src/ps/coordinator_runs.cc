// The threads of the workers.
#include <algorithm>
#include <set>

#include "core/log.h"
#include "core/status.h"
#include "ps/coordinator_state.h"

namespace tandem::ps {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTakeLimit{100};  // how soon a thread notices the end
constexpr milliseconds kProbeLimit{1000};

// Throws rpc::PeerUnavailableError if the worker does not answer soon.
std::uint64_t incarnation_of(WorkerClient& worker) {
  try {
    return worker.probe({.limit = kProbeLimit, .wait_for_server = true});
  } catch (const rpc::CallDeadlineError& error) {
    throw rpc::PeerUnavailableError(error.what());
  }
}

}  // namespace

void Coordinator::serve(WorkerState& worker) {
  while (!stopped_) {
    {
      std::unique_lock lock(worker.mutex);
      if (!worker.changed.wait_for(lock, kTakeLimit, [&] { return !worker.lost; })) continue;
    }
    if (const auto closure = queue_.take(kTakeLimit))
      run(worker, std::static_pointer_cast<RunClosure>(closure));
  }
}

void Coordinator::run(WorkerState& worker, const std::shared_ptr<RunClosure>& closure) {
  std::uint64_t run = 0;
  {
    const std::lock_guard lock(mutex_);
    run = next_run_++;
  }
  {
    const std::lock_guard lock(worker.mutex);
    if (worker.lost) {
      queue_.put_back(closure);
      return;
    }
    worker.runs.emplace(run, nullptr);
  }
  const RunEnd end = run_to_end(worker, closure, run);
  bool newly_lost = false, ready = false;
  {
    const std::lock_guard lock(worker.mutex);
    worker.runs.erase(run);
    newly_lost = end.worker_lost && !worker.lost;
    worker.lost = worker.lost || end.worker_lost;
    ready = worker.lost && worker.runs.empty();
    if (decisions_.decides() && !closure->run.iterators.empty())
      worker.settled.push_back(closure->run.closure);
    worker.changed.notify_all();
  }
  {
    const std::lock_guard lock(mutex_);
    if (end.worker_lost && end.again) ++counts_.put_back;
    if (newly_lost) ++counts_.lost_workers;
  }
  if (end.again) queue_.put_back(closure);
  if (ready) recover(worker);
}

Coordinator::RunEnd Coordinator::run_to_end(WorkerState& worker,
                                            const std::shared_ptr<RunClosure>& closure,
                                            std::uint64_t run) {
  bool superseded = false;
  const auto failed = [&] {
    if (!superseded) queue_.failed(closure, std::current_exception());
  };
  try {
    if (!decisions_.decides()) return run_at_once(worker, *closure, run);
    return run_decided(worker, closure, run, superseded);
  } catch (const rpc::PeerUnavailableError& error) {
    logging::warn("[ClusterCoordinator] {} was lost: {}. Another worker runs its closure",
                  worker.name, error.what());
    return {.worker_lost = true, .again = !superseded};
  } catch (const WorkerRestartedError&) {
    logging::warn("[ClusterCoordinator] {} was restarted", worker.name);
    return {.worker_lost = true, .again = !superseded};
  } catch (const AbortedError&) {
    if (queue_.cancelling()) return {.again = !superseded};
    failed();
  } catch (const std::exception&) {
    failed();
  }
  return {};
}

Coordinator::RunEnd Coordinator::run_at_once(WorkerState& worker, RunClosure& closure,
                                             std::uint64_t run) {
  RunResult result = call(worker, closure, closure.function, run, {});
  if (!advance_iterators(worker, run, result.taken))
    throw rpc::PeerUnavailableError("a closure that took elements earlier was lost");
  set_result(closure, std::move(result));
  closure.release();
  queue_.finished();
  return {};
}

// Once the closure's part was decided, its end is certain, also if the worker is lost.
Coordinator::RunEnd Coordinator::run_decided(WorkerState& worker,
                                             const std::shared_ptr<RunClosure>& closure,
                                             std::uint64_t run, bool& superseded) {
  for (;;) {
    const std::uint64_t attempt =
        decisions_.begin(closure->run.closure, closure, closure->function->decided);
    RunResult result;
    try {
      result = call(worker, *closure, closure->function, run, attempt);
    } catch (...) {
      superseded = !decisions_.release(attempt);
      throw;
    }
    const Decisions::Outcome outcome = decisions_.decide(attempt);
    if (outcome == Decisions::Outcome::kSuperseded) return {};
    if (outcome == Decisions::Outcome::kStale) {
      count_recomputed();
      if (closure->run.iterators.empty()) return {.again = true};
      continue;
    }
    if (outcome == Decisions::Outcome::kComplete)
      result.staleness.add(commit(worker, *closure, run));
    advance_iterators(worker, run, result.taken);
    set_result(*closure, std::move(result));
    if (outcome == Decisions::Outcome::kWaits)
      closure->function.reset();  // commit() may need the rest
    else
      closure->release();
    queue_.finished();
    return {};
  }
}

Staleness Coordinator::commit(WorkerState& worker, RunClosure& closure, std::uint64_t run) {
  Staleness staleness;
  for (;;) {
    const Decisions::Committed committed = decisions_.commit(closure.run.closure, finished());
    staleness.add(committed.staleness);
    report(committed.applied);
    if (committed.missing.empty()) return staleness;
    logging::warn(
        "[ClusterCoordinator] a server was restarted, and does not know the updates of {} calls "
        "any more: they run again",
        committed.missing.size());
    for (const Decisions::Missing& missing : committed.missing) {
      auto& lost = static_cast<RunClosure&>(*missing.call);
      call(worker, lost, closure.function, run, missing.attempt);
      const std::lock_guard lock(worker.mutex);
      worker.settled.push_back(lost.run.closure);
    }
  }
}

void Coordinator::report(const std::vector<AppliedUpdates>& applied) const {
  if (!options_.lost_updates) return;
  for (const AppliedUpdates& updates : applied) options_.lost_updates->returned(updates);
}

void Coordinator::set_result(RunClosure& closure, RunResult result) {
  report(result.applied);
  finish(closure.run.closure);
  {
    const std::lock_guard lock(mutex_);
    counts_.staleness.add(result.staleness);
    ++counts_.finished;
  }
  closure.result->set(std::move(result.tensors));
}

WorkerClient::Running Coordinator::start_on(WorkerState& worker, RunClosure& closure,
                                            const FunctionPtr& function,
                                            std::optional<std::uint64_t> attempt) {
  FunctionRun run = closure.run;
  const std::lock_guard lock(worker.starting);
  if (worker.incarnation == 0) worker.incarnation = incarnation_of(worker.client);
  send_function(worker, function);
  send_iterators(worker, closure);
  for (const WorkersArgument& argument : closure.workers)
    run.arguments.at(argument.index) = argument.values->at(static_cast<std::size_t>(worker.index));
  run.finished = finished();
  run.attempt = attempt;
  {
    const std::lock_guard settled(worker.mutex);
    run.settled = std::exchange(worker.settled, {});
  }
  closure.start();
  return worker.client.run(run, worker.incarnation, {.limit = options_.run_limit});
}

RunResult Coordinator::call(WorkerState& worker, RunClosure& closure, const FunctionPtr& function,
                            std::uint64_t run, std::optional<std::uint64_t> attempt) {
  WorkerClient::Running running = start_on(worker, closure, function, attempt);
  struct Cancellable {
    Cancellable(WorkerState& worker_, std::uint64_t id_, WorkerClient::Running* running)
        : worker(worker_), id(id_) {
      set(running);
    }
    ~Cancellable() { set(nullptr); }
    void set(WorkerClient::Running* running) const {
      const std::lock_guard lock(worker.mutex);
      worker.runs.at(id) = running;
    }
    WorkerState& worker;
    const std::uint64_t id;
  } const cancellable(worker, run, &running);
  // From now on another thread may run the closure.
  if (attempt && closure.run.iterators.empty()) decisions_.may_move(*attempt);
  if (queue_.cancelling()) running.cancel();
  try {
    return running.wait();
  } catch (const rpc::PeerUnavailableError&) {
    throw;
  } catch (const WorkerRestartedError&) {
    throw;
  } catch (const rpc::CallDeadlineError&) {
    throw;
  } catch (const UnavailableError& error) {
    fail<UnavailableError>("[{}] {}", worker.name, error.what());
  } catch (const DeadlineExceededError& error) {
    fail<DeadlineExceededError>("[{}] {}", worker.name, error.what());
  }
}

bool Coordinator::advance_iterators(WorkerState& worker, std::uint64_t run,
                                    const std::vector<TakenElements>& taken) {
  if (taken.empty()) return true;
  std::unique_lock lock(worker.mutex);
  const auto in_order = [&] {
    return std::all_of(taken.begin(), taken.end(), [&](const TakenElements& elements) {
      return worker.positions[elements.iterator] == elements.before;
    });
  };
  // Those that took elements before this one did are among them.
  std::set<std::uint64_t> others;
  for (const auto& [id, running] : worker.runs)
    if (id != run) others.insert(id);
  const auto others_ended = [&] {
    std::erase_if(others, [&](std::uint64_t id) { return !worker.runs.contains(id); });
    return others.empty();
  };
  worker.changed.wait(lock, [&] { return in_order() || worker.lost || others_ended(); });
  if (!in_order() && worker.lost) return false;
  for (const TakenElements& elements : taken) {
    data::IterateOptions& last = worker.positions[elements.iterator];
    const data::IterateOptions& next = elements.after;
    if (std::pair(next.epoch, next.skip) > std::pair(last.epoch, last.skip)) last = next;
  }
  worker.changed.notify_all();
  return true;
}

void Coordinator::send_function(WorkerState& worker, const FunctionPtr& function) {
  if (worker.functions.contains(function->id)) return;
  std::vector<std::uint64_t> removed;
  std::erase_if(worker.functions, [&](const auto& entry) {
    if (entry.second.expired()) removed.push_back(entry.first);
    return entry.second.expired();
  });
  if (!removed.empty()) worker.client.remove_functions(removed, {.limit = options_.run_limit});
  worker.client.add_function(function->id, function->message, {.limit = options_.run_limit});
  worker.functions.emplace(function->id, function);
}

void Coordinator::send_iterators(WorkerState& worker, const RunClosure& closure) {
  std::vector<std::uint64_t> removed;
  {
    const std::lock_guard lock(worker.mutex);
    std::erase_if(worker.iterators, [&](const auto& entry) {
      const bool expired = entry.second.iterator.expired();
      if (expired && entry.second.made) removed.push_back(entry.first);
      if (expired) worker.positions.erase(entry.first);
      return expired;
    });
  }
  if (!removed.empty()) worker.client.remove_iterators(removed, {.limit = options_.run_limit});
  for (const auto& iterator : closure.iterators) {
    WorkerState::OwnIterator& own =
        worker.iterators.try_emplace(iterator->id, WorkerState::OwnIterator{iterator})
            .first->second;
    if (own.made) continue;
    data::IterateOptions position;
    {
      const std::lock_guard lock(worker.mutex);
      position = worker.positions.try_emplace(iterator->id, iterator->start).first->second;
    }
    worker.client.add_iterator(iterator->id, data::for_worker(iterator->dataset, worker.index),
                               position, {.limit = options_.run_limit});
    own.made = true;
  }
}

void Coordinator::recover(WorkerState& worker) {
  const std::lock_guard starting(worker.starting);  // no other thread wants it now
  worker.functions.clear();
  for (auto& [id, own] : worker.iterators) own.made = false;
  worker.incarnation = 0;
  auto end = std::chrono::steady_clock::now() + options_.recovery_limit;
  while (!stopped_) {
    if (std::chrono::steady_clock::now() >= end) {
      queue_.report(std::make_exception_ptr(UnavailableError(
          fmt::format("[ClusterCoordinator] {} was lost and has not come back within {} ms",
                      worker.name, options_.recovery_limit.count()))));
      end += options_.recovery_limit;
    }
    try {
      worker.incarnation = incarnation_of(worker.client);
      logging::info("[ClusterCoordinator] {} is back", worker.name);
      const std::lock_guard lock(worker.mutex);
      worker.lost = false;
      worker.changed.notify_all();
      return;
    } catch (const Error&) {
      std::this_thread::sleep_for(kTakeLimit);
    }
  }
}

}  // namespace tandem::ps
