#include "distribute/strategy_impl.h"

#include "core/joined.h"
#include "core/status.h"
#include "runtime/replica_context.h"
#include "tandem/array.h"
#include "tensor/tensor_impl.h"

namespace tandem::distribute {

StrategyImpl::StrategyImpl(std::string name, const std::vector<DeviceImpl*>& devices)
    : name_(std::move(name)) {
  std::vector<std::string> names;
  for (const DeviceImpl* device : devices)
    names.push_back(fmt::format("{}:{}", *device->name().type, device->index()));
  mark_ = std::make_shared<const StrategyMark>(
      StrategyMark{names.empty() ? name_ : fmt::format("{}({})", name_, joined(names, ", "))});
}

void StrategyImpl::run(const std::function<void(int)>& step, const BatchSplit& split) {
  require_cross_replica("run");
  run_step(step, split);
}

void StrategyImpl::require_cross_replica(const char* method) const {
  if (const ReplicaContext* replica = ReplicaContext::current())
    fail<RuntimeError>(
        "Method requires being in cross-replica context: {}() was called inside a replica of {}. "
        "Call it between steps; run() returns what the step returns, one value per replica",
        method, replica->strategy()->description);
  const StrategyImpl* const open = context.strategy;
  if (open && open != this)
    fail_mixed_strategies(
        *open->mark(), *mark_,
        fmt::format("{}() of the second was called in the scope of the first; close that scope, or "
                    "call {}() of the strategy that it belongs to",
                    method, method));
}

RefPtr<VariableImpl> StrategyImpl::create(const Tensor& initial_value, VariableOptions options) {
  const std::shared_ptr<WorkerCollectives> group = workers();
  const Tensor agreed =
      group ? group->broadcast(initial_value, "initial value of " + options.name) : initial_value;
  return make_ref<VariableImpl>(agreed, devices(), std::move(options), MemoryTag::kWeights, group,
                                mark_);
}

GlobalBatch StrategyImpl::split(const data::Example& batch) {
  if (batch.empty()) fail<InvalidArgumentError>("[{}] a batch has no components", name());
  for (const Tensor& component : batch)
    if (component.rank() < 1)
      throw InvalidArgumentError(
          "Expected a dataset whose elements have rank >= 1 but found a dataset whose elements are "
          "scalars. You can fix "
          "the issue by adding the `batch` transformation to the dataset.");
  const std::int64_t examples = batch[0].size_word(0);
  for (const Tensor& component : batch)
    if (component.size_word(0) != examples)
      fail<InvalidArgumentError>(
          "[{}] the components of a batch differ in their first axis: shapes {} and {}", name(),
          batch[0].shape().to_string(), component.shape().to_string());
  BatchSplit split = BatchSplit::even(examples, num_replicas());
  const auto mine = [this](std::vector<std::int64_t>& values) {
    const auto first = values.begin() + first_replica();
    values = {first, first + static_cast<std::ptrdiff_t>(devices().size())};
  };
  mine(split.offsets);
  mine(split.counts);
  return split_rows(batch, std::move(split), 0);
}

GlobalBatch StrategyImpl::split_rows(const data::Example& batch, BatchSplit split,
                                     std::int64_t begin) {
  const Scoped tag(memory_tag, MemoryTag::kOther);
  std::vector<data::Example> parts(devices().size());
  for (std::size_t replica = 0; replica < parts.size(); ++replica) {
    std::int64_t row = split.offsets[replica] - begin, count = split.counts[replica];
    if (count == 0) {
      if (batch[0].size_word(0) == 0 || !requires_all_replicas()) continue;
      row = 0;
      count = 1;
    }
    for (const Tensor& component : batch)
      parts[replica].push_back(
          copy_to_device(slice_rows(component, row, row + count), *devices()[replica]));
  }
  return GlobalBatch(std::move(parts), std::move(split), mark_);
}

bool StrategyImpl::owns(const Variable& variable) const {
  const VariableStorage& storage = variable.impl().storage();
  if (is_default()) return storage.num_readers() == 1;
  if (storage.num_readers() != devices().size() || variable.impl().workers() != workers())
    return false;
  if (variable.impl().distributed()) return variable.impl().strategy() == mark();
  for (std::size_t i = 0; i < devices().size(); ++i)
    if (&storage.device(i) != devices()[i]) return false;
  return true;
}

std::vector<std::vector<Tensor>> StrategyImpl::run(const GlobalBatch& parts, const Step& step) {
  std::vector<std::vector<Tensor>> results(parts.size());
  run(
      [&](int replica) {
        const auto index = static_cast<std::size_t>(replica);
        results[index] = step(parts[index]);
      },
      parts.split());
  std::vector<std::vector<Tensor>> present;
  for (std::size_t replica = 0; replica < results.size(); ++replica)
    if (!parts[replica].empty()) present.push_back(std::move(results[replica]));
  return present;
}

}  // namespace tandem::distribute
