// Operations that select elements by indices.
#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"
#include "core/widen.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/array/array_ops.h"
#include "ops/array/index.h"
#include "ops/math/elementwise.h"
#include "ops/math/in_float32.h"
#include "ops/math/number.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/nn.h"

namespace tandem {
namespace {

void check_indices(const InferContext& c, int input) {
  if (c.dtype(input) != int32 && c.dtype(input) != int64)
    fail<InvalidArgumentError>("[{}] expected int32 or int64 indices, got {}", c.op().name,
                               name_of(c.dtype(input)));
}

// Calls f with the indices as an array of int32 or of int64.
template <class F>
void with_indices(const TensorView& view, const F& f) {
  if (view.dtype == int32)
    f(view.as<const std::int32_t>());
  else
    f(view.as<const std::int64_t>());
}

// --- GatherV2 ---

// params.shape.word(:axis) + indices.shape + params.shape.word(axis+1:)
Shape gathered_shape(const Shape& params, const Shape& indices, int axis) {
  Dims dims;
  for (int i = 0; i < axis; ++i) dims.push_back(params.word(i));
  for (const std::int64_t size : indices.words()) dims.push_back(size);
  for (int i = axis + 1; i < params.rank(); ++i) dims.push_back(params.word(i));
  return Shape(dims);
}

void infer_gather(InferContext& c) {
  check_indices(c, 1);
  const Shape& params = c.shape(0);
  const int axis = normalize_axis(c.op(), c.attrs<GatherAttrs>().axis, params.rank());
  c.add_output(c.dtype(0), gathered_shape(params, c.shape(1), axis));
}

template <class Index>
void check_range(const Index* indices, std::int64_t count, std::int64_t size) {
  for (std::int64_t i = 0; i < count; ++i)
    if (indices[i] < 0 || indices[i] >= size)
      fail<InvalidArgumentError>("[GatherV2] expected indices of [0, {}), got {} at position {}",
                                 size, indices[i], i);
}

template <class Word, class Index>
TANDEM_MULTIVERSION void gather_elements(const Word* from, const Index* indices, Word* to,
                                         std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = from[indices[i]];
}

// Copies `count` runs of `run` bytes.
template <class Index>
void gather_runs(const std::byte* from, const Index* indices, std::byte* to, std::int64_t count,
                 std::int64_t run) {
  const auto elements = [&](auto word) {
    using Word = decltype(word);
    gather_elements(reinterpret_cast<const Word*>(from), indices, reinterpret_cast<Word*>(to),
                    count);
  };
  switch (run) {
    case 1: return elements(std::uint8_t());
    case 2: return elements(std::uint16_t());
    case 4: return elements(std::uint32_t());
    case 8: return elements(std::uint64_t());
    default:
      for (std::int64_t i = 0; i < count; ++i)
        std::memcpy(to + i * run, from + indices[i] * run, static_cast<std::size_t>(run));
  }
}

void gather_kernel(KernelContext& c) {
  const TensorView& params = c.inputs[0];
  const AxisSplit split(params.shape,
                        normalize_axis(*c.op, c.attrs<GatherAttrs>().axis, params.shape.rank()));
  const std::int64_t count = c.inputs[1].size();
  const auto run = split.inner * static_cast<std::int64_t>(size_of(params.dtype));
  with_indices(c.inputs[1], [&](const auto* indices) {
    check_range(indices, count, split.size);
    if (c.outputs[0].size() == 0) return;
    const auto* from = params.as<std::byte>();
    auto* to = c.outputs[0].as<std::byte>();
    const std::int64_t grain = std::max<std::int64_t>(1, 64 * 1024 / run);
    parallel_for(split.outer * count, grain, [&](std::int64_t begin, std::int64_t end) {
      while (begin < end) {
        const std::int64_t outer = begin / count, first = begin % count;
        const std::int64_t length = std::min(count - first, end - begin);
        gather_runs(from + outer * split.size * run, indices + first, to + begin * run, length,
                    run);
        begin += length;
      }
    });
  });
}

// --- GatherGrad: adds each row of the gradient to the row that it was gathered from ---

void infer_gather_grad(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  check_indices(c, 1);
  const GatherGradAttrs& attrs = c.attrs<GatherGradAttrs>();
  const int axis = normalize_axis(c.op(), attrs.axis, attrs.shape.rank());
  const Shape gathered = gathered_shape(attrs.shape, c.shape(1), axis);
  if (!dim::are_sizes(attrs.shape) || !dim::may_equal(c.shape(0), gathered))
    fail<InvalidArgumentError>(
        "[GatherGrad] expected a gradient of shape {}, as indices of shape {} take from shape {}, "
        "got {}",
        gathered.to_string(), c.shape(1).to_string(), attrs.shape.to_string(),
        c.shape(0).to_string());
  c.add_output(c.dtype(0), attrs.shape);
}

// Adds row i of `gradient` to row indices[i] of `sums`, if that is in [begin, end).
template <class T, class Index>
TANDEM_INLINED void add_rows(T* sums, const T* gradient, const Index* indices, std::int64_t count,
                             std::int64_t columns, std::int64_t begin, std::int64_t end) {
  if (columns == 1) {
    for (std::int64_t i = 0; i < count; ++i)
      if (indices[i] >= begin && indices[i] < end) sums[indices[i]] += gradient[i];
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    if (indices[i] < begin || indices[i] >= end) continue;
    const T* from = gradient + i * columns;
    T* to = sums + indices[i] * columns;
    for (std::int64_t k = 0; k < columns; ++k) to[k] += from[k];
  }
}

// Each thread owns a range of the output and adds to it in the order of the indices, so that the
// sums do not depend on the number of threads.
template <class T, class Index>
void scatter_add(const AxisSplit& split, const T* gradient, const Index* indices,
                 std::int64_t count, T* output) {
  const std::int64_t rows = split.outer * split.size;
  const std::int64_t work = split.outer * count * split.inner + rows * split.inner;
  const std::int64_t grain =
      std::max<std::int64_t>(1, rows * 16 * 1024 / std::max<std::int64_t>(work, 1));
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    T* sums = output + begin * split.inner;
    std::fill(sums, sums + (end - begin) * split.inner, T(0));
    for (std::int64_t outer = begin / split.size; outer * split.size < end; ++outer) {
      const std::int64_t first = outer * split.size;
      run_loop<T, add_rows<T, Index>>(sums + (first - begin) * split.inner,
                                      gradient + outer * count * split.inner, indices, count,
                                      split.inner, std::max(begin - first, std::int64_t{0}),
                                      std::min(end - first, split.size));
    }
  });
}

