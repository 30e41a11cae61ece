// Elements that are written, or combined with those that are there, at positions along an axis.
#include <algorithm>
#include <limits>

#include "core/dim.h"
#include "core/status.h"
#include "op/record.h"
#include "ops/array/array_ops.h"
#include "ops/array/index.h"
#include "ops/math/elementwise.h"
#include "ops/math/in_float32.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/scatter.h"

namespace tandem {
namespace {

using Combination = ScatterElementsAttrs::Combination;

// --- ScatterElements: vectors of elements, of int64 positions, and of updates ---

void infer_scatter_elements(InferContext& c) {
  if (c.dtype(1) != int64 || c.dtype(0) != c.dtype(2) || c.shape(0).rank() != 1 ||
      c.shape(1).rank() != 1 || !dim::may_equal(c.shape(1), c.shape(2)))
    fail<InvalidArgumentError>(
        "[ScatterElements] expected a vector, and as many int64 positions as updates of its dtype, "
        "got {} {}, {} {} and {} {}",
        name_of(c.dtype(0)), c.shape(0).to_string(), name_of(c.dtype(1)), c.shape(1).to_string(),
        name_of(c.dtype(2)), c.shape(2).to_string());
  const auto combination = c.attrs<ScatterElementsAttrs>().combination;
  if (combination < 0 || combination > Combination::kMin)
    fail<InvalidArgumentError>("[ScatterElements] expected a combination of [0, 3], got {}",
                               combination);
  check_dtype(c.op().name, combination == Combination::kReplace ? kAnyDType : kNumeric, c.dtype(0));
  c.add_output(c.dtype(0), c.shape(0));
}

// In the order of the updates, so that the last one of a position stays.
template <class T, class F>
void update_elements(KernelContext& c, const F& combined) {
  T* const y = c.outputs[0].as<T>();
  const auto* const at = c.inputs[1].as<const std::int64_t>();
  const T* const updates = c.inputs[2].as<const T>();
  const std::int64_t size = c.outputs[0].size();
  std::copy_n(c.inputs[0].as<const T>(), size, y);
  for (std::int64_t i = 0; i < c.inputs[1].size(); ++i) {
    if (at[i] < 0 || at[i] >= size)
      fail<InvalidArgumentError>("[ScatterElements] expected positions of [0, {}), got {}", size,
                                 at[i]);
    y[at[i]] = combined(y[at[i]], updates[i]);
  }
}

void scatter_elements_kernel(KernelContext& c) {
  const InFloat32 in_float32(c, true);
  const auto combination = c.attrs<ScatterElementsAttrs>().combination;
  switch_computed(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool> && !std::is_same_v<T, BFloat16>) {
      const auto is_nan = [](T a) { return a != a; };
      switch (combination) {
        case Combination::kMultiply:
          return update_elements<T>(c, [](T a, T b) { return static_cast<T>(a * b); });
        case Combination::kMax:
          return update_elements<T>(c, [&](T a, T b) { return is_nan(a) || a > b ? a : b; });
        case Combination::kMin:
          return update_elements<T>(c, [&](T a, T b) { return is_nan(a) || a < b ? a : b; });
        default: break;
      }
    }
    update_elements<T>(c, [](T, T b) { return b; });
  });
}

}  // namespace

extern const OpDef kScatterElements;

namespace {

Tensor scatter_elements(const Tensor& x, const Tensor& at, const Tensor& updates,
                        std::int64_t combination) {
  return run(kScatterElements, {&x, &at, &updates}, ScatterElementsAttrs{combination});
}

// The updates that stay have the gradient; of equal extremes all have the same share.
void scatter_elements_gradient(GradContext& c) {
  const Tensor &x = c.input(0), &at = c.input(1), &updates = c.input(2), &g = c.grad();
  const std::int64_t combination = c.attrs<ScatterElementsAttrs>().combination;
  const Tensor zero = zeros_like(updates);
  if (combination == Combination::kReplace) {
    const Tensor number = range(updates.dim(0), {.dtype = int64});
    const Tensor last = scatter_elements(full(x.shape(), -1.0, int64), at, number, combination);
    if (c.needs_grad(0)) c.set_grad(0, where(less(last, 0.0), g, zeros_like(g)));
    if (c.needs_grad(2)) c.set_grad(2, where(equal(gather(last, at), number), gather(g, at), zero));
    return;
  }
  const Tensor& y = c.output(0);
  if (combination != Combination::kMultiply) {
    const Tensor stays = cast(equal(x, y), g.dtype()),
                 wins = cast(equal(updates, gather(y, at)), g.dtype());
    const Tensor share = g / maximum(stays + add_to_rows(wins, at, x.shape()), 1.0);
    if (c.needs_grad(0)) c.set_grad(0, stays * share);
    if (c.needs_grad(2)) c.set_grad(2, wins * gather(share, at));
    return;
  }
  // A product without its only zero is not a quotient by it.
  const Tensor zero_update = equal(updates, 0.0);
  if (c.needs_grad(0)) c.set_grad(0, g * scatter_elements(ones_like(x), at, updates, combination));
  if (!c.needs_grad(2)) return;
  const Tensor zeros_at = add_to_rows(cast(zero_update, g.dtype()), at, x.shape());
  const Tensor alone = logical_and(zero_update, equal(gather(zeros_at, at), 1.0));
  const Tensor others = scatter_elements(x, at, where(alone, 1.0, updates), combination);
  const Tensor quotient = gather(g * y, at) / where(zero_update, 1.0, updates);
  c.set_grad(2, where(alone, gather(g * others, at), quotient));
}

}  // namespace

