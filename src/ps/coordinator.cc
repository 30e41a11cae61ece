#include "ps/coordinator.h"

#include <algorithm>
#include <condition_variable>
#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "core/threads.h"
#include "graph/graph.h"

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

RemoteResult::State RemoteResult::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::vector<Tensor> RemoteResult::wait(std::chrono::milliseconds limit) const {
  std::unique_lock lock(mutex_);
  if (!ended_.wait_for(lock, limit, [&] { return state_ != State::kNotReady; }))
    fail<DeadlineExceededError>(
        "[RemoteValue] the function has not ended after {} ms: it is queued or runs",
        limit.count());
  if (state_ == State::kAborted) std::rethrow_exception(error_);
  return tensors_;
}

void RemoteResult::set(std::vector<Tensor> tensors) {
  const std::lock_guard lock(mutex_);
  TANDEM_ASSERT(state_ == State::kNotReady);
  tensors_ = std::move(tensors);
  state_ = State::kReady;
  ended_.notify_all();
}

void RemoteResult::abort(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  TANDEM_ASSERT(state_ == State::kNotReady);
  error_ = std::move(error);
  state_ = State::kAborted;
  ended_.notify_all();
}

struct Coordinator::WorkersFunction {
  std::uint64_t id;
  proto::Function message;
};

struct Coordinator::WorkersIterator {
  std::uint64_t id;
  data::DatasetDescription dataset;
  data::IterateOptions start;
};

class Coordinator::RunClosure final : public Closure {
 public:
  RunClosure(Coordinator& coordinator, FunctionRun run_, std::vector<WorkersArgument> workers_)
      : run(std::move(run_)), workers(std::move(workers_)), coordinator_(coordinator) {}
  void cancel(const std::exception_ptr& why) noexcept override {
    coordinator_.finish(run.closure);
    result->abort(why);
    release();
  }
  // It does not run again. Before join() returns, so that then its function can be removed.
  void release() {
    function.reset();
    iterators.clear();
  }

  FunctionRun run;
  const std::vector<WorkersArgument> workers;
  std::shared_ptr<const WorkersFunction> function;
  std::vector<std::shared_ptr<const WorkersIterator>> iterators;
  const std::shared_ptr<RemoteResult> result = std::make_shared<RemoteResult>();

 private:
  Coordinator& coordinator_;
};

struct Coordinator::WorkerState {
  WorkerState(int index_, WorkerTask task)
      : index(index_), name(std::move(task.name)), client(std::move(task.channel)) {}

  const int index;
  const std::string name;
  WorkerClient client;
  std::vector<std::thread> threads;
  std::mutex starting;                                                      // guards the following
  std::uint64_t incarnation = 0;                                            // 0: not known
  std::map<std::uint64_t, std::weak_ptr<const WorkersFunction>> functions;  // of this incarnation
  struct OwnIterator {
    std::weak_ptr<const WorkersIterator> iterator;
    bool made = false;  // whether this incarnation has it
  };
  std::map<std::uint64_t, OwnIterator> iterators;
  std::mutex mutex;                 // guards the following
  std::condition_variable changed;  // a closure ended, or the worker is back
  bool lost = false;                // until recover() has ended
  // The closures that run here, and their calls, which may be cancelled. Null: not started, or
  // ended.
  std::map<std::uint64_t, WorkerClient::Running*> closures;
  // By iterator: the position after the closures that finished.
  std::map<std::uint64_t, data::IterateOptions> positions;
};

Coordinator::Coordinator(std::vector<WorkerTask> workers, const Options& options)
    : options_(options),
      queue_(options.queue_capacity, options.end_limit, [this] { cancel_running(); }) {
  if (workers.empty())
    throw InvalidArgumentError("[ClusterCoordinator] expected at least one worker, got none");
  for (WorkerTask& task : workers)
    workers_.push_back(
        std::make_unique<WorkerState>(static_cast<int>(workers_.size()), std::move(task)));
  for (const auto& worker : workers_)
    for (std::size_t i = 0; i < options.closures_per_worker; ++i)
      worker->threads.push_back(start_thread([this, state = worker.get()] { serve(*state); }));
}

