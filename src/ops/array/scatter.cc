// Gathering and adding at positions of several axes and by segment, and finding positions: made of
// other operations.
#include "tandem/scatter.h"

#include <algorithm>
#include <unordered_map>

#include "core/dim.h"
#include "core/status.h"
#include "ops/array/array_ops.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

void expect_indices(const char* function, const Tensor& indices) {
  if (indices.dtype() != int32 && indices.dtype() != int64)
    fail<DTypeError>("[{}] expected int32 or int64 indices, got {}", function,
                     name_of(indices.dtype()));
}

// The number of axes that the last axis of `indices` has positions of.
int indexed_axes(const char* function, const Tensor& indices, const Shape& shape) {
  expect_indices(function, indices);
  const std::int64_t last = indices.rank() > 0 ? indices.shape().word(-1) : -1;
  if (dim::is_unknown(last) || last < 1 || last > shape.rank())
    fail<ShapeError>(
        "[{}] expected indices whose last axis has 1 to {} positions, for shape {}, got shape {}",
        function, shape.rank(), shape.to_string(), indices.shape().to_string());
  return static_cast<int>(last);
}

// The numbers of the slices at `indices` of a tensor whose leading axes have become one. One that
// is out of range along an axis becomes -1, which gather() refuses.
Tensor numbers_of(const Tensor& indices, const Shape& shape, int axes) {
  const std::vector<Tensor> parts = unstack(cast(indices, int64), -1);
  Tensor number = parts[0];
  Tensor inside;
  for (int axis = 1; axis < axes; ++axis) {
    const Dim size = shape[axis];
    const Tensor& part = parts[static_cast<std::size_t>(axis)];
    const Tensor fits = logical_and(greater_equal(part, 0.0), less(part, size));
    inside = inside.defined() ? logical_and(inside, fits) : fits;
    number = number * size + part;
  }
  return inside.defined() ? where(inside, number, full(Shape::scalar(), -1.0, int64)) : number;
}

std::int64_t leading_size(const Shape& shape, int axes) {
  std::int64_t size = 1;
  for (int axis = 0; axis < axes; ++axis) size = dim::product(size, shape.word(axis));
  return size;
}

// `numbers`, after a check that they are in [0, size).
Tensor checked(const Tensor& numbers, std::int64_t size) {
  return gather(range(Dim(size), {.dtype = int64}), numbers);
}

// As add_to_rows(), also for int32, whose sums float64 holds.
Tensor added_to_rows(const char* function, const Tensor& rows, const Tensor& numbers,
                     const Shape& shape) {
  if (is_floating(rows.dtype())) return add_to_rows(rows, numbers, shape);
  if (rows.dtype() != int32)
    fail<DTypeError>("[{}] expected a floating-point dtype or int32, got {}", function,
                     name_of(rows.dtype()));
  return cast(add_to_rows(cast(rows, float64), numbers, shape), int32);
}

// [rows] + the axes of x from `axis` on.
Shape with_rows(std::int64_t rows, const Shape& x, int axis) {
  Dims dims = {rows};
  for (int i = axis; i < x.rank(); ++i) dims.push_back(x.word(i));
  return Shape(dims);
}

// `rank` axes of size 1, but for one of `size`.
Dims along_axis(int rank, int axis, std::int64_t size) {
  Dims sizes;
  for (int i = 0; i < rank; ++i) sizes.push_back(i == axis ? size : 1);
  return sizes;
}

// The segments, of which there are as many as x has rows.
Tensor expect_segments(const char* function, const Tensor& x, const Tensor& segment_ids) {
  expect_indices(function, segment_ids);
  if (segment_ids.rank() != 1 || x.rank() < 1 ||
      !dim::may_equal(x.shape().word(0), segment_ids.shape().word(0)))
    fail<ShapeError>(
        "[{}] expected a segment for each position of axis 0 of shape {}, got shape {}", function,
        x.shape().to_string(), segment_ids.shape().to_string());
  return of_size(function, "segments of shape", segment_ids, 0, x.size_word(0));
}

// The number of segments of sorted numbers.
std::int64_t number_of_segments(const char* function, const Tensor& segment_ids) {
  expect_indices(function, segment_ids);
  const std::vector<std::int64_t> ids = cast(segment_ids, int64).to_vector<std::int64_t>();
  if (ids.empty()) return 0;
  if (ids.front() < 0 || !std::is_sorted(ids.begin(), ids.end()))
    fail<InvalidArgumentError>(
        "[{}] expected segments that are sorted and not negative; unsorted_{} takes any order",
        function, function);
  return ids.back() + 1;
}

