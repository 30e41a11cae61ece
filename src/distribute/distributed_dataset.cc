#include "data/node.h"
#include "distribute/input.h"
#include "distribute/strategy_impl.h"

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
  const data::IterateOptions epoch{.epoch = dataset_.node()->next_epoch()};
  iterator.input_ = std::make_shared<InputAhead>(
      Input(strategy_, dataset_, epoch, [](const data::Example&) {}), strategy_->devices());
  iterator.load();
  return iterator;
}

}  // namespace tandem::distribute