Coordinator::~Coordinator() {
  stopped_ = true;
  queue_.stop();
  for (const auto& worker : workers_)
    for (std::thread& thread : worker->threads) thread.join();
}

std::weak_ptr<const void> Coordinator::add_function(std::uint64_t id, proto::Function function) {
  auto made = std::make_shared<const WorkersFunction>(id, std::move(function));
  const std::lock_guard lock(mutex_);
  return functions_.try_emplace(id, std::move(made)).first->second;
}

void Coordinator::remove_function(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  functions_.erase(id);
}

void Coordinator::add_iterator(std::uint64_t id, data::DatasetDescription dataset,
                               const data::IterateOptions& start) {
  if (building)
    fail<FailedPreconditionError>(
        "[ClusterCoordinator] iterating over a dataset of the workers is not supported inside of "
        "td::function or in graph mode: make the iterator outside, and pass it as an argument");
  auto made = std::make_shared<const WorkersIterator>(id, std::move(dataset), start);
  const std::lock_guard lock(mutex_);
  iterators_.try_emplace(id, std::move(made));
}

void Coordinator::remove_iterator(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  iterators_.erase(id);
}

std::shared_ptr<RemoteResult> Coordinator::schedule(FunctionRun run,
                                                    std::vector<WorkersArgument> workers) {
  const auto closure = std::make_shared<RunClosure>(*this, std::move(run), std::move(workers));
  {
    const std::lock_guard lock(mutex_);
    const auto function = functions_.find(closure->run.function);
    if (function == functions_.end())
      fail<NotFoundError>("[ClusterCoordinator] function {} was not added", closure->run.function);
    closure->function = function->second;
    for (const std::uint64_t id : closure->run.iterators) {
      const auto found = iterators_.find(id);
      if (found == iterators_.end())
        fail<NotFoundError>("[ClusterCoordinator] iterator {} was not added", id);
      closure->iterators.push_back(found->second);
    }
    closure->run.closure = next_closure_++;
    open_.insert(closure->run.closure);
  }
  try {
    queue_.schedule(closure);
  } catch (...) {
    finish(closure->run.closure);
    throw;
  }
  return closure->result;
}

Coordinator::Counts Coordinator::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Coordinator::finish(std::uint64_t closure) {
  const std::lock_guard lock(mutex_);
  open_.erase(closure);
}

std::uint64_t Coordinator::finished_below() const {
  const std::lock_guard lock(mutex_);
  return open_.empty() ? next_closure_ : *open_.begin();
}

void Coordinator::cancel_running() {
  for (const auto& worker : workers_) {
    const std::lock_guard lock(worker->mutex);
    for (const auto& [closure, running] : worker->closures)
      if (running) running->cancel();
  }
}

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
  {
    const std::lock_guard lock(worker.mutex);
    if (worker.lost) {
      queue_.put_back(closure);
      return;
    }
    worker.closures.emplace(closure->run.closure, nullptr);
  }
  const bool here = run_to_end(worker, closure);
  bool newly_lost = false, ready = false;
  {
    const std::lock_guard lock(worker.mutex);
    worker.closures.erase(closure->run.closure);
    newly_lost = !here && !worker.lost;
    worker.lost = worker.lost || !here;
    ready = worker.lost && worker.closures.empty();
    worker.changed.notify_all();
  }
  if (!here) {
    {
      const std::lock_guard lock(mutex_);
      ++counts_.put_back;
      if (newly_lost) ++counts_.lost_workers;
    }
    queue_.put_back(closure);
  }
  if (ready) recover(worker);
}