std::vector<std::int64_t> integers_of(const char* function, const Tensor& x) {
  if (!is_integer(x.dtype()))
    fail<DTypeError>("[{}] expected an integer dtype, got {}", function, name_of(x.dtype()));
  if (x.rank() != 1)
    fail<ShapeError>("[{}] expected a vector, got shape {}", function, x.shape().to_string());
  return cast(x, int64).to_vector<std::int64_t>();
}

// The positions of the first elements of their values, and of each element's value among them.
template <class T>
std::pair<std::vector<std::int64_t>, std::vector<std::int32_t>> first_positions(
    const std::vector<T>& values) {
  std::vector<std::int64_t> first;
  std::vector<std::int32_t> of_each;
  std::unordered_map<T, std::int32_t> found;
  for (std::size_t i = 0; i < values.size(); ++i) {
    // A NaN equals no other element, as in TensorFlow.
    const auto [at, is_new] = found.emplace(values[i], static_cast<std::int32_t>(first.size()));
    if (is_new) first.push_back(static_cast<std::int64_t>(i));
    of_each.push_back(at->second);
  }
  return {first, of_each};
}

}  // namespace

Tensor gather_nd(const Tensor& params, const Tensor& indices) {
  const int axes = indexed_axes("gather_nd", indices, params.shape());
  const Tensor numbers = numbers_of(indices, params.shape(), axes);
  const Shape rows = with_rows(leading_size(params.shape(), axes), params.shape(), axes);
  return gather(reshape(params, rows), numbers);
}

Tensor scatter_nd(const Tensor& indices, const Tensor& updates, const Shape& shape) {
  if (!dim::are_sizes(shape))
    fail<ShapeError>("[scatter_nd] expected a shape that is known, got {}", shape.to_string());
  const int axes = indexed_axes("scatter_nd", indices, shape);
  Dims expected;
  for (int i = 0; i + 1 < indices.rank(); ++i) expected.push_back(indices.shape().word(i));
  for (int i = axes; i < shape.rank(); ++i) expected.push_back(shape.word(i));
  if (!dim::may_equal(updates.shape(), Shape(expected)))
    fail<ShapeError>("[scatter_nd] expected updates of shape {} for indices of shape {}, got {}",
                     Shape(expected).to_string(), indices.shape().to_string(),
                     updates.shape().to_string());
  const std::int64_t rows = leading_size(shape, axes);
  const Tensor numbers = checked(numbers_of(indices, shape, axes), rows);
  return reshape(added_to_rows("scatter_nd", updates, numbers, with_rows(rows, shape, axes)),
                 shape);
}

Tensor tensor_scatter_nd_add(const Tensor& x, const Tensor& indices, const Tensor& updates) {
  return x + scatter_nd(indices, updates, x.shape());
}

Tensor tensor_scatter_nd_update(const Tensor& x, const Tensor& indices, const Tensor& updates) {
  const int axes = indexed_axes("tensor_scatter_nd_update", indices, x.shape());
  std::vector<std::int64_t> numbers =
      numbers_of(indices, x.shape(), axes).to_vector<std::int64_t>();
  std::sort(numbers.begin(), numbers.end());
  if (std::adjacent_find(numbers.begin(), numbers.end()) != numbers.end())
    throw InvalidArgumentError(
        "[tensor_scatter_nd_update] expected each position once, got indices that repeat one");
  const Tensor ones = full(updates.shape(), 1.0, {.dtype = int32});
  const Tensor replaced = scatter_nd(indices, ones, x.shape()) > 0.0;
  return where(replaced, scatter_nd(indices, updates, x.shape()), x);
}

Tensor unsorted_segment_sum(const Tensor& x, const Tensor& segment_ids, Dim num_segments) {
  const Tensor ids = expect_segments("unsorted_segment_sum", x, segment_ids);
  const std::int64_t segments = num_segments.word();
  if (!dim::may_be_at_most(0, segments))
    fail<InvalidArgumentError>("[unsorted_segment_sum] expected 0 segments or more, got {}",
                               dim::text(segments));
  const Shape shape = with_rows(segments, x.shape(), 1);
  if (segments == 0) return full(shape, 0.0, {.dtype = x.dtype()});
  // Slices that are left out are 0 in segment 0, so that their gradient is 0.
  const Shape column(along_axis(x.rank(), 0, x.size_word(0)));
  const Tensor counts = reshape(greater_equal(ids, 0.0), column);
  const Tensor numbers = checked(maximum(ids, 0.0), segments);
  return added_to_rows("unsorted_segment_sum", where(counts, x, zeros_like(x)), numbers, shape);
}

