/// Values of which each replica of a step has one, and how replicas share a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tandem/function.h"

namespace tandem {
struct StrategyMark;
}

namespace tandem::distribute {

// How the replicas of a step share a global batch: replica r of this process has `counts[r]`
// examples from `offsets[r]` on. A replica without examples is inactive in the step; where there
// are replicas in other processes it takes part with zeros (see Strategy::run).
struct BatchSplit {
  std::vector<std::int64_t> offsets{};
  std::vector<std::int64_t> counts{};
  std::int64_t total = -1;  // of all processes; -1: the step has no batch
  int leader = 0;           // the first replica with examples, of all processes
  // Each process's part, where processes have data of their own; else empty: `total` tells.
  std::vector<std::int64_t> of_processes = {};

  // Sizes that differ by at most one, the larger ones first. In the replica-invariant mode
  // (tandem/config.h): the parts of the batch, as many for each replica.
  static BatchSplit even(std::int64_t examples, int replicas);
  // Throws InvalidArgumentError where it is not one of so many values.
  void check(std::size_t replicas) const;
};

// One value a replica of this process. Those of replicas without examples are not `present`;
// default-constructed where the replica sat the step out.
template <class T>
class PerReplica {
 public:
  PerReplica() = default;
  explicit PerReplica(std::vector<T> values)
      : values_(std::move(values)), present_(values_.size(), 1) {}
  // `strategy`: whose replicas the values are of; null: any strategy's with so many replicas.
  PerReplica(std::vector<T> values, BatchSplit split,
             std::shared_ptr<const StrategyMark> strategy = nullptr)
      : PerReplica(std::move(values)) {
    split.check(values_.size());
    split_ = std::move(split);
    strategy_ = std::move(strategy);
    for (std::size_t i = 0; i < values_.size(); ++i)
      present_[i] = split_.total < 0 || split_.counts[i] > 0;
  }

  std::size_t size() const { return values_.size(); }
  const std::vector<T>& values() const { return values_; }
  const T& operator[](std::size_t replica) const { return values_[replica]; }
  T& operator[](std::size_t replica) { return values_[replica]; }
  bool present(std::size_t replica) const { return present_[replica] != 0; }
  const BatchSplit& split() const { return split_; }
  const std::shared_ptr<const StrategyMark>& strategy() const { return strategy_; }

 private:
  std::vector<T> values_;
  std::vector<char> present_;
  BatchSplit split_;
  std::shared_ptr<const StrategyMark> strategy_;
};

// Per-replica values among the arguments and results of a traced function (tandem/function.h): how
// they share the batch is part of the signature, so that the processes trace anew together.
template <class T, class V, class K>
void visit_tensors(PerReplica<T>& value, const V& visit, const K& key) {
  using detail::visit_tensors;
  const BatchSplit& split = value.split();
  key(static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(value.strategy().get())));
  key(static_cast<std::uint64_t>(value.size()));
  key(static_cast<std::uint64_t>(split.total));
  key(static_cast<std::uint64_t>(split.of_processes.size()));
  for (std::int64_t examples : split.of_processes) key(static_cast<std::uint64_t>(examples));
  for (std::size_t replica = 0; replica < value.size(); ++replica) {
    if (split.total >= 0) {
      key(static_cast<std::uint64_t>(split.offsets[replica]));
      key(static_cast<std::uint64_t>(split.counts[replica]));
    }
    if (value.present(replica)) visit_tensors(value[replica], visit, key);
  }
}

}  // namespace tandem::distribute
