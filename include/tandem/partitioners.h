/// @file
/// How many shards the variables of a ParameterServerStrategy have. As
/// tf.distribute.experimental.partitioners.
#pragma once

#include <cstdint>
#include <optional>

#include "tandem/dtype.h"
#include "tandem/shape.h"

namespace tandem::distribute {

/// Options of FixedShardsPartitioner.
struct FixedShardsPartitionerOptions {
  std::int64_t num_shards{};  ///< of each variable; required
};

/// A fixed number of shards, but at most one per row. All partitioners divide along the first axis,
/// and give one shard to variables without axes or without elements.
class FixedShardsPartitioner {
 public:
  /// Throws InvalidArgumentError "Argument `num_shards` must be positive. Received: ...".
  explicit FixedShardsPartitioner(const FixedShardsPartitionerOptions& options);
  /// The number of shards of a variable.
  std::int64_t operator()(const Shape& shape, DType dtype) const;

 private:
  FixedShardsPartitionerOptions options_;
};

/// Options of MinSizePartitioner.
struct MinSizePartitionerOptions {
  std::int64_t min_shard_bytes = 256 << 10;  ///< of each shard
  std::int64_t max_shards = 1;               ///< of each variable
};

/// As many shards as there are `min_shard_bytes` in the variable, rounded up: shards may be smaller
/// by less than half. 300 KiB give two shards of 150 KiB.
class MinSizePartitioner {
 public:
  /// Throws InvalidArgumentError "Argument `min_shard_bytes` must be positive. Received: ...", and
  /// the same for `max_shards`.
  explicit MinSizePartitioner(const MinSizePartitionerOptions& options = {});
  /// The number of shards of a variable.
  std::int64_t operator()(const Shape& shape, DType dtype) const;

 private:
  MinSizePartitionerOptions options_;
};

/// Options of MaxSizePartitioner.
struct MaxSizePartitionerOptions {
  std::int64_t max_shard_bytes{};  ///< of each shard; required
  std::optional<std::int64_t> max_shards =
      {};  ///< of each variable, also if shards are then larger
};

/// As few shards as possible of at most `max_shard_bytes`, but at least one row.
class MaxSizePartitioner {
 public:
  /// Throws InvalidArgumentError "Argument `max_shard_bytes` must be positive. Received ...", and
  /// the same for `max_shards`.
  explicit MaxSizePartitioner(const MaxSizePartitionerOptions& options);
  /// The number of shards of a variable.
  std::int64_t operator()(const Shape& shape, DType dtype) const;

 private:
  MaxSizePartitionerOptions options_;
};

}  // namespace tandem::distribute