Tensor unsorted_segment_mean(const Tensor& x, const Tensor& segment_ids, Dim num_segments) {
  const Tensor sums = unsorted_segment_sum(x, segment_ids, num_segments);
  if (!is_floating(x.dtype()))
    fail<DTypeError>("[unsorted_segment_mean] expected a floating-point dtype, got {}",
                     name_of(x.dtype()));
  const Tensor ones = full(segment_ids.shape(), 1.0, {.dtype = float32});
  const Tensor counts = unsorted_segment_sum(ones, segment_ids, num_segments);
  const Shape column(along_axis(x.rank(), 0, num_segments.word()));
  return sums / reshape(cast(maximum(counts, 1.0), x.dtype()), column);
}

Tensor segment_sum(const Tensor& x, const Tensor& segment_ids) {
  return unsorted_segment_sum(x, segment_ids, number_of_segments("segment_sum", segment_ids));
}

Tensor segment_mean(const Tensor& x, const Tensor& segment_ids) {
  return unsorted_segment_mean(x, segment_ids, number_of_segments("segment_mean", segment_ids));
}

Tensor bincount(const Tensor& x, std::int64_t minlength) {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(std::max<std::int64_t>(minlength, 0)));
  for (const std::int64_t number : integers_of("bincount", x)) {
    if (number < 0)
      fail<InvalidArgumentError>("[bincount] expected numbers of 0 or more, got {}", number);
    if (static_cast<std::size_t>(number) >= counts.size())
      counts.resize(static_cast<std::size_t>(number) + 1);
    ++counts[static_cast<std::size_t>(number)];
  }
  return constant(counts);
}

UniqueElements unique(const Tensor& x) {
  if (x.rank() != 1)
    fail<ShapeError>("[unique] expected a vector, got shape {}", x.shape().to_string());
  const auto [first, of_each] = is_floating(x.dtype())
                                    ? first_positions(cast(x, float64).to_vector<double>())
                                    : first_positions(cast(x, int64).to_vector<std::int64_t>());
  return {gather(x, constant(first)), constant(of_each)};
}

Tensor nonzero(const Tensor& x) {
  const std::vector<bool> chosen = (x.dtype() == bool_ ? x : not_equal(x, 0.0)).to_vector<bool>();
  const int rank = x.rank();
  std::vector<std::int64_t> positions;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (!chosen[i]) continue;
    const std::size_t row = positions.size();
    positions.resize(row + static_cast<std::size_t>(rank));
    auto left = static_cast<std::int64_t>(i);
    for (int axis = rank - 1; axis >= 0; --axis) {
      positions[row + static_cast<std::size_t>(axis)] = left % x.shape().word(axis);
      left /= x.shape().word(axis);
    }
  }
  const auto found = static_cast<std::int64_t>(std::count(chosen.begin(), chosen.end(), true));
  return constant(positions, {.shape = {found, rank}});
}

std::vector<Tensor> meshgrid(TensorList vectors, const MeshgridOptions& options) {
  const bool swaps = options.indexing == "xy";
  if (!swaps && options.indexing != "ij")
    fail<InvalidArgumentError>("[meshgrid] expected indexing \"xy\" or \"ij\", got \"{}\"",
                               options.indexing);
  const auto rank = static_cast<int>(vectors.size());
  const auto axis_of = [&](int i) { return swaps && rank > 1 && i < 2 ? 1 - i : i; };
  Dims sizes = along_axis(rank, 0, 1);
  for (int i = 0; i < rank; ++i) {
    const Tensor& vector = vectors[static_cast<std::size_t>(i)];
    if (vector.rank() != 1)
      fail<ShapeError>("[meshgrid] expected vectors, got shape {}", vector.shape().to_string());
    sizes[axis_of(i)] = vector.shape().word(0);
  }
  std::vector<Tensor> grids;
  for (int i = 0; i < rank; ++i) {
    const Shape alone(along_axis(rank, axis_of(i), sizes[axis_of(i)]));
    grids.push_back(
        broadcast_to(reshape(vectors[static_cast<std::size_t>(i)], alone), Shape(sizes)));
  }
  return grids;
}

}  // namespace tandem
