// Joining, cutting, turning and overwriting tensors: made of other operations.
#include <algorithm>
#include <vector>

#include "core/dim.h"
#include "core/status.h"
#include "ops/math/of_size.h"
#include "tandem/creation.h"
#include "tandem/elementary.h"
#include "tandem/math.h"
#include "tandem/rearrange.h"
#include "tandem/scatter.h"

namespace tandem {
namespace {

// `axis` counted from the start. Throws ShapeError for an axis that does not exist.
int place_of(const Tensor& x, std::int64_t axis) {
  static_cast<void>(x.dim(axis));
  return static_cast<int>(axis < 0 ? axis + x.rank() : axis);
}

// `by_position`, a vector, along `axis` of a tensor of this rank.
Tensor laid_along(const Tensor& by_position, int axis, int rank) {
  Dims sizes;
  for (int i = 0; i < rank; ++i) sizes.push_back(i == axis ? -1 : 1);
  return reshape(by_position, Shape(sizes));
}

template <class Change>
Tensor joined(TensorList tensors, const Change& change, std::int64_t axis) {
  std::vector<Tensor> changed;
  for (const Tensor& tensor : tensors) changed.push_back(change(tensor));
  return concat(changed, axis);
}

// Negative positions count from the end.
Tensor from_start(const Tensor& indices, const Tensor& size) {
  if (indices.dtype() != int32 && indices.dtype() != int64)
    fail<DTypeError>("[index] expected int32 or int64 indices, got {}", name_of(indices.dtype()));
  const Tensor at = cast(indices, int64);
  return where(less(at, 0.0), at + size, at);
}

Tensor half_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset, bool lower) {
  if (rows < 0 || columns < 0)
    fail<InvalidArgumentError>("[{}] expected sizes of 0 or more, got {} and {}",
                               lower ? "tril_indices" : "triu_indices", rows, columns);
  std::vector<std::int64_t> found_rows, found_columns;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      if (lower ? j - i <= offset : j - i >= offset) {
        found_rows.push_back(i);
        found_columns.push_back(j);
      }
  return stack({constant(found_rows), constant(found_columns)});
}

}  // namespace

Tensor atleast_1d(const Tensor& x) { return x.rank() > 0 ? x : expand_dims(x, 0); }
Tensor atleast_2d(const Tensor& x) { return x.rank() > 1 ? x : expand_dims(atleast_1d(x), 0); }
Tensor atleast_3d(const Tensor& x) { return x.rank() > 2 ? x : expand_dims(atleast_2d(x), -1); }

Tensor hstack(TensorList tensors) {
  return joined(tensors, atleast_1d, tensors.size() > 0 && tensors[0].rank() > 1 ? 1 : 0);
}
Tensor vstack(TensorList tensors) { return joined(tensors, atleast_2d, 0); }
Tensor dstack(TensorList tensors) { return joined(tensors, atleast_3d, 2); }
Tensor column_stack(TensorList tensors) {
  const auto column = [](const Tensor& x) {
    return x.rank() > 1 ? x : expand_dims(atleast_1d(x), 1);
  };
  return joined(tensors, column, 1);
}

Tensor block_diag(TensorList matrices) {
  Dim before = 0, all = 0;
  for (const Tensor& matrix : matrices) {
    if (matrix.rank() > 2)
      fail<ShapeError>("[block_diag] expected matrices, vectors or scalars, got shape {}",
                       matrix.shape().to_string());
    all += atleast_2d(matrix).dim(1);
  }
  const auto in_columns = [&](const Tensor& x) {
    const Tensor matrix = atleast_2d(x);
    const Dim left = before;
    before += matrix.dim(1);
    return pad(matrix, std::vector<std::pair<Dim, Dim>>{{0, 0}, {left, all - before}});
  };
  return joined(matrices, in_columns, 0);
}

std::vector<Tensor> tensor_split(const Tensor& x, std::int64_t parts, std::int64_t axis) {
  if (parts < 1)
    fail<InvalidArgumentError>("[tensor_split] expected at least 1 part, got {}", parts);
  const Dim size = x.dim(axis), each = size / parts, longer = size % parts;
  std::vector<Tensor> split;
  for (std::int64_t i = 0; i < parts; ++i)
    split.push_back(x.slice(axis, i * each + min(i, longer), (i + 1) * each + min(i + 1, longer)));
  return split;
}

std::vector<Tensor> tensor_split(const Tensor& x, const std::vector<std::int64_t>& positions,
                                 std::int64_t axis) {
  const Dim size = x.dim(axis);
  std::vector<Tensor> parts;
  Dim begin = 0;
  for (std::size_t i = 0; i <= positions.size(); ++i) {
    Dim end = size;
    if (i < positions.size())
      end = min(max(positions[i] < 0 ? positions[i] + size : Dim(positions[i]), 0), size);
    parts.push_back(x.slice(axis, begin, max(begin, end)));
    begin = end;
  }
  return parts;
}

