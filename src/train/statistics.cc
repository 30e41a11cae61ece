#include "train/statistics.h"

#include <algorithm>
#include <charconv>

#include "core/status.h"
#include "runtime/placement.h"
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

std::string key_of(std::size_t replica, const std::string& what) {
  return fmt::format("{}/{}", replica, what);
}

std::string metric_key(const metrics::Metric& metric, std::size_t statistic) {
  return fmt::format("metric/{}/{}", metric.name(), statistic);
}

}  // namespace

void Statistics::add(int replica, std::int64_t examples, const Tensor& loss,
                     const std::vector<std::vector<Tensor>>& metrics) {
  NoGradScope no_grad;
  const MemoryTagScope tag(MemoryTag::kOther);
  Replica& sums = replicas_[static_cast<std::size_t>(replica)];
  sums.examples += examples;
  accumulate(sums.loss, loss);
  sums.metrics.resize(metrics.size());
  for (std::size_t i = 0; i < metrics.size(); ++i) accumulate(sums.metrics[i], metrics[i]);
}

void Statistics::clear() {
  for (Replica& replica : replicas_) replica = {};
}

bool Statistics::empty() const {
  return std::none_of(replicas_.begin(), replicas_.end(),
                      [](const Replica& replica) { return replica.loss.defined(); });
}

std::size_t Statistics::first_replica() const {
  return workers_ ? static_cast<std::size_t>(workers_->first_replica()) : 0;
}
std::size_t Statistics::num_replicas() const {
  return workers_ ? static_cast<std::size_t>(workers_->num_replicas()) : replicas_.size();
}

Statistics::Totals Statistics::totals() const {
  Totals totals{.metrics = std::vector<std::vector<Tensor>>(metrics_.size())};
  for (const Replica& replica : replicas_) {
    if (!replica.loss.defined()) continue;
    totals.examples += static_cast<double>(replica.examples);
    totals.loss += replica.loss.item<double>();
    for (std::size_t i = 0; i < metrics_.size(); ++i) {
      std::vector<Tensor> on_host;
      for (const Tensor& tensor : replica.metrics[i]) on_host.push_back(tensor.cpu());
      accumulate(totals.metrics[i], on_host);
    }
  }
  return totals;
}

// All figures in one collective.
Statistics::Totals Statistics::over_workers(const Totals& mine) const {
  std::vector<Tensor> parts = {
      constant(std::vector<double>{mine.examples, mine.loss}, {.dtype = float64})};
  for (const std::vector<Tensor>& metric : mine.metrics)
    for (const Tensor& sum : metric) parts.push_back(reshape(sum, {-1}));
  const Tensor sums = workers_->all_reduce(concat(parts, 0), ReduceOp::kSum, "loss and metrics");
  const auto* figures = sums.data<double>();
  Totals all{.examples = figures[0], .loss = figures[1], .metrics = mine.metrics};
  std::int64_t at = 2;
  for (std::vector<Tensor>& metric : all.metrics)
    for (Tensor& sum : metric) {
      const Shape shape = sum.shape();
      sum = reshape(slice_rows(sums, at, at + shape.num_elements()), shape);
      at += shape.num_elements();
    }
  return all;
}

callbacks::Logs Statistics::figures(const Totals& totals, const std::string& prefix) const {
  callbacks::Logs logs;
  logs[prefix + "loss"] = totals.loss / totals.examples;
  for (std::size_t i = 0; i < metrics_.size(); ++i)
    logs[prefix + metrics_[i].name()] = metrics_[i].base().result(totals.metrics[i]);
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
  return figures(workers_ ? over_workers(mine) : mine, prefix);
}

callbacks::Logs Statistics::own_logs() const {
  if (empty()) return {};
  NoGradScope no_grad;
  const DeviceScope host("/cpu:0");
  const Totals mine = totals();
  return mine.examples > 0 ? figures(mine, {}) : callbacks::Logs();
}

std::map<std::string, Tensor> Statistics::state() const {
  std::map<std::string, Tensor> state;
  for (std::size_t id = 0; id < replicas_.size(); ++id) {
    const Replica& replica = replicas_[id];
    if (!replica.loss.defined()) continue;
    const DeviceScope host("/cpu:0");
    const std::size_t key = first_replica() + id;
    state[key_of(key, "examples")] = constant(std::vector<std::int64_t>{replica.examples});
    state[key_of(key, "loss")] = replica.loss;
    for (std::size_t i = 0; i < metrics_.size(); ++i)
      for (std::size_t k = 0; k < replica.metrics[i].size(); ++k)
        state[key_of(key, metric_key(metrics_[i], k))] = replica.metrics[i][k];
  }
  return state;
}

namespace {

using Named = std::map<std::string, Tensor>;

// The tensors of each replica, by what follows its number in their names.
std::map<std::size_t, Named> by_replica(const Named& state) {
  std::map<std::size_t, Named> parts;
  for (const auto& [key, tensor] : state) {
    const std::size_t slash = key.find('/');
    std::size_t replica = 0;
    const auto parsed =
        std::from_chars(key.data(), key.data() + std::min(slash, key.size()), replica);
    if (slash == std::string::npos || parsed.ptr != key.data() + slash)
      fail<DataLossError>("[load] the checkpoint's sums have a tensor named '{}'", key);
    parts[replica][key.substr(slash + 1)] = tensor;
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
  for (auto& [id, tensors] : by_replica(state)) {
    // Sums of replicas that are no more go to those that are, which may be other workers'.
    const std::size_t target = id % num_replicas();
    const bool here = target >= first_replica() && target < first_replica() + replicas_.size();
    Replica elsewhere;
    Replica& replica = here ? replicas_[target - first_replica()] : elsewhere;
    const Tensor examples = take(tensors, "examples"), loss = take(tensors, "loss");
    std::vector<std::vector<Tensor>> sums(metrics_.size());
    for (std::size_t i = 0; i < metrics_.size(); ++i)
      for (Tensor sum; (sum = take(tensors, metric_key(metrics_[i], sums[i].size()))).defined();)
        sums[i].push_back(sum);
    const auto is_one = [](const Tensor& number, DType dtype) {
      return number.defined() && number.dtype() == dtype && number.size() == 1;
    };
    if (!is_one(examples, int64) || !is_one(loss, float64) || !tensors.empty())
      throw DataLossError(
          "[load] the checkpoint's sums are not those of the model's loss and metrics");
    replica.examples += examples.to_vector<std::int64_t>().at(0);
    accumulate(replica.loss, loss);
    replica.metrics.resize(metrics_.size());
    for (std::size_t i = 0; i < metrics_.size(); ++i) accumulate(replica.metrics[i], sums[i]);
  }
}

}  // namespace tandem
