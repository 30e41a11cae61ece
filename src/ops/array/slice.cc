// Slices of tensors: views if only the first axis is cut, copies otherwise.
#include "core/status.h"
#include "op/record.h"
#include "ops/array/array_ops.h"
#include "ops/array/copies.h"
#include "ops/array/pad.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"

namespace tandem {
namespace {

// --- Slice: copies any part ---

struct SliceAttrs {
  Dims begin;
  Dims size;
  TANDEM_FIELDS(begin, size)
};

void infer_slice(InferContext& c) {
  const Shape& shape = c.shape(0);
  const SliceAttrs& attrs = c.attrs<SliceAttrs>();
  bool valid = attrs.begin.size() == shape.rank() && attrs.size.size() == shape.rank();
  Dims dims;
  for (int axis = 0; valid && axis < shape.rank(); ++axis) {
    const std::int64_t begin = attrs.begin[axis];
    valid = dim::may_be_at_most(0, begin) && dim::may_be_at_most(begin, shape.word(axis));
    if (!valid) break;
    const std::int64_t left = dim::difference(shape.word(axis), begin);
    dims.push_back(attrs.size[axis] == -1 ? left : attrs.size[axis]);
    valid = dim::may_be_at_most(0, dims[axis]) && dim::may_be_at_most(dims[axis], left);
  }
  if (!valid)
    fail<ShapeError>("[Slice] expected a part of shape {}, got begin {} and size {}",
                     shape.to_string(), text_of(attrs.begin), text_of(attrs.size));
  c.add_output(c.dtype(0), Shape(dims));
}

}  // namespace

StridedCopy slice_copy(const KernelContext& c) {
  const Dims& begin = c.attrs<SliceAttrs>().begin;
  const Shape& shape = c.outputs[0].shape;
  const Dims strides = dense_strides(c.inputs[0].shape);
  StridedCopy copy;
  std::int64_t offset = 0;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    offset += begin[axis] * strides[axis];
    copy.add_axis(shape.word(axis), strides[axis]);
  }
  copy.set_offset(offset);
  return copy;
}

namespace {

void slice_kernel(KernelContext& c) {
  if (c.outputs[0].size() > 0)
    slice_copy(c).run(c.outputs[0].data, c.inputs[0].data, size_of(c.outputs[0].dtype));
}

// A tensor of shape `whole` with `gradient` at `begin` and zeros elsewhere.
Tensor pad_to_shape(const Tensor& gradient, const Dims& begin, const Shape& whole) {
  SliceGradAttrs attrs;
  attrs.before = begin;
  attrs.shape = whole;
  return run(kSliceGrad, {&gradient}, attrs);
}

void slice_gradient(GradContext& c) {
  c.set_grad(0, pad_to_shape(c.grad(), c.attrs<SliceAttrs>().begin, c.input_spec(0).shape));
}

// --- StridedSlice: a view of rows of the first axis ---

struct StridedSliceAttrs {
  std::int64_t begin = 0;
  std::int64_t end = 0;  // exclusive
  bool shrink = false;   // select the row at `begin` and drop the axis
  TANDEM_FIELDS(begin, end, shrink)
};

// The index of the first row. A negative `begin` counts from the end.
std::int64_t first_row(const StridedSliceAttrs& attrs, const Shape& shape) {
  const bool from_end = attrs.shrink && !dim::is_size(attrs.begin);
  return from_end ? dim::sum(attrs.begin, shape.word(0)) : attrs.begin;
}

void infer_strided_slice(InferContext& c) {
  const Shape& shape = c.shape(0);
  const StridedSliceAttrs& attrs = c.attrs<StridedSliceAttrs>();
  if (shape.rank() == 0)
    fail<ShapeError>("[StridedSlice] expected a tensor of at least one axis, got a scalar");
  const std::int64_t begin = first_row(attrs, shape);
  if (attrs.shrink) {
    if (!dim::may_be_at_most(0, begin) || !dim::may_be_at_most(dim::sum(begin, 1), shape.word(0)))
      fail<InvalidArgumentError>(
          "[StridedSlice] expected an index of [{}, {}) for shape {}, got {}",
          dim::text(dim::product(-1, shape.word(0))), dim::text(shape.word(0)), shape.to_string(),
          dim::text(attrs.begin));
    c.add_output(c.dtype(0), shape.without_leading(1));
  } else {
    if (!dim::may_be_at_most(0, begin) || !dim::may_be_at_most(begin, attrs.end) ||
        !dim::may_be_at_most(attrs.end, shape.word(0)))
      fail<ShapeError>("[StridedSlice] expected rows within [0, {}) of shape {}, got [{}, {})",
                       dim::text(shape.word(0)), shape.to_string(), dim::text(attrs.begin),
                       dim::text(attrs.end));
    Shape part = shape;
    part.set(0, dim::difference(attrs.end, begin));
    c.add_output(c.dtype(0), part);
  }
}

std::int64_t strided_slice_offset(const InferContext& c) {
  return first_row(c.attrs<StridedSliceAttrs>(), c.shape(0)) *
         c.shape(0).without_leading(1).num_elements() *
         static_cast<std::int64_t>(size_of(c.dtype(0)));
}

void strided_slice_gradient(GradContext& c) {
  const StridedSliceAttrs& attrs = c.attrs<StridedSliceAttrs>();
  const Shape& whole = c.input_spec(0).shape;
  Dims begin{first_row(attrs, whole)};
  while (begin.size() < whole.rank()) begin.push_back(0);
  c.set_grad(0, pad_to_shape(attrs.shrink ? expand_dims(c.grad(), 0) : c.grad(), begin, whole));
}

}  // namespace

