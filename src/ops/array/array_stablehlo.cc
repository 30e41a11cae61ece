// Shapes, parts and joins of tensors in StableHLO.
#include <algorithm>
#include <numeric>

#include "ops/array/index.h"
#include "ops/lowering_support.h"

namespace tandem::stablehlo {
namespace {

std::int64_t normalized(std::int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; }

Axes zeros(int rank) { return Axes(static_cast<std::size_t>(rank), 0); }
Axes sizes_of(const Shape& shape) { return {shape.words().begin(), shape.words().end()}; }

// The elements [begin, begin + size) along one axis.
Value part_along(Context& c, const Value& x, std::int64_t axis, std::int64_t begin,
                 std::int64_t size) {
  Axes from = zeros(x.rank()), to = sizes_of(x.shape());
  from[static_cast<std::size_t>(axis)] = begin;
  to[static_cast<std::size_t>(axis)] = dim::sum(begin, size);
  return c.build.slice(x, from, to);
}

void lower_broadcast_to(Context& c) {
  c.result(c.build.broadcast_to(c.input(0), c.output().shape));
}

void lower_transpose(Context& c) {
  const int rank = c.input(0).rank();
  Axes permutation = c.integers("permutation");
  if (permutation.empty()) {
    permutation = all_axes(c.input(0).shape());
    std::reverse(permutation.begin(), permutation.end());
  }
  for (std::int64_t& axis : permutation) axis = normalized(axis, rank);
  c.result(c.build.transpose(c.input(0), permutation));
}

// Repeats along one axis after another: concatenation needs no axis more than the result has.
void lower_tile(Context& c) {
  Value x = c.input(0);
  const Axes multiples = c.integers("multiples");
  for (int axis = 0; axis < x.rank(); ++axis) {
    const std::int64_t multiple =
        dim::known("Tile", multiples[static_cast<std::size_t>(axis)], "its lowering");
    if (multiple == 0) x = part_along(c, x, axis, 0, 0);
    if (multiple > 1)
      x = c.build.concatenate(std::vector<Value>(static_cast<std::size_t>(multiple), x), axis);
  }
  c.result(x);
}

void lower_reverse(Context& c) {
  Axes axes = c.integers("axes");
  for (std::int64_t& axis : axes) axis = normalized(axis, c.input(0).rank());
  c.result(c.build.reverse(c.input(0), axes));
}

void lower_slice(Context& c) {
  const Axes begin = c.integers("begin");
  Axes end = begin;
  for (std::size_t i = 0; i < end.size(); ++i)
    end[i] = dim::sum(end[i], c.output().shape.word(static_cast<int>(i)));
  c.result(c.build.slice(c.input(0), begin, end));
}

void lower_strided_slice(Context& c) {
  const Value& x = c.input(0);
  std::int64_t begin = c.integer("begin"), size = dim::difference(c.integer("end"), begin);
  if (c.boolean("shrink")) {
    if (!dim::is_size(begin)) begin = dim::sum(begin, x.shape().word(0));
    size = 1;
  }
  c.result(c.build.reshape(part_along(c, x, 0, begin, size), c.output().shape));
}

void lower_pad(Context& c) {
  const Value value = c.build.constant(c.real("value"), {c.input(0).element(), Shape::scalar()});
  c.result(c.build.pad(c.input(0), value, c.integers("before"), c.integers("after")));
}

void lower_slice_grad(Context& c) {
  const Value& part = c.input(0);
  const Axes before = c.integers("before");
  Axes after = before;
  for (std::size_t i = 0; i < after.size(); ++i) {
    const int axis = static_cast<int>(i);
    after[i] = dim::difference(dim::difference(c.output().shape.word(axis), before[i]),
                               part.shape().word(axis));
  }
  const Value zero = c.build.constant(0.0, {part.element(), Shape::scalar()});
  c.result(c.build.pad(part, zero, before, after));
}

void lower_concat(Context& c) {
  std::vector<Value> parts;
  for (std::size_t i = 0; i < c.num_inputs(); ++i) parts.push_back(c.input(i));
  c.result(c.build.concatenate(parts, normalized(c.integer("axis"), c.output().shape.rank())));
}

void lower_pack(Context& c) {
  const std::int64_t axis = normalized(c.integer("axis"), c.output().shape.rank());
  Shape row = c.output().shape;
  row.set(static_cast<int>(axis), 1);
  std::vector<Value> rows;
  for (std::size_t i = 0; i < c.num_inputs(); ++i) rows.push_back(c.build.reshape(c.input(i), row));
  c.result(c.build.concatenate(rows, axis));
}

void lower_split(Context& c) {
  const std::int64_t axis = normalized(c.integer("axis"), c.input(0).rank());
  std::int64_t begin = 0;
  for (std::size_t i = 0; i < c.num_outputs(); ++i) {
    const std::int64_t size = c.output(i).shape.word(static_cast<int>(axis));
    c.result(i, part_along(c, c.input(0), axis, begin, size));
    begin = dim::sum(begin, size);
  }
}

void lower_unpack(Context& c) {
  const std::int64_t axis = normalized(c.integer("axis"), c.input(0).rank());
  for (std::size_t i = 0; i < c.num_outputs(); ++i) {
    const Value row = part_along(c, c.input(0), axis, static_cast<std::int64_t>(i), 1);
    c.result(i, c.build.reshape(row, c.output(i).shape));
  }
}

// --- selection by indices ---

// An index that is out of range is clamped: a compiled program cannot throw.
void lower_gather(Context& c) {
  const Value &params = c.input(0), &indices = c.input(1);
  const std::int64_t axis = normalized(c.integer("axis"), params.rank());
  Axes offset_axes;  // of the result, that are not those of the indices
  for (std::int64_t i = 0; i < c.output().shape.rank(); ++i)
    if (i < axis || i >= axis + indices.rank()) offset_axes.push_back(i);
  Axes sizes = sizes_of(params.shape());
  sizes[static_cast<std::size_t>(axis)] = 1;
  c.result(c.build.gather(params, indices, offset_axes, axis, sizes, c.output()));
}

void lower_gather_grad(Context& c) {
  const Value &gradient = c.input(0), &indices = c.input(1);
  const std::int64_t axis = normalized(c.integer("axis"), c.output().shape.rank());
  Axes window_axes;
  for (std::int64_t i = 0; i < gradient.rank(); ++i)
    if (i < axis || i >= axis + indices.rank()) window_axes.push_back(i);
  const Value wide = widened(c, gradient).value();
  const Value sums =
      c.build.scatter("add", c.build.constant(0.0, {wide.element(), c.output().shape}), indices,
                      wide, window_axes, axis);
  finish(c, sums);
}

// Updates at positions that are out of range are left out.
void lower_scatter_elements(Context& c) {
  const Value &x = c.input(0), &at = c.input(1), &updates = c.input(2);
  const auto combination = c.attrs<ScatterElementsAttrs>().combination;
  if (at.shape().word(0) == 0 || x.shape().word(0) == 0) return c.result(x);
  if (combination != ScatterElementsAttrs::kReplace) {
    const char* const operation = combination == ScatterElementsAttrs::kMultiply ? "multiply"
                                  : combination == ScatterElementsAttrs::kMax    ? "maximum"
                                                                                 : "minimum";
    return finish(c, c.build.scatter(operation, widened(c, x).value(), at,
                                     widened(c, updates).value(), {}, 0));
  }
  // The last update of each element: updates have no order.
  const Value none = c.build.constant(-1.0, {Element::kI64, x.shape()});
  const Value last = c.build.scatter("maximum", none, at, c.build.iota(at.type, 0), {}, 0);
  c.result(c.build.select(c.build.compare("GE", last, c.build.like(last, 0.0)),
                          c.build.gather(updates, last, {}, 0, {1}, x.type), x));
}

// An index that is out of range is clamped.
void lower_assign_slice(Context& c) {
  const Value &variable = c.input(0), &part = c.input(1), &first = c.input(2);
  std::vector<Value> begin(static_cast<std::size_t>(variable.rank()),
                           c.build.constant(0.0, first.type));
  begin[static_cast<std::size_t>(normalized(c.integer("axis"), variable.rank()))] = first;
  c.write(0, c.build.dynamic_update_slice(variable, part, begin));
}

void lower_one_hot(Context& c) {
  const Value& indices = c.input(0);
  const Shape& shape = c.output().shape;
  const Value classes = c.build.iota({indices.element(), shape}, shape.rank() - 1);
  const Value repeated = c.build.broadcast(indices, shape, all_axes(indices.shape()));
  c.result(c.build.select(c.build.compare("EQ", classes, repeated),
                          c.build.constant(c.real("on"), c.output()),
                          c.build.constant(c.real("off"), c.output())));
}

constexpr Lowering kArrayLowerings[] = {
    {"AssignSlice", lower_assign_slice},
    {"BroadcastTo", lower_broadcast_to},
    {"ConcatV2", lower_concat},
    {"GatherGrad", lower_gather_grad},
    {"GatherV2", lower_gather},
    {"OneHot", lower_one_hot},
    {"Pack", lower_pack},
    {"Pad", lower_pad},
    {"ReverseV2", lower_reverse},
    {"ScatterElements", lower_scatter_elements},
    {"Slice", lower_slice},
    {"SliceGrad", lower_slice_grad},
    {"SplitV", lower_split},
    {"StridedSlice", lower_strided_slice},
    {"Tile", lower_tile},
    {"Transpose", lower_transpose},
    {"Unpack", lower_unpack},
};

}  // namespace

LoweringList array_lowerings() { return kArrayLowerings; }

}  // namespace tandem::stablehlo
