/// @file
/// Per-replica values, and how a batch is divided among replicas.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <utility>
#include <vector>

#include "tandem/errors.h"
#include "tandem/function.h"

namespace tandem {
struct StrategyMark;
}

namespace tandem::distribute {

/// How the replicas of a step share a global batch: replica r of this process has `counts[r]`
/// examples starting at `offsets[r]`. A replica without examples is inactive in the step, or a
/// padding replica if other processes have replicas (see Strategy::run()).
struct BatchSplit {
  std::vector<std::int64_t> offsets{};  ///< first example, per replica
  std::vector<std::int64_t> counts{};   ///< number of examples, per replica
  std::int64_t total = -1;              ///< examples in all processes; -1 if the step has no batch
  int leader = 0;                       ///< first replica with examples, over all processes
  /// Number of examples per process, if processes have data of their own; otherwise empty.
  std::vector<std::int64_t> of_processes = {};

  /// An even split: counts differ by at most one, larger ones first. In replica-invariant mode
  /// (tandem/config.h): equally many parts of the batch per replica.
  static BatchSplit even(std::int64_t examples, int replicas);
  /// Throws InvalidArgumentError unless it is a split over so many replicas.
  void check(std::size_t replicas) const;
};

/// One value per replica of this process. Values of replicas without examples are not present();
/// those of inactive replicas are default-constructed. As tf.distribute's PerReplica.
template <class T>
class PerReplica {
 public:
  PerReplica() = default;
  /// One value per replica, all present.
  explicit PerReplica(std::vector<T> values)
      : values_(std::move(values)), present_(values_.size(), 1) {}
  /// Values that belong to a split batch. `strategy`: the strategy of the values; null: any
  /// strategy with so many replicas.
  PerReplica(std::vector<T> values, BatchSplit split,
             std::shared_ptr<const StrategyMark> strategy = nullptr)
      : PerReplica(std::move(values)) {
    split.check(values_.size());
    split_ = std::move(split);
    strategy_ = std::move(strategy);
    for (std::size_t i = 0; i < values_.size(); ++i)
      present_[i] = split_.total < 0 || split_.counts[i] > 0;
  }

  std::size_t size() const { return values_.size(); }       ///< number of values
  const std::vector<T>& values() const { return values_; }  ///< the values
  /// @{
  /// The value of a replica. Throws OutOfRangeError unless replica < size().
  const T& operator[](std::size_t replica) const { return values_[checked(replica)]; }
  T& operator[](std::size_t replica) { return values_[checked(replica)]; }
  /// @}
  /// Whether the replica had examples. Throws OutOfRangeError unless replica < size().
  bool present(std::size_t replica) const { return present_[checked(replica)] != 0; }
  const BatchSplit& split() const { return split_; }  ///< how the batch was split
  /// For Tandem's own code.
  const std::shared_ptr<const StrategyMark>& strategy() const { return strategy_; }

 private:
  std::size_t checked(std::size_t replica) const {
    return tandem::detail::checked_index("PerReplica", replica, values_.size());
  }

  std::vector<T> values_;
  std::vector<char> present_;
  BatchSplit split_;
  std::shared_ptr<const StrategyMark> strategy_;
};

/// Prints the value of each replica, in lines as TensorFlow's.
template <class Traits, class T>
requires requires(std::basic_ostream<char, Traits>& out, const T& value) { out << value; }
std::basic_ostream<char, Traits>& operator<<(std::basic_ostream<char, Traits>& out,
                                             const PerReplica<T>& value) {
  out << "PerReplica:{";
  for (std::size_t replica = 0; replica < value.size(); ++replica) {
    out << (replica == 0 ? "" : ",") << "\n  " << replica << ": ";
    if (value.present(replica))
      out << value[replica];
    else
      out << "none";
  }
  return out << "\n}";
}

/// Lets per-replica values be arguments and results of traced functions (tandem/function.h). The
/// split of the batch is part of the signature, so that all processes trace at the same time.
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
