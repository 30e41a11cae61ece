// Parts of the transformations that make batches. `op` is for messages.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "data/node.h"

namespace tandem::data {

// Skips `count` batches of `size` elements.
template <class Item>
std::int64_t skip_batches(ItemStream<Item>& input, std::int64_t count, std::int64_t size,
                          bool drop_remainder) {
  std::int64_t elements;
  if (__builtin_mul_overflow(count, size, &elements))
    elements = std::numeric_limits<std::int64_t>::max();
  const std::int64_t skipped = input.skip(elements);
  return skipped / size + (!drop_remainder && skipped % size != 0 ? 1 : 0);
}

// The examples of one worker in a global batch. Throws InvalidArgumentError if there are none.
std::int64_t batch_of_worker(const char* op, std::int64_t size, const FileShard& shard);

// The elements along a new first axis. Throws InvalidArgumentError unless they have the same shapes
// and dtypes.
Example stacked(const char* op, std::span<const Example> elements);

}  // namespace tandem::data
