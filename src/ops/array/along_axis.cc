// Elements at a position of their own along an axis, and cyclic shifts: made of other operations.
#include "core/dim.h"
#include "core/status.h"
#include "ops/array/array_ops.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// `axis` counted from the start. Throws ShapeError for an axis that does not exist.
int axis_of(const Tensor& x, std::int64_t axis) {
  static_cast<void>(x.dim(axis));
  return static_cast<int>(axis < 0 ? axis + x.rank() : axis);
}

// The indices, for which it is checked that they fit; unknown sizes are checked in each run.
Tensor fitting(const char* function, const Tensor& x, int axis, const Tensor& indices) {
  if (indices.dtype() != int32 && indices.dtype() != int64)
    fail<DTypeError>("[{}] expected int32 or int64 indices, got {}", function,
                     name_of(indices.dtype()));
  bool fits = indices.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i)
    fits = i == axis || dim::may_be_at_most(indices.shape()[i], x.shape()[i]);
  if (!fits)
    fail<ShapeError>(
        "[{}] expected indices of the rank of shape {} and at most its sizes along axes other than "
        "{}, got shape {}",
        function, x.shape().to_string(), axis, indices.shape().to_string());
  Shape most = indices.shape();
  for (int i = 0; i < x.rank(); ++i)
    if (i != axis) most.set(i, dim::min(most.word(i), x.size_word(i)));
  return of_shape(function, "indices of at most shape", indices, most);
}

}  // namespace

Tensor element_positions(const char* function, const Tensor& x, std::int64_t axis,
                         const Tensor& indices) {
  const int along = axis_of(x, axis);
  const Tensor index = cast(fitting(function, x, along, indices), int64);
  Tensor position;  // in all elements
  Dim stride = 1;
  for (int i = x.rank() - 1; i >= 0; --i) {
    Tensor here = index;
    if (i != along) {
      Dims sizes;
      for (int k = 0; k < x.rank(); ++k) sizes.push_back(k == i ? -1 : 1);
      here = reshape(range(indices.shape()[i], {.dtype = int64}), Shape(sizes));
    }
    if (stride.word() != 1) here = here * stride;
    position = position.defined() ? position + here : here;
    stride *= x.shape()[i];
  }
  // An index that is out of range along the axis would be another element: it is refused, too.
  const Tensor inside = logical_and(greater_equal(index, 0.0), less(index, x.dim(along)));
  position = where(inside, position, -1.0);
  return broadcast_to(position, indices.shape());
}

Tensor gather(const Tensor& x, std::int64_t axis, const Tensor& indices) {
  return gather(reshape(x, {-1}), element_positions("gather", x, axis, indices));
}

Tensor take_along_axis(const Tensor& x, const Tensor& indices, std::int64_t axis) {
  const int along = axis_of(x, axis);
  if (indices.rank() != x.rank())
    fail<ShapeError>("[take_along_axis] expected indices of the rank of shape {}, got shape {}",
                     x.shape().to_string(), indices.shape().to_string());
  Dims sizes = x.shape().words();
  sizes[along] = indices.size_word(along);
  return gather(x, along, broadcast_to(indices, Shape(sizes)));
}

Tensor roll(const Tensor& x, std::int64_t shift, std::int64_t axis) {
  // The remainder of -shift, which is not negative.
  const std::int64_t size = x.size_word(axis), divisor = dim::max(size, 1),
                     whole = dim::product(dim::floor_quotient(-shift, divisor), divisor),
                     cut = dim::difference(-shift, whole);
  if (cut == 0) return x;
  return concat({x.slice(axis, cut, size), x.slice(axis, 0, cut)}, axis);
}

Tensor where(const Tensor& condition, const Tensor& a, double b) {
  return where(condition, a, full(Shape::scalar(), b, a.dtype()));
}
Tensor where(const Tensor& condition, double a, const Tensor& b) {
  return where(condition, full(Shape::scalar(), a, b.dtype()), b);
}
Tensor where(const Tensor& condition, double a, double b) {
  return where(condition, full(Shape::scalar(), a), full(Shape::scalar(), b));
}

}  // namespace tandem
