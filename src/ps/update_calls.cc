#include "ps/update_calls.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/status.h"
#include "ps/finished_closures.h"

namespace tandem::ps {
namespace {

constexpr std::chrono::milliseconds kLookAround{100};

}  // namespace

class UpdateCalls::Running {
 public:
  Running(UpdateCalls& calls, std::uint64_t closure) : calls_(calls) {
    const std::lock_guard lock(calls.mutex_);
    if (closure >= calls.closed_below_) place_ = calls.running_.insert(closure);
  }
  ~Running() {
    if (!place_) return;
    {
      const std::lock_guard lock(calls_.mutex_);
      calls_.running_.erase(*place_);
    }
    calls_.ended_.notify_all();
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  bool closed() const { return !place_; }

 private:
  UpdateCalls& calls_;
  std::optional<std::multiset<std::uint64_t>::iterator> place_;
};

void UpdateCalls::check(const Updates& updates) const {
  for (const Update& update : updates.updates)
    store_.check(updates.function, update.index, update.inputs);
}

bool UpdateCalls::of_lost_state(const Updates& updates) const {
  return std::any_of(updates.updates.begin(), updates.updates.end(), [&](const Update& update) {
    return update.read_version &&
           *update.read_version > store_.version(updates.function, update.index);
  });
}

std::vector<ParameterStore::Applied> UpdateCalls::apply(const Updates& updates) {
  store_.finish(updates.finished);
  std::vector<ParameterStore::Applied> applied(updates.updates.size(), {.repeated = true});
  const Running running(*this, updates.closure);
  if (running.closed()) return applied;
  if (updates.updates.size() > 1) check(updates);
  const ParameterStore::Change all = store_.change();
  for (std::size_t i = 0; i < applied.size(); ++i) {
    const Update& update = updates.updates[i];
    applied[i] = store_.apply(updates.function, update.index, updates.closure, update.inputs,
                              update.attributes, update.read_version, all);
  }
  return applied;
}

void UpdateCalls::stage(Updates updates, std::uint64_t attempt) {
  store_.finish(updates.finished);
  check(updates);
  const std::uint64_t closure = updates.closure;
  auto made = std::make_shared<const Kept>(Kept{attempt, std::move(updates)});
  const std::lock_guard lock(mutex_);
  if (closure < closed_below_) return;
  std::shared_ptr<const Kept>& kept = kept_[closure];
  if (!kept || kept->attempt <= attempt) kept.swap(made);  // the old one is freed after the lock
}

std::vector<const UpdateCalls::Update*> UpdateCalls::updates_of(
    std::uint64_t function, std::uint32_t index,
    std::span<const std::shared_ptr<const Kept>> contributions) {
  std::vector<const Update*> found;
  for (const auto& kept : contributions)
    for (const Update& update : kept->updates.updates)
      if (kept->updates.function == function && update.index == index) found.push_back(&update);
  if (found.empty() || found.size() != contributions.size())
    fail<InvalidArgumentError>(
        "[ParameterServer] expected update {} of function {} in each of {} contributions, got {}",
        index, function, contributions.size(), found.size());
  return found;
}

std::vector<std::shared_ptr<const UpdateCalls::Kept>> UpdateCalls::contributions_of(
    const Commit& commit, std::vector<std::uint64_t>& missing) {
  std::vector<std::shared_ptr<const Kept>> contributions;
  const std::lock_guard lock(mutex_);
  for (const Contribution& contribution : commit.contributions) {
    const auto found = kept_.find(contribution.closure);
    if (found == kept_.end() || found->second->attempt != contribution.attempt ||
        of_lost_state(found->second->updates))
      missing.push_back(contribution.closure);
    else
      contributions.push_back(found->second);
  }
  return contributions;
}

void UpdateCalls::apply_mean(const Commit& commit, std::uint32_t index,
                             std::span<const Update* const> contributions,
                             const ParameterStore::Change& change, Committed& result) {
  std::vector<std::vector<Tensor>> inputs;
  std::vector<std::uint64_t> read_versions;
  for (const Update* update : contributions) {
    inputs.push_back(update->inputs);
    if (update->read_version) read_versions.push_back(*update->read_version);
  }
  const auto oldest = std::min_element(read_versions.begin(), read_versions.end());
  const ParameterStore::Applied applied =
      store_.apply(commit.function, index, commit.closure,
                   inputs.size() == 1 ? inputs[0] : store_.mean(commit.function, index, inputs),
                   contributions[0]->attributes,
                   oldest == read_versions.end() ? std::nullopt : std::optional(*oldest), change);
  result.numbers.push_back(applied.number);
  if (applied.repeated) return;
  result.measured += inputs.size();
  for (const std::uint64_t version : read_versions)
    result.sum += applied.version > version ? applied.version - version : 0;
  result.max = std::max(result.max, applied.staleness);
}

UpdateCalls::Committed UpdateCalls::commit(const Commit& commit) {
  Committed result;
  const Running running(*this, commit.closure);
  if (running.closed()) return result;
  for (const std::uint32_t index : commit.indices)
    if (const auto number = store_.applied(commit.function, index, commit.closure))
      result.numbers.push_back(*number);
  if (result.numbers.size() == commit.indices.size()) return result;
  result.numbers.clear();
  const auto contributions = contributions_of(commit, result.missing);
  if (!result.missing.empty()) return result;
  std::vector<std::vector<const Update*>> updates;  // of each index
  for (const std::uint32_t index : commit.indices)
    updates.push_back(updates_of(commit.function, index, contributions));
  const ParameterStore::Change all = store_.change();
  for (std::size_t i = 0; i < updates.size(); ++i)
    apply_mean(commit, commit.indices[i], updates[i], all, result);
  const std::lock_guard lock(mutex_);
  for (const Contribution& contribution : commit.contributions) kept_.erase(contribution.closure);
  return result;
}

void UpdateCalls::drop(const proto::FinishedClosures& finished,
                       std::span<const std::uint64_t> waiting) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const auto& entry) {
    return is_finished(finished, entry.first) &&
           std::find(waiting.begin(), waiting.end(), entry.first) == waiting.end();
  });
}

std::vector<std::uint64_t> UpdateCalls::close_below(std::uint64_t closure,
                                                    std::span<const std::uint64_t> closures,
                                                    const Cancelled& cancelled) {
  {
    std::unique_lock lock(mutex_);
    closed_below_ = std::max(closed_below_, closure);
    while (!running_.empty() && *running_.begin() < closure) {
      if (cancelled()) throw AbortedError("[ParameterServer] the call was cancelled");
      ended_.wait_for(lock, kLookAround);
    }
  }
  std::vector<std::uint64_t> applied;
  for (const std::uint64_t each : closures) applied.push_back(store_.num_applied(each));
  store_.close_below(closure);
  return applied;
}

}  // namespace tandem::ps