Tensor unflatten(const Tensor& x, std::int64_t axis, const Dims& sizes) {
  const int at = place_of(x, axis);
  Dims result;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != at) {
      result.push_back(x.shape().word(i));
      continue;
    }
    std::int64_t others = 1;
    for (const std::int64_t size : sizes)
      if (size != -1) others *= size;
    for (const std::int64_t size : sizes) {
      const bool inferred = size == -1 && others > 0;
      if (inferred && !dim::may_be_multiple(x.shape().word(i), others))
        fail<ShapeError>("[unflatten] expected sizes that multiply to axis {} of shape {}", axis,
                         x.shape().to_string());
      result.push_back(inferred ? dim::quotient(x.shape().word(i), others) : size);
    }
  }
  return reshape(x, Shape(result));
}

Tensor unfold(const Tensor& x, std::int64_t axis, std::int64_t size, std::int64_t step) {
  if (x.rank() == 0) return unfold(expand_dims(x, 0), 0, size, step).select(0, 0);
  const int at = place_of(x, axis);
  const Dim all = x.dim(at);
  if (size < 0 || !dim::may_be_at_most(size, all) || step < 1)
    fail<InvalidArgumentError>(
        "[unfold] expected windows of at most {} positions and steps of at least 1, got {} and {}",
        dim::text(all), size, step);
  const Tensor y =
      of_least_size("unfold", "an axis that holds a window, a shape such as", x, at, size);
  const Tensor starts = expand_dims(range((all - size) / step + 1, {.dtype = int64}), 1);
  const Tensor positions = starts * static_cast<double>(step) + range(Dim(size), {.dtype = int64});
  return movedim(gather(y, positions, at), at + 1, -1);
}

Tensor movedim(const Tensor& x, const Dims& from, const Dims& to) {
  if (from.size() != to.size())
    fail<InvalidArgumentError>("[movedim] expected as many places as axes, got {} and {}",
                               to.size(), from.size());
  std::vector<int> order(static_cast<std::size_t>(x.rank()), -1);
  std::vector<bool> moves(order.size(), false);
  for (int i = 0; i < from.size(); ++i) {
    const int source = place_of(x, from[i]);
    int& place = order[static_cast<std::size_t>(place_of(x, to[i]))];
    if (moves[static_cast<std::size_t>(source)] || place != -1)
      throw InvalidArgumentError("[movedim] expected each axis and each place once");
    moves[static_cast<std::size_t>(source)] = true;
    place = source;
  }
  int next = 0;
  for (int& place : order) {
    if (place != -1) continue;
    while (moves[static_cast<std::size_t>(next)]) ++next;
    place = next++;
  }
  return transpose(x, Dims(order.begin(), order.end()));
}

Tensor rot90(const Tensor& x, std::int64_t times, std::int64_t first, std::int64_t second) {
  const int a = place_of(x, first), b = place_of(x, second);
  if (a == b)
    fail<InvalidArgumentError>("[rot90] expected two different axes, got {} and {}", first, second);
  switch ((times % 4 + 4) % 4) {
    case 1: return reverse(x, {b}).transpose(a, b);
    case 2: return reverse(x, {a, b});
    case 3: return reverse(x, {a}).transpose(a, b);
    default: return x;
  }
}

Tensor tril_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset) {
  return half_indices(rows, columns, offset, true);
}
Tensor triu_indices(std::int64_t rows, std::int64_t columns, std::int64_t offset) {
  return half_indices(rows, columns, offset, false);
}

Tensor cartesian_prod(TensorList vectors) {
  if (vectors.size() == 1) return vectors[0];
  std::vector<Tensor> columns;
  for (const Tensor& grid : meshgrid(vectors, "ij")) columns.push_back(reshape(grid, {-1}));
  return stack(columns, 1);
}

Tensor combinations(const Tensor& x, std::int64_t count, bool repeated) {
  if (x.rank() != 1)
    fail<ShapeError>("[combinations] expected a vector, got shape {}", x.shape().to_string());
  if (count < 1)
    fail<InvalidArgumentError>("[combinations] expected 1 element or more, got {}", count);
  const Dim size = x.dim(0);
  const std::int64_t apart = repeated ? 0 : 1;
  // Rows of positions. Each is followed by all that have one more position after its last one.
  Tensor last = range(size, {.dtype = int64}), rows = expand_dims(last, 1);
  Dim many = size;
  for (std::int64_t i = 1; i < count; ++i) {
    const Tensor following = size - apart - last, ends = cumsum(following, 0);
    many = Dim(dim::quotient(many * (repeated ? size + i : size - i), i + 1));
    const Tensor number = range(many, {.dtype = int64});
    const Tensor row = searchsorted(ends, number, true);
    last = gather(last + static_cast<double>(apart) - (ends - following), row) + number;
    rows = concat({gather(rows, row), expand_dims(last, 1)}, 1);
  }
  return gather(x, rows);
}

