#include "distribute/strategy_impl.h"

namespace tandem::distribute {

DistributedDataset::DistributedDataset(data::Dataset dataset,
                                       std::shared_ptr<StrategyImpl> strategy)
    : dataset_(std::move(dataset)), strategy_(std::move(strategy)) {}

void DistributedDataset::Iterator::load() {
  done_ = source_ == std::default_sentinel;
  if (!done_) current_ = strategy_->split(*source_);
}

DistributedDataset::Iterator& DistributedDataset::Iterator::operator++() {
  ++source_;
  load();
  return *this;
}

DistributedDataset::Iterator DistributedDataset::begin() const {
  Iterator iterator;
  iterator.source_ = dataset_.begin();
  iterator.strategy_ = strategy_;
  iterator.load();
  return iterator;
}

}  // namespace tandem::distribute