const OpDef kScatterElements = {.name = "ScatterElements",
                                .attrs = &attrs_type<ScatterElementsAttrs>,
                                .infer = infer_scatter_elements,
                                .gradient = scatter_elements_gradient,
                                .cpu_kernel = scatter_elements_kernel,
                                .gpu = false,
                                .saved_inputs = 0b111,
                                .saved_outputs = 0b1};

namespace {

struct Scattering {
  Tensor positions, updates;  // vectors
};

// Where the elements of `source` go in x, and those that have an index.
Scattering scattering(const char* function, const Tensor& x, std::int64_t axis,
                      const Tensor& indices, const Tensor& source) {
  if (x.rank() == 0)
    return scattering(function, reshape(x, {1}), 0, reshape(indices, {-1}), reshape(source, {-1}));
  bool fits = source.rank() == x.rank() && indices.rank() == x.rank();
  for (int i = 0; fits && i < x.rank(); ++i)
    fits = dim::may_be_at_most(indices.shape()[i], source.shape()[i]);
  if (!fits)
    fail<ShapeError>(
        "[{}] expected indices and updates of the rank of shape {}, and at least as many updates "
        "as indices along each axis, got shapes {} and {}",
        function, x.shape().to_string(), indices.shape().to_string(), source.shape().to_string());
  Tensor updates = source;
  for (int i = 0; i < x.rank(); ++i)
    if (indices.shape().word(i) != source.shape().word(i))
      updates = updates.slice(i, 0, indices.dim(i));
  return {reshape(element_positions(function, x, axis, indices), {-1}), reshape(updates, {-1})};
}

Tensor scattered(const char* function, const Tensor& x, std::int64_t axis, const Tensor& indices,
                 const Tensor& source, std::int64_t combination) {
  const Scattering to = scattering(function, x, axis, indices, source);
  return reshape(scatter_elements(reshape(x, {-1}), to.positions, to.updates, combination),
                 x.shape());
}

// How many updates each element of x gets, in `dtype`.
Tensor number_of_updates(const Tensor& x, const Scattering& to, DType dtype) {
  const Shape all({dim::num_elements(x.shape())});
  const DType counted =
      is_floating(dtype) && dtype != float16 && dtype != bfloat16 ? dtype : float32;
  return reshape(add_to_rows(full(to.positions.shape(), 1.0, counted), to.positions, all),
                 x.shape());
}

// `indices`, a vector of positions of `axis`, for all elements of `source`.
Tensor for_all(const char* function, const Tensor& source, std::int64_t axis,
               const Tensor& indices) {
  if (source.rank() == 0) return for_all(function, reshape(source, {1}), 0, indices);
  const std::int64_t at = axis < 0 ? axis + source.rank() : axis;
  if (indices.rank() != 1 || at < 0 || at >= source.rank() ||
      !dim::may_equal(indices.dim(0), source.dim(at)))
    fail<ShapeError>("[{}] expected a position for each slice along axis {} of shape {}, got {}",
                     function, axis, source.shape().to_string(), indices.shape().to_string());
  Dims sizes;
  for (int i = 0; i < source.rank(); ++i) sizes.push_back(i == at ? -1 : 1);
  return broadcast_to(reshape(indices, Shape(sizes)), source.shape());
}

}  // namespace

Tensor scatter(const Tensor& x, std::int64_t axis, const Tensor& indices, const Tensor& source) {
  return scattered("scatter", x, axis, indices, source, Combination::kReplace);
}
Tensor scatter(const Tensor& x, std::int64_t axis, const Tensor& indices, double value) {
  return scatter(x, axis, indices, full(indices.shape(), value, x.dtype()));
}

