// Operations that rearrange elements: transpose, broadcast_to, tile, reverse.
#include "core/status.h"
#include "op/record.h"
#include "ops/array/array_ops.h"
#include "ops/array/copies.h"
#include "ops/math/broadcast.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem {
namespace {

template <StridedCopy (*kCopy)(const KernelContext&)>
void copy_kernel(KernelContext& c) {
  if (c.outputs[0].size() > 0)
    kCopy(c).run(c.outputs[0].data, c.inputs[0].data, size_of(c.outputs[0].dtype));
}

// --- Transpose ---

struct TransposeAttrs {
  Dims permutation;  // empty: the axes reversed
  TANDEM_FIELDS(permutation)
};

// The full permutation with nonnegative axes.
Dims full_permutation(const OpDef& op, const Dims& given, int rank) {
  Dims permutation = given;
  if (given.empty())
    for (int axis = rank - 1; axis >= 0; --axis) permutation.push_back(axis);
  bool seen[kMaxRank] = {};
  bool valid = permutation.size() == rank;
  for (int i = 0; valid && i < rank; ++i) {
    valid = permutation[i] >= -rank && permutation[i] < rank;
    if (!valid) break;
    permutation[i] = normalize_axis(op, permutation[i], rank);
    valid = !std::exchange(seen[permutation[i]], true);
  }
  if (!valid)
    fail<ShapeError>("[Transpose] expected a permutation of the {} axes, got {}", rank,
                     text_of(given));
  return permutation;
}

void infer_transpose(InferContext& c) {
  const Shape& shape = c.shape(0);
  Dims dims;
  for (const std::int64_t axis :
       full_permutation(c.op(), c.attrs<TransposeAttrs>().permutation, shape.rank()))
    dims.push_back(shape.word(static_cast<int>(axis)));
  c.add_output(c.dtype(0), Shape(dims));
}

}  // namespace

StridedCopy transpose_copy(const KernelContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const Dims strides = dense_strides(shape);
  StridedCopy copy;
  for (const std::int64_t axis :
       full_permutation(*c.op, c.attrs<TransposeAttrs>().permutation, shape.rank()))
    copy.add_axis(shape.word(static_cast<int>(axis)), strides[static_cast<int>(axis)]);
  return copy;
}

namespace {

void transpose_gradient(GradContext& c) {
  const int rank = c.input_spec(0).shape.rank();
  const Dims permutation = full_permutation(c.op(), c.attrs<TransposeAttrs>().permutation, rank);
  Dims inverse = permutation;
  for (int i = 0; i < rank; ++i) inverse[static_cast<int>(permutation[i])] = i;
  c.set_grad(0, transpose(c.grad(), inverse));
}

// --- BroadcastTo ---

struct BroadcastToAttrs {
  Shape shape;
  TANDEM_FIELDS(shape)
};

void infer_broadcast_to(InferContext& c) {
  const Shape& from = c.shape(0);
  const Shape& to = c.attrs<BroadcastToAttrs>().shape;
  const int added = to.rank() - from.rank();
  bool valid = dim::are_sizes(to) && added >= 0;
  for (int axis = 0; valid && axis < from.rank(); ++axis)
    valid = dim::may_equal(from.word(axis), 1) ||
            dim::may_equal(from.word(axis), to.word(axis + added));
  if (!valid)
    fail<ShapeError>("[BroadcastTo] expected a shape that {} broadcasts to, got {}",
                     from.to_string(), to.to_string());
  c.add_output(c.dtype(0), to);
}

}  // namespace

StridedCopy broadcast_to_copy(const KernelContext& c) {
  const Shape& from = c.inputs[0].shape;
  const Shape& to = c.outputs[0].shape;
  const Dims strides = dense_strides(from);
  const int added = to.rank() - from.rank();
  StridedCopy copy;
  for (int axis = 0; axis < to.rank(); ++axis)
    copy.add_axis(to.word(axis),
                  axis < added || from.word(axis - added) == 1 ? 0 : strides[axis - added]);
  return copy;
}

namespace {

void broadcast_to_gradient(GradContext& c) {
  c.set_grad(0, sum_to_shape(c.grad(), c.input_spec(0).shape));
}

// --- Tile ---

struct TileAttrs {
  Dims multiples;
  TANDEM_FIELDS(multiples)
};

void infer_tile(InferContext& c) {
  const Shape& shape = c.shape(0);
  const Dims& multiples = c.attrs<TileAttrs>().multiples;
  bool valid = multiples.size() == shape.rank();
  for (const std::int64_t multiple : multiples) valid = valid && dim::may_be_at_most(0, multiple);
  if (!valid)
    fail<ShapeError>("[Tile] expected {} multiples of at least 0 for shape {}, got {}",
                     shape.rank(), shape.to_string(), text_of(multiples));
  Dims dims;
  for (int axis = 0; axis < shape.rank(); ++axis)
    dims.push_back(c.product(shape.word(axis), multiples[axis]));
  c.add_output(c.dtype(0), Shape(dims));
}

}  // namespace