// The positions in `indices` by the block of 2^shift rows that they refer to, in order. Indices
// outside of [0, size) are left out.
class PositionsByBlock {
 public:
  template <class Index>
  PositionsByBlock(KernelContext& c, const Index* indices, std::int64_t count, std::int64_t size,
                   int shift)
      : ends_(scratch_of(c, (size >> shift) + 2)), positions_(scratch_of(c, count)) {
    std::fill_n(ends_, (size >> shift) + 2, 0);
    const auto each = [&](const auto& use) {
      for (std::int64_t i = 0; i < count; ++i)
        if (indices[i] >= 0 && indices[i] < size)
          use(i, static_cast<std::int64_t>(indices[i]) >> shift);
    };
    each([&](std::int64_t, std::int64_t block) { ++ends_[block + 1]; });
    for (std::int64_t block = 0; block <= size >> shift; ++block) ends_[block + 1] += ends_[block];
    // Each block's begin advances to its end.
    each([&](std::int64_t i, std::int64_t block) { positions_[ends_[block]++] = i; });
  }
  std::span<const std::int64_t> in(std::int64_t block) const {
    const std::int64_t begin = block == 0 ? 0 : ends_[block - 1];
    return {positions_ + begin, static_cast<std::size_t>(ends_[block] - begin)};
  }

 private:
  static std::int64_t* scratch_of(KernelContext& c, std::int64_t count) {
    return static_cast<std::int64_t*>(
        c.scratch(static_cast<std::size_t>(count) * sizeof(std::int64_t)));
  }

  std::int64_t *ends_, *positions_;
};

// As add_rows(), for some positions.
template <class T, class Index>
TANDEM_MULTIVERSION void add_rows_at(float* sums, const T* gradient, const Index* indices,
                                     std::span<const std::int64_t> positions,
                                     std::int64_t columns) {
  if (columns == 1) {
    for (const std::int64_t i : positions) sums[indices[i]] += static_cast<float>(gradient[i]);
    return;
  }
  for (const std::int64_t i : positions) {
    const T* from = gradient + i * columns;
    float* to = sums + indices[i] * columns;
    for (std::int64_t k = 0; k < columns; ++k) to[k] += static_cast<float>(from[k]);
  }
}