Tensor scatter_add(const Tensor& x, std::int64_t axis, const Tensor& indices,
                   const Tensor& source) {
  const Scattering to = scattering("scatter_add", x, axis, indices, source);
  const Shape all({dim::num_elements(x.shape())});
  // add_to_rows() leaves out positions that are out of range, and gather() refuses them.
  const Tensor positions = gather(range(Dim(all.word(0)), {.dtype = int64}), to.positions);
  // float64 holds the sums of integers up to 2^53.
  const bool floating = is_floating(x.dtype());
  const Tensor sums =
      add_to_rows(floating ? to.updates : cast(to.updates, float64), positions, all);
  return x + reshape(floating ? sums : cast(sums, x.dtype()), x.shape());
}

Tensor scatter_reduce(const Tensor& x, std::int64_t axis, const Tensor& indices,
                      const Tensor& source, std::string_view reduce, bool include_self) {
  const bool sums = reduce == "sum" || reduce == "mean";
  if (!sums && reduce != "prod" && reduce != "amax" && reduce != "amin")
    fail<InvalidArgumentError>(
        "[scatter_reduce] expected \"sum\", \"prod\", \"mean\", \"amax\" or \"amin\", got \"{}\"",
        reduce);
  const Scattering to = scattering("scatter_reduce", x, axis, indices, source);
  Tensor start = x;
  if (!include_self) {
    const double infinity = std::numeric_limits<double>::infinity();
    const double neutral = reduce == "prod"   ? 1.0
                           : sums             ? 0.0
                           : reduce == "amax" ? -infinity
                                              : infinity;
    const Tensor touched = greater(number_of_updates(x, to, float32), 0.0);
    if (!sums && reduce != "prod" && !is_floating(x.dtype()))
      // The last update, which is one of those that are compared.
      start = scatter(x, axis, indices, source);
    else
      start = where(touched, full(Shape::scalar(), neutral, x.dtype()), x);
  }
  if (!sums)
    return scattered("scatter_reduce", start, axis, indices, source,
                     reduce == "prod"   ? Combination::kMultiply
                     : reduce == "amax" ? Combination::kMax
                                        : Combination::kMin);
  const Tensor sum = scatter_add(start, axis, indices, source);
  if (reduce == "sum") return sum;
  const Tensor count = number_of_updates(x, to, x.dtype()) + (include_self ? 1.0 : 0.0);
  const Tensor divisor = cast(maximum(count, 1.0), x.dtype());
  return is_floating(x.dtype()) ? sum / divisor : floor_divide(sum, divisor);
}

Tensor index_copy(const Tensor& x, std::int64_t axis, const Tensor& indices, const Tensor& source) {
  return scatter(x, axis, for_all("index_copy", source, axis, indices), source);
}
Tensor index_reduce(const Tensor& x, std::int64_t axis, const Tensor& indices, const Tensor& source,
                    std::string_view reduce, bool include_self) {
  return scatter_reduce(x, axis, for_all("index_reduce", source, axis, indices), source, reduce,
                        include_self);
}

Tensor index_put(const Tensor& x, TensorList indices, const Tensor& values, bool accumulate) {
  const auto axes = static_cast<int>(indices.size());
  if (axes < 1 || axes > x.rank())
    fail<InvalidArgumentError>("[index_put] expected indices of 1 to {} axes, got {}", x.rank(),
                               axes);
  Tensor position, inside;  // among the first axes as one
  Dim rows = 1;
  for (int axis = 0; axis < axes; ++axis) {
    const Tensor& index = indices[static_cast<std::size_t>(axis)];
    if (index.dtype() != int32 && index.dtype() != int64)
      fail<DTypeError>("[index_put] expected indices of int32 or int64, got {}",
                       name_of(index.dtype()));
    const Dim size = x.dim(axis);
    const Tensor given = cast(index, int64);
    const Tensor at = where(less(given, 0.0), given + size, given);
    const Tensor there = logical_and(greater_equal(at, 0.0), less(at, size));
    position = axis == 0 ? at : position * size + at;
    inside = axis == 0 ? there : logical_and(inside, there);
    rows *= size;
  }
  const Tensor checked = where(inside, position, -1.0);  // scatter() refuses it
  std::vector<Dim> flat = {rows}, all;
  for (const Dim size : checked.shape()) all.push_back(size);
  for (int axis = axes; axis < x.rank(); ++axis) flat.push_back(x.dim(axis));
  all.insert(all.end(), flat.begin() + 1, flat.end());
  std::vector<Dim> parts = flat;
  parts[0] = -1;
  const auto shape_of = [](const std::vector<Dim>& sizes) {
    return Shape(std::span<const Dim>(sizes));
  };
  const Tensor source = reshape(broadcast_to(values, shape_of(all)), shape_of(parts));
  const Tensor target = reshape(x, shape_of(flat)), to = reshape(checked, {-1});
  return reshape(
      accumulate ? index_reduce(target, 0, to, source, "sum") : index_copy(target, 0, to, source),
      x.shape());
}

OpList scatter_ops() { return list_of<kScatterElements>(); }

}  // namespace tandem
