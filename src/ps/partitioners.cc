#include "tandem/partitioners.h"

#include <algorithm>

#include "core/status.h"

namespace tandem::distribute {
namespace {

std::int64_t divided_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// The number of shards if there are rows with elements.
template <class F>
std::int64_t shards_of(const Shape& shape, const F& shards) {
  return shape.rank() == 0 || shape.num_elements() == 0 ? 1 : shards();
}

std::int64_t bytes_of(const Shape& shape, DType dtype) {
  return shape.num_elements() * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

FixedShardsPartitioner::FixedShardsPartitioner(const FixedShardsPartitionerOptions& options)
    : options_(options) {
  if (options.num_shards < 1)
    fail<InvalidArgumentError>("Argument `num_shards` must be positive. Received: {}",
                               options.num_shards);
}

std::int64_t FixedShardsPartitioner::operator()(const Shape& shape, DType) const {
  return shards_of(shape, [&] { return std::min(options_.num_shards, shape.word(0)); });
}

MinSizePartitioner::MinSizePartitioner(const MinSizePartitionerOptions& options)
    : options_(options) {
  if (options.min_shard_bytes < 1)
    fail<InvalidArgumentError>("Argument `min_shard_bytes` must be positive. Received: {}",
                               options.min_shard_bytes);
  if (options.max_shards < 1)
    fail<InvalidArgumentError>("Argument `max_shards` must be positive. Received: {}",
                               options.max_shards);
}

std::int64_t MinSizePartitioner::operator()(const Shape& shape, DType dtype) const {
  return shards_of(shape, [&] {
    return std::min({shape.word(0), options_.max_shards,
                     divided_up(bytes_of(shape, dtype), options_.min_shard_bytes)});
  });
}

MaxSizePartitioner::MaxSizePartitioner(const MaxSizePartitionerOptions& options)
    : options_(options) {
  if (options.max_shard_bytes < 1)
    fail<InvalidArgumentError>("Argument `max_shard_bytes` must be positive. Received {}",
                               options.max_shard_bytes);
  if (options.max_shards && *options.max_shards < 1)
    fail<InvalidArgumentError>("Argument `max_shards` must be positive. Received {}",
                               *options.max_shards);
}

std::int64_t MaxSizePartitioner::operator()(const Shape& shape, DType dtype) const {
  return shards_of(shape, [&] {
    const std::int64_t bytes_per_row = bytes_of(shape, dtype) / shape.word(0);
    const std::int64_t rows = std::max<std::int64_t>(1, options_.max_shard_bytes / bytes_per_row);
    return std::min(divided_up(shape.word(0), rows), options_.max_shards.value_or(shape.word(0)));
  });
}

}  // namespace tandem::distribute
