// Ranges of tensors: intersection, division, and copies between them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tandem/checkpoint.h"

namespace tandem {

// All elements of a tensor.
TensorRange whole(const Shape& shape);
// Rows [begin, end) of a tensor. REQUIRES: a rank of at least 1.
TensorRange rows_of(const Shape& shape, std::int64_t begin, std::int64_t end);
// Divides a tensor along its first axis into at most `shards` ranges whose sizes differ by at most
// one, the larger ones first. A scalar, or an empty first axis, is one range.
std::vector<TensorRange> divide(const Shape& shape, int shards);
// Whether the range is of the shape's rank and within it.
bool within(const TensorRange& range, const Shape& shape);
// The common elements; none if there are none. REQUIRES: equal ranks.
std::optional<TensorRange> intersect(const TensorRange& a, const TensorRange& b);

// Calls `visit` for each stretch of the elements of `range` that is contiguous in both `from` and
// `to`, two ranges that include it, stored row by row: with the number of its first element in each
// and its number of elements.
using VisitRun = std::function<void(std::int64_t from, std::int64_t to, std::int64_t count)>;
void for_each_run(const TensorRange& range, const TensorRange& from, const TensorRange& to,
                  const VisitRun& visit);

// The first problem of slices that should be the whole of a tensor, as the end of a sentence such
// as "tensor 'x' ..."; none if there is no problem.
std::optional<std::string> find_gap(const std::vector<TensorRange>& slices, const Shape& shape);

// "[0:3, 2:4]"
std::string text_of(const TensorRange& range);

}  // namespace tandem