// The same sums in float32, in blocks of rows that stay in the cache. (Wide types need no other
// memory for sums, and sorting their indices would take longer than reading them per thread.)
template <class T, class Index>
void scatter_add_wide(KernelContext& c, const AxisSplit& split, const T* gradient,
                      const Index* indices, std::int64_t count, T* output) {
  constexpr std::uint64_t kCached = 64 * 1024;
  const auto inner = static_cast<std::uint64_t>(split.inner);
  const int shift = std::countr_zero(std::bit_floor(std::max<std::uint64_t>(kCached / inner, 1)));
  const std::int64_t rows = std::min(std::int64_t{1} << shift, split.size);  // per block
  const std::int64_t blocks = (split.size + rows - 1) / rows;
  const PositionsByBlock positions(c, indices, count, split.size, shift);
  const std::int64_t work = split.outer * (split.size + count) * split.inner;
  const std::int64_t threads =
      std::clamp<std::int64_t>(work / kElementwiseGrain, 1,
                               std::min<std::int64_t>(intra_op_threads(), split.outer * blocks));
  auto* all_sums = static_cast<float*>(
      c.scratch(static_cast<std::size_t>(threads * rows * split.inner) * sizeof(float)));
  parallel_for(threads, 1, [&](std::int64_t thread, std::int64_t last) {
    for (; thread < last; ++thread)
      for (std::int64_t i = thread; i < split.outer * blocks; i += threads) {
        const std::int64_t outer = i / blocks, block = i % blocks, begin = block * rows;
        const std::int64_t elements = (std::min(split.size, begin + rows) - begin) * split.inner;
        float* sums = all_sums + thread * rows * split.inner;
        std::fill_n(sums, elements, 0.0f);
        add_rows_at(sums - begin * split.inner, gradient + outer * count * split.inner, indices,
                    positions.in(block), split.inner);
        narrow(sums, output + (outer * split.size + begin) * split.inner, elements);
      }
  });
}

void gather_grad_kernel(KernelContext& c) {
  const Shape& shape = c.outputs[0].shape;
  if (c.outputs[0].size() == 0) return;
  const InFloat32 in_float32(c);
  const AxisSplit split(shape,
                        normalize_axis(*c.op, c.attrs<GatherGradAttrs>().axis, shape.rank()));
  const std::int64_t count = c.inputs[1].size();
  with_indices(c.inputs[1], [&](const auto* indices) {
    switch_floating(c.outputs[0].dtype, [&]<class T>(TypeTag<T>) {
      const T* gradient = c.inputs[0].as<T>();
      if constexpr (is_16_bit_floating<T>)
        scatter_add_wide(c, split, gradient, indices, count, c.outputs[0].as<T>());
      else
        scatter_add(split, gradient, indices, count, c.outputs[0].as<T>());
    });
  });
}

void gather_grad_gradient(GradContext& c) {
  if (c.needs_grad(0)) c.set_grad(0, gather(c.grad(), c.input(1), c.attrs<GatherGradAttrs>().axis));
}

}  // namespace

const OpDef kGatherGrad = {.name = "GatherGrad",
                           .attrs = &attrs_type<GatherGradAttrs>,
                           .infer = infer_gather_grad,
                           .gradient = gather_grad_gradient,
                           .cpu_kernel = gather_grad_kernel,
                           .saved_inputs = 1u << 1};

namespace {

void gather_gradient(GradContext& c) {
  if (c.needs_grad(0))
    c.set_grad(0, run(kGatherGrad, {&c.grad(), &c.input(1)},
                      GatherGradAttrs{c.attrs<GatherAttrs>().axis, c.input_spec(0).shape}));
}

}  // namespace

const OpDef kGather = {.name = "GatherV2",
                       .attrs = &attrs_type<GatherAttrs>,
                       .infer = infer_gather,
                       .gradient = gather_gradient,
                       .cpu_kernel = gather_kernel,
                       .traits = kStorage,
                       .saved_inputs = 1u << 1};

namespace {

// --- OneHot ---

void infer_one_hot(InferContext& c) {
  check_indices(c, 0);
  const OneHotAttrs& attrs = c.attrs<OneHotAttrs>();
  if (!dim::may_be_at_most(0, attrs.depth))
    fail<InvalidArgumentError>("[OneHot] expected a depth of at least 0, got {}", attrs.depth);
  check_number(c.op().name, attrs.dtype, attrs.on);
  check_number(c.op().name, attrs.dtype, attrs.off);
  Dims dims = c.shape(0).words();
  dims.push_back(attrs.depth);
  c.add_output(attrs.dtype, Shape(dims));
}

void one_hot_kernel(KernelContext& c) {
  const OneHotAttrs& attrs = c.attrs<OneHotAttrs>();
  const std::int64_t depth = attrs.depth;
  if (c.outputs[0].size() == 0) return;
  with_indices(c.inputs[0], [&](const auto* indices) {
    switch_dtype(attrs.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* output = c.outputs[0].as<T>();
      const T on = to_element<T>(attrs.on), off = to_element<T>(attrs.off);
      parallel_for(c.inputs[0].size(), std::max<std::int64_t>(1, 16 * 1024 / depth),
                   [&](std::int64_t begin, std::int64_t end) {
                     std::fill(output + begin * depth, output + end * depth, off);
                     for (std::int64_t i = begin; i < end; ++i)
                       if (indices[i] >= 0 && indices[i] < depth)
                         output[i * depth + indices[i]] = on;
                   });
    });
  });
}

