#include "train/statistics.h"

#include <algorithm>
#include <charconv>

#include "core/status.h"
#include "runtime/placement.h"
#include "runtime/replica_invariance.h"
#include "sync/tree_sum.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/device.h"
#include "tandem/math.h"

namespace tandem {
namespace {

void accumulate(Tensor& total, const Tensor& value) {
  const OnDeviceOf on(value);
  const Tensor wide = cast(value, float64);
  total = total.defined() ? add(total, wide) : wide;
}

void accumulate(std::vector<Tensor>& totals, const std::vector<Tensor>& values) {
  totals.resize(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) accumulate(totals[i], values[i]);
}

std::string key_of(std::size_t place, const std::string& what) {
  return fmt::format("{}/{}", place, what);
}

std::string metric_key(const std::string& name, std::size_t statistic) {
  return fmt::format("metric/{}/{}", name, statistic);
}

}  // namespace

void Statistics::report(const StepReport& results, bool with_loss) {
  if (known_) return;
  known_ = true;
  has_loss_ = with_loss;
  metrics_ = results.metrics;
  names_ = results.names;
  if (!to_restore_.empty()) restore(std::exchange(to_restore_, {}));
}

void Statistics::add(const ReplicaPartIndex& place, std::int64_t examples, const Tensor& loss,
                     const std::vector<std::vector<Tensor>>& metrics) {
  NoGradScope no_grad;
  const Scoped tag(memory_tag, MemoryTag::kOther);
  PartSums& sums = sums_[static_cast<std::size_t>(place.replica) * parts_ +
                         static_cast<std::size_t>(place.part)];
  sums.examples += examples;
  accumulate(sums.loss, loss);
  sums.metrics.resize(metrics.size());
  for (std::size_t i = 0; i < metrics.size(); ++i) accumulate(sums.metrics[i], metrics[i]);
}

void Statistics::clear() {
  to_restore_.clear();
  for (PartSums& sums : sums_) sums = {};
}

bool Statistics::empty() const {
  return std::none_of(sums_.begin(), sums_.end(),
                      [](const PartSums& sums) { return sums.loss.defined(); });
}

std::size_t Statistics::first_place() const {
  return workers_ ? static_cast<std::size_t>(workers_->first_replica()) * parts_ : 0;
}
std::size_t Statistics::num_places() const {
  return workers_ ? static_cast<std::size_t>(workers_->num_replicas()) * parts_ : sums_.size();
}

Statistics::Totals Statistics::totals() const {
  Totals totals{.metrics = std::vector<std::vector<Tensor>>(metrics_.size())};
  std::vector<Tensor> losses;
  std::vector<std::vector<std::vector<Tensor>>> values(metrics_.size());  // by metric and statistic
  for (const PartSums& sums : sums_) {
    if (!sums.loss.defined()) continue;
    totals.examples += static_cast<double>(sums.examples);
    losses.push_back(sums.loss.cpu());
    for (std::size_t i = 0; i < metrics_.size(); ++i) {
      values[i].resize(sums.metrics[i].size());
      for (std::size_t k = 0; k < values[i].size(); ++k)
        values[i][k].push_back(sums.metrics[i][k].cpu());
    }
  }
  totals.loss = sum_of_copies(losses).item<double>();
  for (std::size_t i = 0; i < metrics_.size(); ++i)
    for (const std::vector<Tensor>& statistic : values[i])
      totals.metrics[i].push_back(sum_of_copies(statistic));
  return totals;
}

// Combines all sums in one collective.
Statistics::Totals Statistics::over_workers(const Totals& mine) const {
  std::vector<Tensor> parts = {
      constant(std::vector<double>{mine.examples, mine.loss}, {.dtype = float64})};
  for (const std::vector<Tensor>& metric : mine.metrics)
    for (const Tensor& sum : metric) parts.push_back(reshape(sum, {-1}));
  const Tensor sums = workers_->all_reduce(
      concat(parts, 0), invariant_parts() > 0 ? ReduceOp::kTreeSum : ReduceOp::kSum,
      "loss and metrics");
  const auto* values = sums.data<double>();
  Totals all{.examples = values[0], .loss = values[1], .metrics = mine.metrics};
  std::int64_t at = 2;
  for (std::vector<Tensor>& metric : all.metrics)
    for (Tensor& sum : metric) {
      const Shape shape = sum.shape();
      sum = reshape(slice_rows(sums, at, at + shape.num_elements()), shape);
      at += shape.num_elements();
    }
  return all;
}

callbacks::Logs Statistics::compute_logs(const Totals& totals, const std::string& prefix) const {
  callbacks::Logs logs;
  if (has_loss_) logs[prefix + "loss"] = totals.loss / totals.examples;
  for (std::size_t i = 0; i < metrics_.size(); ++i)
    logs[prefix + names_[i]] = metrics_[i].base().result(totals.metrics[i]);
  return logs;
}

callbacks::Logs Statistics::logs(const std::string& prefix) {
  if (empty()) return {};
  NoGradScope no_grad;
  const DeviceScope host("/cpu:0");
  const Totals mine = totals();
  for (std::size_t i = 0; i < metrics_.size(); ++i) {
    metrics_[i].reset();
    metrics_[i].add_statistics(mine.metrics[i]);
  }
  return compute_logs(workers_ ? over_workers(mine) : mine, prefix);
}

callbacks::Logs Statistics::own_logs() const {
  if (empty()) return {};
  NoGradScope no_grad;
  const DeviceScope host("/cpu:0");
  const Totals mine = totals();
  return mine.examples > 0 ? compute_logs(mine, {}) : callbacks::Logs();
}

std::map<std::string, Tensor> Statistics::state() const {
  if (!known_) return to_restore_;
  std::map<std::string, Tensor> state;
  for (std::size_t place = 0; place < sums_.size(); ++place) {
    const PartSums& sums = sums_[place];
    if (!sums.loss.defined()) continue;
    const DeviceScope host("/cpu:0");
    const std::size_t key = first_place() + place;
    state[key_of(key, "examples")] = constant(std::vector<std::int64_t>{sums.examples});
    state[key_of(key, "loss")] = sums.loss;
    for (std::size_t i = 0; i < metrics_.size(); ++i)
      for (std::size_t k = 0; k < sums.metrics[i].size(); ++k)
        state[key_of(key, metric_key(names_[i], k))] = sums.metrics[i][k];
  }
  return state;
}

namespace {

using Named = std::map<std::string, Tensor>;

// Groups the tensors by the number in their names, under the rest of the name.
std::map<std::size_t, Named> by_place(const Named& state) {
  std::map<std::size_t, Named> parts;
  for (const auto& [key, tensor] : state) {
    const std::size_t slash = key.find('/');
    std::size_t place = 0;
    const auto parsed =
        std::from_chars(key.data(), key.data() + std::min(slash, key.size()), place);
    if (slash == std::string::npos || parsed.ptr != key.data() + slash)
      fail<DataLossError>("[load] the checkpoint's sums have a tensor named '{}'", key);
    parts[place][key.substr(slash + 1)] = tensor;
  }
  return parts;
}

Tensor take(Named& tensors, const std::string& name) {
  auto found = tensors.extract(name);
  return found.empty() ? Tensor() : found.mapped();
}

}  // namespace

void Statistics::restore(const std::map<std::string, Tensor>& state) {
  NoGradScope no_grad;
  const DeviceScope host("/cpu:0");
  clear();
  if (!known_) {
    to_restore_ = state;
    return;
  }
  for (auto& [id, tensors] : by_place(state)) {
    // The sums of replicas that no longer exist are added to others', perhaps on another worker.
    const std::size_t target = id % num_places();
    const bool here = target >= first_place() && target < first_place() + sums_.size();
    PartSums elsewhere;
    PartSums& mine = here ? sums_[target - first_place()] : elsewhere;
    const Tensor examples = take(tensors, "examples"), loss = take(tensors, "loss");
    std::vector<std::vector<Tensor>> sums(metrics_.size());
    for (std::size_t i = 0; i < metrics_.size(); ++i)
      for (Tensor sum; (sum = take(tensors, metric_key(names_[i], sums[i].size()))).defined();)
        sums[i].push_back(sum);
    const auto is_one = [](const Tensor& number, DType dtype) {
      return number.defined() && number.dtype() == dtype && number.size() == 1;
    };
    if (!is_one(examples, int64) || !is_one(loss, float64) || !tensors.empty())
      throw DataLossError(
          "[load] the checkpoint's sums are not those of the model's loss and metrics");
    mine.examples += examples.to_vector<std::int64_t>().at(0);
    accumulate(mine.loss, loss);
    mine.metrics.resize(metrics_.size());
    for (std::size_t i = 0; i < metrics_.size(); ++i) accumulate(mine.metrics[i], sums[i]);
  }
}

}  // namespace tandem
