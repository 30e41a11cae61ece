// Concatenating tensors along an axis, and splitting them.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/dim.h"
#include "core/parallel.h"
#include "core/status.h"
#include "op/record.h"
#include "ops/array/array_ops.h"
#include "ops/array/copies.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/creation.h"

namespace tandem {
namespace {

struct JoinAttrs {
  std::int64_t axis = 0;
  TANDEM_FIELDS(axis)
};

std::int64_t elements_before(const Shape& shape, int axis) {
  std::int64_t count = 1;
  for (int i = 0; i < axis; ++i) count *= shape.word(i);
  return count;
}

// Copies `rows` runs of `bytes`, from runs `from_stride` apart to runs `to_stride` apart.
void copy_runs(std::byte* to, std::int64_t to_stride, const std::byte* from,
               std::int64_t from_stride, std::int64_t rows, std::int64_t bytes) {
  constexpr std::int64_t kGrainBytes = 64 * 1024;
  if (rows == 1) {
    parallel_for(bytes, kGrainBytes, [&](std::int64_t begin, std::int64_t end) {
      std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin));
    });
    return;
  }
  if (bytes == 0) return;
  parallel_for(rows, std::max<std::int64_t>(1, kGrainBytes / bytes),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t row = begin; row < end; ++row)
                   std::memcpy(to + row * to_stride, from + row * from_stride,
                               static_cast<std::size_t>(bytes));
               });
}

// The result has `rows` rows; each input is a contiguous run of every row, in order.
void join_parts(KernelContext& c, std::int64_t rows) {
  if (rows == 0) return;
  const auto size = static_cast<std::int64_t>(size_of(c.outputs[0].dtype));
  const std::int64_t stride = c.outputs[0].size() / rows * size;
  auto* to = c.outputs[0].as<std::byte>();
  for (const TensorView& part : c.inputs) {
    const std::int64_t run = part.size() / rows * size;
    copy_runs(to, stride, part.as<std::byte>(), run, rows, run);
    to += run;
  }
}

void take_parts(KernelContext& c, std::int64_t rows) {
  if (rows == 0) return;
  const auto size = static_cast<std::int64_t>(size_of(c.inputs[0].dtype));
  const std::int64_t stride = c.inputs[0].size() / rows * size;
  const auto* from = c.inputs[0].as<std::byte>();
  for (const TensorView& part : c.outputs) {
    const std::int64_t run = part.size() / rows * size;
    copy_runs(part.as<std::byte>(), run, from, stride, rows, run);
    from += run;
  }
}

// The gradients of all outputs; zeros for outputs that the loss does not depend on, which share
// memory if they have one shape.
std::vector<Tensor> output_gradients(GradContext& c) {
  std::vector<Tensor> gradients;
  Tensor none;
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (c.grad(i).defined()) {
      gradients.push_back(c.grad(i));
      continue;
    }
    const TensorType& spec = c.output_spec(i);
    if (!none.defined() || !(none.shape() == spec.shape))
      none = zeros(spec.shape, {.dtype = spec.dtype});
    gradients.push_back(none);
  }
  return gradients;
}

void check_join(const InferContext& c) {
  if (c.num_inputs() == 0)
    fail<InvalidArgumentError>("[{}] expected at least one tensor, got none", c.op().name);
  for (int i = 1; i < c.num_inputs(); ++i)
    if (c.dtype(i) != c.dtype(0))
      fail<DTypeError>("[{}] expected tensors of one dtype, got {} and {}", c.op().name,
                       name_of(c.dtype(0)), name_of(c.dtype(i)));
}

// --- ConcatV2 ---

void infer_concat(InferContext& c) {
  check_join(c);
  Shape shape = c.shape(0);
  if (shape.rank() == 0)
    fail<ShapeError>("[ConcatV2] expected tensors of at least one axis, got scalars");
  const int axis = normalize_axis(c.op(), c.attrs<JoinAttrs>().axis, shape.rank());
  std::int64_t total = shape.word(axis);
  for (int i = 1; i < c.num_inputs(); ++i) {
    Shape other = c.shape(i);
    if (other.rank() == shape.rank()) {
      total = c.sum(total, other.word(axis));
      other.set(axis, shape.word(axis));
    }
    if (!dim::may_equal(other, shape))
      fail<ShapeError>("[ConcatV2] expected shapes that agree except along axis {}, got {} and {}",
                       axis, shape.to_string(), c.shape(i).to_string());
    shape = dim::agreed(shape, other);
  }
  shape.set(axis, total);
  c.add_output(c.dtype(0), shape);
}

}  // namespace