const OpDef kOneHot = {.name = "OneHot",
                       .attrs = &attrs_type<OneHotAttrs>,
                       .infer = infer_one_hot,
                       .cpu_kernel = one_hot_kernel};

// --- AssignSlice: writes a part of a variable, whose place is known when it runs ---

void infer_assign_slice(InferContext& c) {
  const Shape &whole = c.shape(0), &part = c.shape(1);
  if (c.dtype(2) != int64 || c.shape(2).rank() != 0)
    fail<InvalidArgumentError>(
        "[AssignSlice] expected an int64 scalar as index, got {} of shape {}", name_of(c.dtype(2)),
        c.shape(2).to_string());
  const int axis = normalize_axis(c.op(), c.attrs<AssignSliceAttrs>().axis, whole.rank());
  bool fits = c.dtype(0) == c.dtype(1) && whole.rank() == part.rank();
  for (int i = 0; fits && i < whole.rank(); ++i)
    fits = i == axis ? dim::may_be_at_most(part[i], whole[i]) : dim::may_equal(part[i], whole[i]);
  if (!fits)
    fail<ShapeError>(
        "[AssignSlice] expected a part along axis {} of {} of shape {}, got {} of shape {}", axis,
        name_of(c.dtype(0)), whole.to_string(), name_of(c.dtype(1)), part.to_string());
}

void assign_slice_kernel(KernelContext& c) {
  const TensorView &variable = c.inputs[0], &part = c.inputs[1];
  const int axis = normalize_axis(*c.op, c.attrs<AssignSliceAttrs>().axis, variable.shape.rank());
  const AxisSplit to(variable.shape, axis), from(part.shape, axis);
  const std::int64_t first = *c.inputs[2].as<const std::int64_t>();
  if (first < 0 || first > to.size - from.size)
    fail<InvalidArgumentError>(
        "[AssignSlice] expected an index of [0, {}] for {} of {} places, got {}",
        to.size - from.size, from.size, to.size, first);
  const std::int64_t row = to.inner * static_cast<std::int64_t>(size_of(part.dtype));
  const std::int64_t run = from.size * row;
  if (part.size() == 0) return;
  const std::int64_t grain = std::max<std::int64_t>(1, 64 * 1024 / run);
  parallel_for(from.outer, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      std::memcpy(variable.as<std::byte>() + (i * to.size + first) * row,
                  part.as<const std::byte>() + i * run, static_cast<std::size_t>(run));
  });
}

}  // namespace

const OpDef kAssignSlice = {.name = "AssignSlice",
                            .attrs = &attrs_type<AssignSliceAttrs>,
                            .infer = infer_assign_slice,
                            .cpu_kernel = assign_slice_kernel,
                            .traits = kStateful | kStorage,
                            .mutated_inputs = 1u};

Tensor gather(const Tensor& params, const Tensor& indices, std::int64_t axis) {
  return run(kGather, {&params, &indices}, GatherAttrs{axis});
}

Tensor add_to_rows(const Tensor& rows, const Tensor& indices, const Shape& shape) {
  return run(kGatherGrad, {&rows, &indices}, GatherGradAttrs{0, shape});
}

void assign_slice(const Tensor& variable, const Tensor& part, const Tensor& first,
                  std::int64_t axis) {
  const Tensor* inputs[] = {&variable, &part, &first};
  run_update(kAssignSlice, inputs, AssignSliceAttrs{axis});
}

Tensor nn::embedding_lookup(const Tensor& table, const Tensor& indices) {
  return gather(table, indices, 0);
}

Tensor one_hot(const Tensor& indices, Dim depth, const OneHotOptions& options) {
  return run(kOneHot, {&indices},
             OneHotAttrs{depth.word(), options.on, options.off, options.dtype});
}

OpList index_ops() { return list_of<kGather, kGatherGrad, kAssignSlice, kOneHot>(); }

}  // namespace tandem
