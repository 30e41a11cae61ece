#include "ps/decisions.h"

#include <algorithm>
#include <exception>

#include "core/log.h"
#include "core/status.h"

namespace tandem::ps {

Decisions::Function::Function(std::uint64_t id_, const proto::Function& message) : id(id_) {
  for (const proto::Part::Variable& variable : message.worker().variables())
    for (const proto::Shard& shard : variable.shards()) reads.insert(shard.id());
  for (const proto::RowRead& read : message.row_reads())
    for (const proto::Shard& shard : read.shards()) reads.insert(shard.id());
  for (int i = 0; i < message.updates_size(); ++i) {
    const proto::Update& update = message.updates(i);
    updates[server_of(update)].push_back(static_cast<std::uint32_t>(i));
    for (const proto::Part::Variable& variable : update.part().variables())
      for (const proto::Shard& shard : variable.shards()) writes.insert(shard.id());
  }
}

Decisions::Decisions(std::vector<std::shared_ptr<ServerClient>> servers, const Rules& rules,
                     std::function<void(const std::shared_ptr<Closure>&)> superseded)
    : servers_(std::move(servers)), rules_(rules), superseded_(std::move(superseded)) {}

std::uint64_t Decisions::staleness_of(const Attempt& attempt) const {
  std::uint64_t result = 0;
  for (const auto& [variable, seen] : attempt.seen) {
    const auto found = writes_.find(variable);
    if (found != writes_.end()) result = std::max(result, found->second.decided - seen);
  }
  return result;
}

bool Decisions::is_superseded(const Attempt& attempt) const {
  return attempt.may_move && !decided_.contains(attempt.closure) &&
         staleness_of(attempt) > *rules_.max_staleness;
}

std::uint64_t Decisions::begin(std::uint64_t closure, std::shared_ptr<Closure> call,
                               std::shared_ptr<const Function> function) {
  Attempt attempt{.closure = closure, .call = std::move(call), .function = std::move(function)};
  Lock lock(mutex_);
  const auto fresh = [&] {
    attempt.seen.clear();
    for (const VariableId variable : attempt.function->reads) {
      const auto found = writes_.find(variable);
      attempt.seen.emplace(variable, found == writes_.end() ? 0 : found->second.applied);
    }
    return decided_.contains(closure) || staleness_of(attempt) <= *rules_.max_staleness;
  };
  changed_.wait_for(lock, rules_.turn_limit, fresh);
  running_.emplace(++last_attempt_, std::move(attempt));
  return last_attempt_;
}

void Decisions::may_move(std::uint64_t attempt) {
  std::shared_ptr<Closure> superseded;
  {
    const std::lock_guard lock(mutex_);
    const auto found = running_.find(attempt);
    if (found == running_.end()) return;
    found->second.may_move = true;
    if (!is_superseded(found->second)) return;
    superseded = std::move(found->second.call);
    running_.erase(found);
  }
  superseded_(superseded);
}

bool Decisions::release(std::uint64_t attempt) {
  const std::lock_guard lock(mutex_);
  return running_.erase(attempt) > 0;
}

Decisions::Outcome Decisions::decide(std::uint64_t number) {
  std::vector<std::shared_ptr<Closure>> superseded;
  {
    const std::lock_guard lock(mutex_);
    const auto node = running_.extract(number);
    if (node.empty()) return Outcome::kSuperseded;
    Attempt& attempt = node.mapped();
    // Its step was decided, and the worker of an earlier run for a server was lost.
    if (const auto step = decided_.find(attempt.closure); step != decided_.end()) {
      for (Contribution& contribution : step->second.contributions)
        if (contribution.closure == attempt.closure) contribution.attempt = number;
      return Outcome::kComplete;
    }
    if (staleness_of(attempt) > *rules_.max_staleness) return Outcome::kStale;
    const Function& function = *attempt.function;
    if (function.updates.empty()) return Outcome::kReadOnly;
    std::vector<Contribution>& waiting = waiting_[function.id];
    waiting.push_back({attempt.closure, number, std::move(attempt.call)});
    if (waiting.size() < rules_.calls_per_update) return Outcome::kWaits;
    std::sort(waiting.begin(), waiting.end(),
              [](const auto& a, const auto& b) { return a.closure < b.closure; });
    Step& step = decided_[attempt.closure];
    step = {.function = attempt.function, .contributions = std::move(waiting)};
    waiting_.erase(function.id);
    for (const auto& [server, indices] : function.updates) step.servers.insert(server);
    for (const VariableId variable : function.writes) ++writes_[variable].decided;
    std::erase_if(running_, [&](const auto& entry) {
      const bool now = is_superseded(entry.second);
      if (now) superseded.push_back(entry.second.call);
      return now;
    });
  }
  for (const auto& call : superseded) superseded_(call);
  return Outcome::kComplete;
}

std::vector<std::pair<std::size_t, Pending<ServerClient::Committed>>> Decisions::send(
    const Step& step, std::uint64_t closure, const proto::FinishedClosures& finished,
    std::span<const std::uint64_t> waiting) const {
  UpdateCalls::Commit commit{.function = step.function->id, .closure = closure};
  for (const Contribution& contribution : step.contributions)
    commit.contributions.push_back({contribution.closure, contribution.attempt});
  std::vector<std::pair<std::size_t, Pending<ServerClient::Committed>>> calls;
  for (const std::size_t server : step.servers) {
    commit.indices = step.function->updates.at(server);
    calls.emplace_back(server, servers_.at(server)->commit(commit, finished, waiting));
  }
  return calls;
}

Decisions::Committed Decisions::commit(std::uint64_t closure,
                                       const proto::FinishedClosures& finished) {
  Step step;
  std::vector<std::uint64_t> waiting;
  {
    Lock lock(mutex_);
    Step& decided = decided_.at(closure);
    const std::set<VariableId>& writes = decided.function->writes;
    const auto free = [&] {
      return std::none_of(writes.begin(), writes.end(),
                          [&](VariableId variable) { return writes_.at(variable).sending; });
    };
    if (!decided.sent) {
      if (!changed_.wait_for(lock, rules_.turn_limit, free)) {
        end(closure);
        fail<DeadlineExceededError>(
            "[ClusterCoordinator] an update waits for another one of the same variables, which was "
            "not sent to all servers within {} ms",
            rules_.turn_limit.count());
      }
      for (const VariableId variable : writes) writes_.at(variable).sending = true;
      decided.sent = true;
    }
    step = decided;
    waiting = waiting_closures();
  }
  Committed result;
  std::set<std::uint64_t> missing;
  std::exception_ptr error;
  try {
    for (auto& [server, call] : send(step, closure, finished, waiting)) try {
        ServerClient::Committed reply = call.wait();
        UpdateCalls::Committed& committed = reply.step;
        missing.insert(committed.missing.begin(), committed.missing.end());
        if (committed.missing.empty()) {
          step.servers.erase(server);
          result.applied.push_back({.server = server,
                                    .life = std::move(reply.life),
                                    .numbers = std::move(committed.numbers)});
        }
        result.staleness.add(
            {.measured = committed.measured, .sum = committed.sum, .max = committed.max});
      } catch (...) {
        if (!error) error = std::current_exception();
      }
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  if (error && step.contributions.size() > 1)
    logging::warn(
        "[ClusterCoordinator] servers have not applied the mean of {} calls, of which the others "
        "have returned; the error of the last one says why",
        step.contributions.size());
  if (error || missing.empty()) {
    end(closure);
    if (error) std::rethrow_exception(error);
    return result;
  }
  Step& decided = decided_.at(closure);
  decided.servers = step.servers;
  for (Contribution& contribution : decided.contributions)
    if (missing.contains(contribution.closure)) {
      contribution.attempt = ++last_attempt_;
      result.missing.push_back({contribution.call, contribution.attempt});
    }
  return result;
}

void Decisions::drop(std::uint64_t closure) {
  const std::lock_guard lock(mutex_);
  if (decided_.contains(closure)) end(closure);
}

void Decisions::end(std::uint64_t closure) {
  const auto found = decided_.find(closure);
  for (const VariableId variable : found->second.function->writes) {
    Writes& writes = writes_.at(variable);
    ++writes.applied;
    if (found->second.sent) writes.sending = false;
  }
  decided_.erase(found);
  changed_.notify_all();
}

std::vector<std::uint64_t> Decisions::waiting_closures() const {
  std::vector<std::uint64_t> closures;
  for (const auto& [function, contributions] : waiting_)
    for (const Contribution& contribution : contributions) closures.push_back(contribution.closure);
  for (const auto& [closure, step] : decided_)
    for (const Contribution& contribution : step.contributions)
      closures.push_back(contribution.closure);
  return closures;
}

std::vector<std::uint64_t> Decisions::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_closures();
}

void Decisions::forget(std::uint64_t function) {
  const std::lock_guard lock(mutex_);
  waiting_.erase(function);
}

}  // namespace tandem::ps
