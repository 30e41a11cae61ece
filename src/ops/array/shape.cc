// Operations that change only the shape. Their results are views that share storage.
#include "core/dim.h"
#include "core/status.h"
#include "op/record.h"
#include "ops/array/array_ops.h"
#include "ops/math/of_size.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "runtime/trace.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {

int normalize_axis(const OpDef& op, std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank)
    fail<InvalidArgumentError>("[{}] expected an axis of [{}, {}), got {}", op.name, -rank, rank,
                               axis);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::string text_of(const Dims& dims) { return fmt::format("({})", dim::text(dims.span(), ", ")); }

namespace {

struct ReshapeAttrs {
  Shape shape;
  TANDEM_FIELDS(shape)
};

void infer_reshape(InferContext& c) {
  Shape shape = c.attrs<ReshapeAttrs>().shape;
  const std::int64_t count = dim::num_elements(c.shape(0));
  int open = -1;
  bool valid = shape.known() && !shape.too_large();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape.word(axis) == -1 && open < 0)
      open = axis;
    else if (!dim::is_size(shape.word(axis)))
      valid = false;
  }
  if (valid && open >= 0) {
    shape.set(open, 1);
    const std::int64_t others = dim::num_elements(shape);
    valid = dim::may_be_multiple(count, others);
    if (valid) shape.set(open, dim::quotient(count, others));
  } else {
    valid = valid && dim::may_equal(dim::num_elements(shape), count);
  }
  if (!valid)
    fail<ShapeError>("[Reshape] expected a shape of {} elements for a tensor of shape {}, got {}",
                     dim::text(count), c.shape(0).to_string(),
                     text_of(c.attrs<ReshapeAttrs>().shape.words()));
  c.add_output(c.dtype(0), shape);
}

struct EnsureShapeAttrs {
  Shape shape;
  std::string expected;  // for messages: "[what] expected a tensor of shape"
  TANDEM_FIELDS(shape, expected)
};

void infer_ensure_shape(InferContext& c) {
  const auto& attrs = c.attrs<EnsureShapeAttrs>();
  const Shape& expected = attrs.shape;
  Shape shape = c.shape(0);
  bool matches = !expected.known() || expected.rank() == shape.rank();
  for (int axis = 0; matches && axis < expected.rank(); ++axis) {
    if (!dim::is_size(expected.word(axis))) continue;
    matches = dim::may_equal(expected.word(axis), shape.word(axis));
    shape.set(axis, expected.word(axis));
  }
  if (!matches)
    fail<ShapeError>("{} {}, got shape {}", attrs.expected, expected.to_string(),
                     c.shape(0).to_string());
  c.add_output(c.dtype(0), shape);
}

void ensure_shape_gradient(GradContext& c) {
  c.set_grad(0, ensure_shape(c.grad(), c.input_spec(0).shape));
}

// The gradient of every view is a reshape to the input's shape.
void view_gradient(GradContext& c) { c.set_grad(0, reshape(c.grad(), c.input_spec(0).shape)); }

struct AxesAttrs {
  Dims axes;
  TANDEM_FIELDS(axes)
};

void infer_expand_dims(InferContext& c) {
  const int axis = normalize_axis(c.op(), c.attrs<AxesAttrs>().axes[0], c.shape(0).rank() + 1);
  Dims dims;
  for (int i = 0; i <= c.shape(0).rank(); ++i) {
    if (i == axis) dims.push_back(1);
    if (i < c.shape(0).rank()) dims.push_back(c.shape(0).word(i));
  }
  c.add_output(c.dtype(0), Shape(dims));
}