StridedCopy tile_copy(const KernelContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const Dims strides = dense_strides(shape);
  StridedCopy copy;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    copy.add_axis(c.attrs<TileAttrs>().multiples[axis], 0);
    copy.add_axis(shape.word(axis), strides[axis]);
  }
  return copy;
}

namespace {

// The product of the sizes [first, last).
std::int64_t merged(const Shape& sizes, int first, int last) {
  std::int64_t count = 1;
  for (int axis = first; axis < last; ++axis) count = dim::product(count, sizes.word(axis));
  return count;
}

// Sums axis by axis, so that no intermediate result exceeds the maximum rank.
void tile_gradient(GradContext& c) {
  const Shape &shape = c.input_spec(0).shape, &tiled = c.output_spec(0).shape;
  const Dims& multiples = c.attrs<TileAttrs>().multiples;
  Tensor gradient = c.grad();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (multiples[axis] == 1) continue;
    const Shape parts{merged(shape, 0, axis), multiples[axis], shape.word(axis),
                      merged(tiled, axis + 1, shape.rank())};
    gradient = reduce_sum(reshape(gradient, parts), {.axis = Dims{1}});
  }
  c.set_grad(0, reshape(gradient, shape));
}

// --- Reverse ---

struct ReverseAttrs {
  Dims axes;
  TANDEM_FIELDS(axes)
};

void infer_reverse(InferContext& c) {
  bool seen[kMaxRank] = {};
  for (const std::int64_t axis : c.attrs<ReverseAttrs>().axes)
    if (std::exchange(seen[normalize_axis(c.op(), axis, c.shape(0).rank())], true))
      fail<ShapeError>("[ReverseV2] expected each axis once, got {}",
                       text_of(c.attrs<ReverseAttrs>().axes));
  c.add_output(c.dtype(0), c.shape(0));
}

}  // namespace

StridedCopy reverse_copy(const KernelContext& c) {
  const Shape& shape = c.inputs[0].shape;
  Dims strides = dense_strides(shape);
  std::int64_t offset = 0;
  for (const std::int64_t given : c.attrs<ReverseAttrs>().axes) {
    const int axis = normalize_axis(*c.op, given, shape.rank());
    offset += (shape.word(axis) - 1) * strides[axis];
    strides[axis] = -strides[axis];
  }
  StridedCopy copy;
  copy.set_offset(offset);
  for (int axis = 0; axis < shape.rank(); ++axis) copy.add_axis(shape.word(axis), strides[axis]);
  return copy;
}

namespace {

void reverse_gradient(GradContext& c) {
  c.set_grad(0, reverse(c.grad(), c.attrs<ReverseAttrs>().axes));
}

}  // namespace

const OpDef kTranspose = {.name = "Transpose",
                          .attrs = &attrs_type<TransposeAttrs>,
                          .infer = infer_transpose,
                          .gradient = transpose_gradient,
                          .cpu_kernel = copy_kernel<transpose_copy>,
                          .traits = kStorage};
const OpDef kBroadcastTo = {.name = "BroadcastTo",
                            .attrs = &attrs_type<BroadcastToAttrs>,
                            .infer = infer_broadcast_to,
                            .gradient = broadcast_to_gradient,
                            .cpu_kernel = copy_kernel<broadcast_to_copy>,
                            .traits = kIdentityIfSame | kStorage};
const OpDef kTile = {.name = "Tile",
                     .attrs = &attrs_type<TileAttrs>,
                     .infer = infer_tile,
                     .gradient = tile_gradient,
                     .cpu_kernel = copy_kernel<tile_copy>,
                     .traits = kStorage};
const OpDef kReverse = {.name = "ReverseV2",
                        .attrs = &attrs_type<ReverseAttrs>,
                        .infer = infer_reverse,
                        .gradient = reverse_gradient,
                        .cpu_kernel = copy_kernel<reverse_copy>,
                        .traits = kStorage};

Tensor transpose(const Tensor& x, const Dims& permutation) {
  return run(kTranspose, {&x}, TransposeAttrs{permutation});
}
Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  return run(kBroadcastTo, {&x}, BroadcastToAttrs{shape});
}
Tensor tile(const Tensor& x, const Sizes& multiples) {
  return run(kTile, {&x}, TileAttrs{multiples.words()});
}
Tensor reverse(const Tensor& x, const Dims& axes) {
  return run(kReverse, {&x}, ReverseAttrs{axes});
}

}  // namespace tandem