const OpDef kSlice = {.name = "Slice",
                      .attrs = &attrs_type<SliceAttrs>,
                      .infer = infer_slice,
                      .gradient = slice_gradient,
                      .cpu_kernel = slice_kernel,
                      .traits = kStorage};
const OpDef kStridedSlice = {.name = "StridedSlice",
                             .attrs = &attrs_type<StridedSliceAttrs>,
                             .infer = infer_strided_slice,
                             .gradient = strided_slice_gradient,
                             .traits = kView | kMetadata,
                             .view_offset = strided_slice_offset};

Tensor slice(const Tensor& x, const Sizes& from, const Sizes& extent) {
  const Dims &begin = from.words(), &size = extent.words();
  const Shape& shape = x.shape();
  // If only the first axis is cut, the result is a view. Invalid arguments go to Slice, which
  // throws.
  bool whole_rows = shape.rank() > 0 && begin.size() == shape.rank() && size.size() == shape.rank();
  for (int axis = 1; whole_rows && axis < shape.rank(); ++axis)
    whole_rows = begin[axis] == 0 && (size[axis] == -1 || size[axis] == shape.word(axis));
  if (whole_rows) {
    const bool begins =
        dim::may_be_at_most(0, begin[0]) && dim::may_be_at_most(begin[0], shape.word(0));
    const std::int64_t left = begins ? dim::difference(shape.word(0), begin[0]) : 0;
    const std::int64_t rows = size[0] == -1 ? left : size[0];
    if (begins && dim::may_be_at_most(0, rows) && dim::may_be_at_most(rows, left))
      return slice_rows(x, begin[0], dim::sum(begin[0], rows));
  }
  return run(kSlice, {&x}, SliceAttrs{begin, size});
}

Tensor slice_rows(const Tensor& x, Dim begin, Dim end) {
  return run(kStridedSlice, {&x}, StridedSliceAttrs{.begin = begin.word(), .end = end.word()});
}

Tensor Tensor::row(Dim position) const {
  const std::int64_t index = position.word();
  return run(kStridedSlice, {this},
             StridedSliceAttrs{.begin = index, .end = dim::sum(index, 1), .shrink = true});
}

}  // namespace tandem