void infer_squeeze(InferContext& c) {
  const Shape& shape = c.shape(0);
  const Dims& axes = c.attrs<AxesAttrs>().axes;
  bool drop[kMaxRank] = {};
  for (const std::int64_t axis : axes) {
    const int i = normalize_axis(c.op(), axis, shape.rank());
    if (!dim::may_equal(shape.word(i), 1))
      fail<ShapeError>("[Squeeze] expected axis {} of shape {} to be 1, got {}", axis,
                       shape.to_string(), dim::text(shape.word(i)));
    drop[i] = true;
  }
  Dims dims;
  for (int i = 0; i < shape.rank(); ++i)
    if (axes.empty() ? dim::known("Squeeze", shape.word(i), "the rank of the result") != 1
                     : !drop[i])
      dims.push_back(shape.word(i));
  c.add_output(c.dtype(0), Shape(dims));
}

void infer_same(InferContext& c) { c.add_output(c.dtype(0), c.shape(0)); }

// An identity moves a tensor to its device: so does its gradient, once for all that reads it there.
void identity_gradient(GradContext& c) { c.set_grad(0, identity(c.grad())); }

}  // namespace

const OpDef kReshape = {.name = "Reshape",
                        .attrs = &attrs_type<ReshapeAttrs>,
                        .infer = infer_reshape,
                        .gradient = view_gradient,
                        .traits = kView | kMetadata};
const OpDef kEnsureShape = {.name = "EnsureShape",
                            .attrs = &attrs_type<EnsureShapeAttrs>,
                            .infer = infer_ensure_shape,
                            .gradient = ensure_shape_gradient,
                            .traits = kView | kMetadata};
const OpDef kExpandDims = {.name = "ExpandDims",
                           .attrs = &attrs_type<AxesAttrs>,
                           .infer = infer_expand_dims,
                           .gradient = view_gradient,
                           .traits = kView | kMetadata};
const OpDef kSqueeze = {.name = "Squeeze",
                        .attrs = &attrs_type<AxesAttrs>,
                        .infer = infer_squeeze,
                        .gradient = view_gradient,
                        .traits = kView | kMetadata};
const OpDef kIdentity = {
    .name = "Identity", .infer = infer_same, .gradient = identity_gradient, .traits = kView};
const OpDef kStopGradient = {
    .name = "StopGradient", .infer = infer_same, .traits = kView | kMetadata};

Tensor reshape(const Tensor& x, const Shape& shape) {
  return run(kReshape, {&x}, ReshapeAttrs{shape});
}
Tensor of_shape(std::string_view what, std::string_view wanted, const Tensor& x,
                const Shape& shape) {
  if (x.shape() == shape) return x;
  return run(kEnsureShape, {&x},
             EnsureShapeAttrs{shape, fmt::format("[{}] expected {}", what, wanted)});
}
Tensor ensure_shape(const Tensor& x, const Shape& shape) {
  return of_shape("EnsureShape", "a tensor of shape", x, shape);
}
Tensor expand_dims(const Tensor& x, std::int64_t axis) {
  return run(kExpandDims, {&x}, AxesAttrs{{axis}});
}
Tensor squeeze(const Tensor& x, const Dims& axes) {
  if (axes.empty() && !x.shape().fully_defined())
    fail<ShapeError>("[Squeeze] expected axes, because sizes of shape {} are not known",
                     x.shape().to_string());
  return run(kSqueeze, {&x}, AxesAttrs{axes});
}
Tensor identity(const Tensor& x, const IdentityOptions& options) {
  return named(run(kIdentity, {&x}), options.name);
}
Tensor stop_gradient(const Tensor& x) { return run(kStopGradient, {&x}); }
Tensor size(const Tensor& x, DType dtype) {
  if (x.shape().fully_defined())
    return full(Shape::scalar(), static_cast<double>(x.size()), {.dtype = dtype});
  return reduce_sum(ones_like(cast(x, dtype)));
}

OpList shape_ops() {
  return list_of<kReshape, kEnsureShape, kExpandDims, kSqueeze, kIdentity, kStopGradient,
                 kTranspose, kBroadcastTo, kTile, kReverse, kSlice, kStridedSlice, kPad,
                 kSliceGrad>();
}

}  // namespace tandem
