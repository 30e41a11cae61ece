#include "data/node.h"
#include "distribute/strategy_impl.h"
#include "train/batches_ahead.h"

namespace tandem::distribute {

DistributedDataset::DistributedDataset(data::Dataset dataset,
                                       std::shared_ptr<StrategyImpl> strategy)
    : dataset_(std::move(dataset)), strategy_(std::move(strategy)) {}

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
  const std::vector<Device*>& devices = strategy_->devices();
  iterator.input_ = copied_ahead(strategy_->iterate(dataset_, epoch, [](const data::Example&) {}),
                                 std::any_of(devices.begin(), devices.end(), [](Device* device) {
                                   return !device->host_accessible();
                                 }));
  iterator.load();
  return iterator;
}

}  // namespace tandem::distribute