std::int64_t rows_of_join(const KernelContext& c) {
  const Shape& shape = c.outputs[0].shape;
  return elements_before(shape, normalize_axis(*c.op, c.attrs<JoinAttrs>().axis, shape.rank()));
}

namespace {

void concat_kernel(KernelContext& c) { join_parts(c, rows_of_join(c)); }

// The gradients of tensors joined along axis 0 are views.
void set_row_gradients(GradContext& c, const std::vector<std::int64_t>& sizes) {
  std::int64_t begin = 0;
  for (int i = 0; i < c.num_inputs(); ++i) {
    const std::int64_t end = dim::sum(begin, sizes[static_cast<std::size_t>(i)]);
    if (c.needs_grad(i)) c.set_grad(i, slice_rows(c.grad(), begin, end));
    begin = end;
  }
}

void concat_gradient(GradContext& c) {
  const int axis = normalize_axis(c.op(), c.attrs<JoinAttrs>().axis, c.output_spec(0).shape.rank());
  std::vector<std::int64_t> sizes;
  for (int i = 0; i < c.num_inputs(); ++i) sizes.push_back(c.input_spec(i).shape.word(axis));
  if (axis == 0) return set_row_gradients(c, sizes);
  std::vector<Tensor> parts = split(c.grad(), sizes, axis);
  for (int i = 0; i < c.num_inputs(); ++i)
    if (c.needs_grad(i)) c.set_grad(i, std::move(parts[static_cast<std::size_t>(i)]));
}

// --- Pack ---

void infer_pack(InferContext& c) {
  check_join(c);
  Shape shape = c.shape(0);
  for (int i = 1; i < c.num_inputs(); ++i)
    if (!dim::may_equal(c.shape(i), shape))
      fail<ShapeError>("[Pack] expected tensors of one shape, got {} and {}",
                       c.shape(0).to_string(), c.shape(i).to_string());
    else
      shape = dim::agreed(shape, c.shape(i));
  const int axis = normalize_axis(c.op(), c.attrs<JoinAttrs>().axis, shape.rank() + 1);
  Dims dims;
  for (int i = 0; i <= shape.rank(); ++i) {
    if (i == axis) dims.push_back(c.num_inputs());
    if (i < shape.rank()) dims.push_back(shape.word(i));
  }
  c.add_output(c.dtype(0), Shape(dims));
}

void pack_gradient(GradContext& c) {
  const std::int64_t axis = c.attrs<JoinAttrs>().axis;
  if (normalize_axis(c.op(), axis, c.output_spec(0).shape.rank()) == 0) {
    for (int i = 0; i < c.num_inputs(); ++i)
      if (c.needs_grad(i)) c.set_grad(i, c.grad()[i]);
    return;
  }
  std::vector<Tensor> parts = unstack(c.grad(), axis);
  for (int i = 0; i < c.num_inputs(); ++i)
    if (c.needs_grad(i)) c.set_grad(i, std::move(parts[static_cast<std::size_t>(i)]));
}

// --- SplitV ---

struct SplitAttrs {
  std::vector<std::int64_t> sizes;
  std::int64_t axis = 0;
  TANDEM_FIELDS(sizes, axis)
};

void infer_split(InferContext& c) {
  const SplitAttrs& attrs = c.attrs<SplitAttrs>();
  Shape shape = c.shape(0);
  const int axis = normalize_axis(c.op(), attrs.axis, shape.rank());
  std::int64_t left = shape.word(axis);
  bool valid = !attrs.sizes.empty();
  for (const std::int64_t size : attrs.sizes) {
    valid = valid && dim::may_be_at_most(0, size) && dim::may_be_at_most(size, left);
    if (valid) left = dim::difference(left, size);
  }
  if (!valid || !dim::may_equal(left, 0))
    fail<ShapeError>(
        "[SplitV] expected sizes that add up to {} (axis {} of shape {}), got {}{}",
        dim::text(shape.word(axis)), axis, shape.to_string(), dim::text(attrs.sizes, "+"),
        std::ranges::any_of(attrs.sizes, dim::is_unknown)
            ? ""
            : fmt::format(" adding up to {}",
                          std::accumulate(attrs.sizes.begin(), attrs.sizes.end(), 0.0)));
  for (const std::int64_t size : attrs.sizes) {
    shape.set(axis, size);
    c.add_output(c.dtype(0), shape);
  }
}

}  // namespace

std::int64_t rows_of_split(const KernelContext& c) {
  const Shape& shape = c.inputs[0].shape;
  return elements_before(shape, normalize_axis(*c.op, c.attrs<SplitAttrs>().axis, shape.rank()));
}