Tensor take(const Tensor& x, const Tensor& indices) {
  return gather(reshape(x, {-1}), from_start(indices, size(x, int64)));
}

Tensor slice_scatter(const Tensor& x, const Tensor& source, std::int64_t axis, const Slice& range) {
  const int at = place_of(x, axis);
  if (range.step < 1)
    fail<InvalidArgumentError>("[slice_scatter] expected a step of at least 1, got {}", range.step);
  const Dim size = x.dim(at);
  const Tensor all = tandem::range(size, {.dtype = int64}), places = all[range];
  Shape expected = x.shape();
  expected.set(at, places.shape().word(0));
  if (!dim::may_equal(source.shape(), expected))
    fail<ShapeError>("[slice_scatter] expected a source of shape {}, got {}", expected.to_string(),
                     source.shape().to_string());
  const Tensor part = of_shape("slice_scatter", "a source of shape", source, expected);
  // The positions in x and the source, one after the other.
  const Tensor moved = scatter_nd(
      expand_dims(places, 1),
      cast(tandem::range(places.dim(0), {.dtype = int64}) + size - places, float64), {size});
  return gather(concat({x, part}, at), all + cast(moved, int64), at);
}

Tensor select_scatter(const Tensor& x, const Tensor& source, std::int64_t axis,
                      std::int64_t index) {
  const int at = place_of(x, axis);
  const std::int64_t least = index < 0 ? -index : index + 1;
  const Dim size = x.dim(at);
  if (!dim::may_be_at_most(least, size))
    fail<InvalidArgumentError>("[select_scatter] expected an index of [{}, {}), got {}",
                               dim::text(-size), dim::text(size), index);
  const Tensor y =
      of_least_size("select_scatter", "an axis that has the index, a shape such as", x, at, least);
  const Tensor slice = expand_dims(source, at);
  Shape expected = x.shape();
  expected.set(at, 1);
  if (!dim::may_equal(slice.shape(), expected))
    fail<ShapeError>("[select_scatter] expected a source of shape {}, got {}",
                     x.select(at, 0).shape().to_string(), source.shape().to_string());
  const Tensor chosen = equal(range(size, {.dtype = int64}), index < 0 ? size + index : Dim(index));
  return where(
      laid_along(chosen, at, x.rank()),
      of_shape("select_scatter", "a source that is, with an axis of 1, of shape", slice, expected),
      y);
}

Tensor diagonal_scatter(const Tensor& x, const Tensor& source, std::int64_t offset) {
  if (x.rank() < 2)
    fail<ShapeError>("[diagonal_scatter] expected matrices, got shape {}", x.shape().to_string());
  const Tensor rows = expand_dims(range(x.dim(-2)), 1), columns = range(x.dim(-1));
  const Tensor chosen = equal(columns - rows, static_cast<double>(offset));
  // Element i of the source belongs to row i, or for diagonals below the main one to column i.
  const std::int64_t before = std::max<std::int64_t>(0, -offset);
  const Shape diagonal = x.diagonal(offset, -2, -1).shape();
  if (!dim::may_equal(source.shape(), diagonal))
    fail<ShapeError>("[diagonal_scatter] expected a source of shape {}, got {}",
                     diagonal.to_string(), source.shape().to_string());
  std::vector<std::pair<Dim, Dim>> sides(static_cast<std::size_t>(source.rank()), {0, 0});
  sides.back() = {before, x.dim(-2) - source.dim(-1) - before};
  const Tensor elements = of_shape("diagonal_scatter", "a source of shape", source, diagonal);
  return where(chosen, expand_dims(pad(elements, sides), -1), x);
}

Tensor index_fill(const Tensor& x, std::int64_t axis, const Tensor& indices, double value) {
  const int at = place_of(x, axis);
  if (indices.rank() != 1)
    fail<ShapeError>("[index_fill] expected a vector of indices, got shape {}",
                     indices.shape().to_string());
  const Dim size = x.dim(at);
  const Tensor places = expand_dims(from_start(indices, detail::scalar_of(size, int64)), 1);
  const Tensor times = scatter_nd(places, full(indices.shape(), 1.0, int32), {size});
  return where(laid_along(greater(times, 0.0), at, x.rank()), value, x);
}

}  // namespace tandem
