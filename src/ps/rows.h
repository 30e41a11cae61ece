// Rows of tensors along the first axis, on the CPU.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "device/device_manager.h"
#include "graph/graph.h"
#include "ps/shards.h"
#include "runtime/placement.h"
#include "tandem/autodiff.h"

namespace tandem::ps {

// Runs operations eagerly on the CPU, without gradients.
class EagerOnHost {
 private:
  Scoped<GraphImpl*> eager_{context.graph, nullptr};
  NoGradScope no_grad_;
  OnDevice host_{DeviceManager::get().host()};
};

// Views `count` rows. REQUIRES: they exist.
Tensor view_rows(const Tensor& tensor, std::int64_t first, std::int64_t count);
// Copies `rows` over the rows of `to` with these numbers. REQUIRES: they exist and have that shape.
void put_rows(const Tensor& to, std::span<const std::int64_t> numbers, const Tensor& rows);

// The elements of a tensor of row numbers. Throws InvalidArgumentError "[what] ..." unless it has
// one axis, dtype int64 and elements in [0, rows).
std::span<const std::int64_t> row_numbers(const Tensor& numbers, std::int64_t rows,
                                          const std::string& what);

// The part of ascending row numbers that is in a shard.
struct RowsOfShard {
  std::int64_t first = 0;  // position in the numbers
  Tensor numbers;          // within the shard
};
RowsOfShard rows_in(const Shard& shard, std::span<const std::int64_t> numbers);

// The rows that look-ups take together.
struct LookedUp {
  std::vector<std::int64_t> rows;  // which ascend
  std::vector<Tensor> positions;   // of each index in `rows`; of the shapes of the look-ups
};
// `indices`: of each look-up in a variable of `rows` rows, on any device. Throws the error of
// gather() for an index out of range, and InvalidArgumentError for other dtypes than int32 and
// int64.
LookedUp look_up(std::span<const Tensor> indices, std::int64_t rows);

}  // namespace tandem::ps