bool Coordinator::run_to_end(WorkerState& worker, const std::shared_ptr<RunClosure>& closure) {
  try {
    closure->result->set(run_on(worker, *closure));
    finish(closure->run.closure);
    closure->release();
    {
      const std::lock_guard lock(mutex_);
      ++counts_.finished;
    }
    queue_.finished();
  } catch (const rpc::PeerUnavailableError& error) {
    logging::warn("[ClusterCoordinator] {} was lost: {}. Another worker runs its closure",
                  worker.name, error.what());
    return false;
  } catch (const WorkerRestartedError& error) {
    logging::warn("[ClusterCoordinator] {} was restarted", worker.name);
    return false;
  } catch (const std::exception&) {
    std::exception_ptr error = std::current_exception();
    if (queue_.cancelling())
      error = std::make_exception_ptr(AbortedError(
          "The corresponding function was cancelled while it ran. Its updates may have been "
          "applied."));
    closure->cancel(error);
    queue_.failed(error);
  }
  return true;
}

WorkerClient::Running Coordinator::start_on(WorkerState& worker, RunClosure& closure) {
  FunctionRun& run = closure.run;
  const std::lock_guard lock(worker.starting);
  if (worker.incarnation == 0) worker.incarnation = incarnation_of(worker.client);
  send_function(worker, closure);
  send_iterators(worker, closure);
  for (const WorkersArgument& argument : closure.workers)
    run.arguments.at(argument.index) = argument.values->at(static_cast<std::size_t>(worker.index));
  run.finished_below = finished_below();
  return worker.client.run(run, worker.incarnation, {.limit = options_.run_limit});
}

RunResult Coordinator::call(WorkerState& worker, RunClosure& closure) {
  WorkerClient::Running running = start_on(worker, closure);
  struct Cancellable {
    Cancellable(WorkerState& worker_, std::uint64_t id_, WorkerClient::Running* running)
        : worker(worker_), id(id_) {
      set(running);
    }
    ~Cancellable() { set(nullptr); }
    void set(WorkerClient::Running* running) const {
      const std::lock_guard lock(worker.mutex);
      worker.closures.at(id) = running;
    }
    WorkerState& worker;
    const std::uint64_t id;
  } const cancellable(worker, closure.run.closure, &running);
  if (queue_.cancelling()) running.cancel();
  return running.wait();
}

std::vector<Tensor> Coordinator::run_on(WorkerState& worker, RunClosure& closure) {
  RunResult result = call(worker, closure);
  if (!result.taken.empty()) advance_iterators(worker, closure, result.taken);
  const std::lock_guard lock(mutex_);
  counts_.staleness.add(result.staleness);
  return std::move(result.tensors);
}

void Coordinator::advance_iterators(WorkerState& worker, const RunClosure& closure,
                                    const std::vector<TakenElements>& taken) {
  std::unique_lock lock(worker.mutex);
  const auto in_order = [&] {
    return std::all_of(taken.begin(), taken.end(), [&](const TakenElements& elements) {
      return worker.positions[elements.iterator] == elements.before;
    });
  };
  // Those that took elements before this one did are among them.
  std::set<std::uint64_t> others;
  for (const auto& [id, running] : worker.closures)
    if (id != closure.run.closure) others.insert(id);
  const auto others_ended = [&] {
    std::erase_if(others, [&](std::uint64_t id) { return !worker.closures.contains(id); });
    return others.empty();
  };
  worker.changed.wait(lock, [&] { return in_order() || worker.lost || others_ended(); });
  if (!in_order() && worker.lost)
    throw rpc::PeerUnavailableError("a closure that took elements earlier was lost");
  for (const TakenElements& elements : taken) {
    data::IterateOptions& last = worker.positions[elements.iterator];
    const data::IterateOptions& next = elements.after;
    if (std::pair(next.epoch, next.skip) > std::pair(last.epoch, last.skip)) last = next;
  }
  worker.changed.notify_all();
}

void Coordinator::send_function(WorkerState& worker, const RunClosure& closure) {
  const WorkersFunction& function = *closure.function;
  if (worker.functions.contains(function.id)) return;
  std::vector<std::uint64_t> removed;
  std::erase_if(worker.functions, [&](const auto& entry) {
    if (entry.second.expired()) removed.push_back(entry.first);
    return entry.second.expired();
  });
  if (!removed.empty()) worker.client.remove_functions(removed, {.limit = options_.run_limit});
  worker.client.add_function(function.id, function.message, {.limit = options_.run_limit});
  worker.functions.emplace(function.id, closure.function);
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
