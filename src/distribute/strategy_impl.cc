#include "distribute/strategy_impl.h"

#include "core/status.h"
#include "tandem/array.h"
#include "tensor/tensor_impl.h"

namespace tandem::distribute {

RefPtr<VariableImpl> StrategyImpl::create(const Tensor& initial_value, VariableOptions options) {
  return make_ref<VariableImpl>(initial_value, devices(), std::move(options));
}

PerReplica<data::Example> StrategyImpl::split(const data::Example& batch) {
  if (batch.empty()) fail<InvalidArgumentError>("[{}] a batch has no components", name());
  for (const Tensor& component : batch)
    if (component.rank() < 1)
      throw InvalidArgumentError(
          "Expected a dataset whose elements have rank >= 1 but found a dataset whose elements are "
          "scalars. You can fix "
          "the issue by adding the `batch` transformation to the dataset.");
  const MemoryTagScope tag(MemoryTag::kOther);
  const std::int64_t examples = batch[0].dim(0);
  for (const Tensor& component : batch)
    if (component.dim(0) != examples)
      fail<InvalidArgumentError>(
          "[{}] the components of a batch differ in their first axis: shapes {} and {}", name(),
          batch[0].shape().to_string(), component.shape().to_string());
  const BatchSplit split = BatchSplit::even(examples, num_replicas());
  std::vector<data::Example> parts(devices().size());
  for (std::size_t replica = 0; replica < parts.size(); ++replica) {
    if (split.counts[replica] == 0) continue;
    const std::int64_t begin = split.offsets[replica];
    for (const Tensor& component : batch)
      parts[replica].push_back(copy_to_device(
          slice_rows(component, begin, begin + split.counts[replica]), *devices()[replica]));
  }
  return PerReplica<data::Example>(std::move(parts), split);
}

namespace {

class Runner final : public ReplicaRunner {
 public:
  explicit Runner(std::shared_ptr<StrategyImpl> strategy) : strategy_(std::move(strategy)) {}

  int num_replicas() const override { return strategy_->num_replicas(); }

  bool owns(const Variable& variable) const override {
    const auto& copies = variable.impl().copies();
    const auto& devices = strategy_->devices();
    if (strategy_->is_default()) return copies.size() == 1;
    if (copies.size() != devices.size()) return false;
    for (std::size_t i = 0; i < devices.size(); ++i)
      if (&impl_of(copies[i].value).device() != devices[i]) return false;
    return true;
  }

  BatchParts split(const data::Example& global_batch) override {
    const PerReplica<data::Example> parts = strategy_->split(global_batch);
    return {.examples = parts.values(),
            .offsets = parts.split().offsets,
            .counts = parts.split().counts,
            .total = parts.split().total};
  }

  std::vector<std::vector<Tensor>> run(const BatchParts& parts, const Step& step) override {
    std::vector<std::vector<Tensor>> results(parts.examples.size());
    strategy_->run(
        [&](int replica) {
          results[static_cast<std::size_t>(replica)] =
              step(parts.examples[static_cast<std::size_t>(replica)]);
        },
        {.offsets = parts.offsets, .counts = parts.counts, .total = parts.total});
    std::vector<std::vector<Tensor>> present;
    for (std::size_t replica = 0; replica < results.size(); ++replica)
      if (parts.counts[replica] > 0) present.push_back(std::move(results[replica]));
    return present;
  }

 private:
  std::shared_ptr<StrategyImpl> strategy_;
};

}  // namespace

std::shared_ptr<ReplicaRunner> StrategyImpl::runner() {
  return std::make_shared<Runner>(shared_from_this());
}

}  // namespace tandem::distribute
