#include "core/status.h"
#include "data/node.h"
#include "distribute/strategy_impl.h"
#include "train/batches_ahead.h"

namespace tandem::distribute {

PerReplica<Tensor> component(const PerReplica<data::Example>& batch, std::size_t index,
                             std::size_t count) {
  std::vector<Tensor> tensors;
  for (const data::Example& example : batch.values()) {
    if (!example.empty() && example.size() != count)
      fail<InvalidArgumentError>("[PerReplica] expected examples of {} components, got {}", count,
                                 example.size());
    tensors.push_back(example.empty() ? Tensor() : example[index]);
  }
  return PerReplica<Tensor>(std::move(tensors), batch.split(), batch.strategy());
}

DistributedDataset::DistributedDataset(data::Dataset dataset,
                                       std::shared_ptr<StrategyImpl> strategy)
    : dataset_(std::move(dataset)), strategy_(std::move(strategy)) {}

const data::Dataset& DistributedDataset::dataset_of(const StrategyImpl* strategy) const {
  if (strategy_.get() != strategy)
    throw InvalidArgumentError(
        "[DistributedDataset] expected a dataset of the coordinator's strategy, got one of another "
        "strategy");
  return dataset_;
}

void DistributedDataset::Iterator::load() {
  auto parts = input_->next();
  done_ = !parts;
  if (parts) current_ = std::move(*parts);
}

DistributedDataset::Iterator& DistributedDataset::Iterator::operator++() {
  load();
  return *this;
}

DistributedDataset::Iterator DistributedDataset::begin() const {
  Iterator iterator;
  iterator.strategy_ = strategy_;
  const data::IterateOptions epoch{.epoch = dataset_.node()->next_epoch()};
  const std::vector<DeviceImpl*>& devices = strategy_->devices();
  iterator.input_ =
      copied_ahead(strategy_->iterate(dataset_, epoch, [](const data::Example&) {}),
                   std::any_of(devices.begin(), devices.end(),
                               [](DeviceImpl* device) { return !device->host_accessible(); }));
  iterator.load();
  return iterator;
}

}  // namespace tandem::distribute
