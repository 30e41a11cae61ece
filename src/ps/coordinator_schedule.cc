// Scheduling, and the end of what was cancelled.
#include <algorithm>
#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "core/threads.h"
#include "graph/graph.h"
#include "ps/coordinator_state.h"

namespace tandem::ps {
namespace {

// The error of a closure that was cancelled while it ran.
std::exception_ptr end_of_cancelled(std::uint64_t applied, std::uint64_t updates,
                                    const std::string& unreachable) {
  if (!unreachable.empty() && applied < updates)
    return std::make_exception_ptr(
        UnavailableError("The corresponding function was cancelled while it ran. It is not known "
                         "whether its updates "
                         "were applied: " +
                         unreachable));
  if (applied == 0)
    return std::make_exception_ptr(AbortedError(
        "The corresponding function was cancelled while it ran. None of its updates was applied. "
        "Please reschedule the function."));
  return std::make_exception_ptr(
      DataLossError(fmt::format("The corresponding function was cancelled after {} of its {} "
                                "updates were applied. Its result "
                                "is lost.",
                                applied, updates)));
}

}  // namespace

Coordinator::Coordinator(std::vector<WorkerTask> workers,
                         std::vector<std::shared_ptr<ServerClient>> servers, const Options& options)
    : options_(options),
      servers_(servers),
      decisions_(std::move(servers), options.rules,
                 [this](const std::shared_ptr<Closure>& superseded) {
                   count_recomputed();
                   queue_.put_back(superseded);
                 }),
      queue_(options.queue,
             {.cancel_running = [this] { cancel_running(); },
              .settle = [this](const ClosureQueue::Closures& unknown) { settle(unknown); }}) {
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
    for (std::thread& thread : worker->threads) process_.join(thread);
}

std::weak_ptr<const void> Coordinator::add_function(std::uint64_t id, proto::Function function) {
  auto made = std::make_shared<const WorkersFunction>(id, std::move(function));
  const std::lock_guard lock(mutex_);
  return functions_.try_emplace(id, std::move(made)).first->second;
}

void Coordinator::remove_function(std::uint64_t id) {
  decisions_.forget(id);
  const std::lock_guard lock(mutex_);
  functions_.erase(id);
}

void Coordinator::add_iterator(std::uint64_t id, data::DatasetDescription dataset,
                               const data::IterateOptions& start) {
  if (context.graph)
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
  }
  queue_.schedule(closure);
  return closure->result;
}

Coordinator::Counts Coordinator::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  if (options_.lost_updates) counts.updates_lost = options_.lost_updates->counts();
  return counts;
}

void Coordinator::count_recomputed() {
  const std::lock_guard lock(mutex_);
  ++counts_.staleness.recomputed;
}

void Coordinator::open(RunClosure& closure) {
  const std::lock_guard lock(mutex_);
  closure.run.closure = next_closure_++;
  open_.insert(closure.run.closure);
}

void Coordinator::finish(std::uint64_t closure) {
  const std::lock_guard lock(mutex_);
  open_.erase(closure);
  last_ended_ = std::max(last_ended_, closure + 1);
}

proto::FinishedClosures Coordinator::finished() const {
  const std::lock_guard lock(mutex_);
  proto::FinishedClosures finished;
  finished.set_below(last_ended_);
  finished.mutable_open()->Add(open_.begin(), open_.lower_bound(last_ended_));
  return finished;
}

void Coordinator::cancel_running() {
  for (const auto& worker : workers_) {
    const std::lock_guard lock(worker->mutex);
    for (const auto& [run, running] : worker->runs)
      if (running) running->cancel();
  }
}

// Every closure has ended, or is among these.
void Coordinator::settle(const ClosureQueue::Closures& unknown) {
  std::vector<std::uint64_t> ids;
  for (const auto& closure : unknown)
    ids.push_back(static_cast<const RunClosure&>(*closure).run.closure);
  const std::vector<std::uint64_t> waiting = decisions_.waiting();
  std::uint64_t below = 0;
  {
    const std::lock_guard lock(mutex_);
    below = next_closure_;
  }
  std::vector<std::uint64_t> applied(ids.size());
  std::string unreachable;
  const auto attempt = [&](const auto& action) {
    try {
      action();
    } catch (const std::exception& error) {
      unreachable += fmt::format("{}{}", unreachable.empty() ? "" : "; ", error.what());
    }
  };
  std::vector<Pending<std::vector<std::uint64_t>>> calls;
  for (const auto& server : servers_)
    attempt([&] { calls.push_back(server->close(below, waiting, ids, options_.settle_limit)); });
  for (auto& call : calls)
    attempt([&] {
      const std::vector<std::uint64_t> of_server = call.wait();
      for (std::size_t i = 0; i < applied.size(); ++i) applied[i] += of_server[i];
    });
  if (!unreachable.empty())
    logging::warn("[ClusterCoordinator] a server may still apply updates of calls that failed: {}",
                  unreachable);
  for (std::size_t i = 0; i < unknown.size(); ++i) {
    const auto& closure = static_cast<const RunClosure&>(*unknown[i]);
    const auto updates = static_cast<std::uint64_t>(closure.function->message.updates_size());
    unknown[i]->cancel(end_of_cancelled(applied[i], updates, unreachable));
  }
}

}  // namespace tandem::ps