namespace {

void split_kernel(KernelContext& c) { take_parts(c, rows_of_split(c)); }

void split_gradient(GradContext& c) {
  c.set_grad(0, concat(output_gradients(c), c.attrs<SplitAttrs>().axis));
}

// --- Unpack ---

void infer_unpack(InferContext& c) {
  const Shape& shape = c.shape(0);
  const int axis = normalize_axis(c.op(), c.attrs<JoinAttrs>().axis, shape.rank());
  constexpr std::int64_t kMaxTensors = std::int64_t{1} << 20;
  const std::int64_t count = dim::known("Unpack", shape.word(axis), "the number of results");
  if (count > kMaxTensors)
    fail<InvalidArgumentError>("[Unpack] expected an axis of at most {} tensors, got shape {}",
                               kMaxTensors, shape.to_string());
  Dims dims;
  for (int i = 0; i < shape.rank(); ++i)
    if (i != axis) dims.push_back(shape.word(i));
  for (std::int64_t i = 0; i < count; ++i) c.add_output(c.dtype(0), Shape(dims));
}

}  // namespace

std::int64_t rows_of_unpack(const KernelContext& c) {
  const Shape& shape = c.inputs[0].shape;
  return elements_before(shape, normalize_axis(*c.op, c.attrs<JoinAttrs>().axis, shape.rank()));
}

namespace {

void unpack_kernel(KernelContext& c) { take_parts(c, rows_of_unpack(c)); }

void unpack_gradient(GradContext& c) {
  c.set_grad(0, stack(output_gradients(c), c.attrs<JoinAttrs>().axis));
}

const OpDef kConcat = {.name = "ConcatV2",
                       .attrs = &attrs_type<JoinAttrs>,
                       .infer = infer_concat,
                       .gradient = concat_gradient,
                       .cpu_kernel = concat_kernel,
                       .traits = kStorage,
                       .autocast = kAutocastWidest};
// A new axis is concatenated like an existing one: the rows are the axes before it.
const OpDef kPack = {.name = "Pack",
                     .attrs = &attrs_type<JoinAttrs>,
                     .infer = infer_pack,
                     .gradient = pack_gradient,
                     .cpu_kernel = concat_kernel,
                     .traits = kStorage,
                     .autocast = kAutocastWidest};
const OpDef kSplit = {.name = "SplitV",
                      .attrs = &attrs_type<SplitAttrs>,
                      .infer = infer_split,
                      .gradient = split_gradient,
                      .cpu_kernel = split_kernel,
                      .traits = kStorage};
const OpDef kUnpack = {.name = "Unpack",
                       .attrs = &attrs_type<JoinAttrs>,
                       .infer = infer_unpack,
                       .gradient = unpack_gradient,
                       .cpu_kernel = unpack_kernel,
                       .traits = kStorage};

Tensor run_join(const OpDef& op, std::span<const Tensor> tensors, std::int64_t axis) {
  std::vector<const Tensor*> inputs;
  inputs.reserve(tensors.size());
  for (const Tensor& tensor : tensors) inputs.push_back(&tensor);
  return run_single(op, inputs, JoinAttrs{axis});
}

}  // namespace

Tensor concat(TensorList tensors, std::int64_t axis) { return run_join(kConcat, tensors, axis); }
Tensor stack(TensorList tensors, std::int64_t axis) { return run_join(kPack, tensors, axis); }

std::vector<Tensor> split(const Tensor& x, const std::vector<Dim>& sizes, std::int64_t axis) {
  const Tensor* input = &x;
  SplitAttrs attrs{.axis = axis};
  for (const Dim& size : sizes) attrs.sizes.push_back(size.word());
  return run_op(kSplit, {&input, 1}, attrs);
}

std::vector<Tensor> split(const Tensor& x, std::int64_t parts, const AxisOptions& options) {
  const std::int64_t axis = options.axis;
  const std::int64_t size = x.shape().word(axis);
  if (!dim::may_be_multiple(size, parts))
    fail<ShapeError>(
        "[SplitV] expected a number of parts that divides {} (axis {} of shape {}), got {}",
        dim::text(size), axis, x.shape().to_string(), dim::text(parts));
  const auto count = static_cast<std::size_t>(dim::known("SplitV", parts, "the number of results"));
  return split(x, std::vector<std::int64_t>(count, dim::quotient(size, parts)), axis);
}

std::vector<Tensor> unstack(const Tensor& x, std::int64_t axis) {
  const Tensor* input = &x;
  return run_op(kUnpack, {&input, 1}, JoinAttrs{axis});
}

OpList join_ops() { return list_of<kConcat, kPack, kSplit, kUnpack>(); }

}  // namespace tandem
