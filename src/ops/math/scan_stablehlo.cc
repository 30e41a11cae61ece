// Positions, running sums, moments and sequences in StableHLO.
#include <array>

#include "ops/lowering_support.h"
#include "ops/math/creation.h"
#include "ops/math/reduce.h"

namespace tandem::stablehlo {
namespace {

// --- positions of extrema ---

// The first element that equals the extremum; a NaN is the extremum.
void lower_arg(Context& c, std::string_view operation, Value start) {
  const Expression x(c.build, c.input(0));
  const int axis = resolve_axis(c.op(), c.attrs<AxisAttrs>().axis, x.shape().rank());
  const Axes others = other_axes(x.shape(), {axis});
  const Value best = c.build.reduce(operation, x.value(), start, {axis});
  const Expression repeated = x.repeat(best, others);
  Expression found = x.compare("EQ", repeated);
  if (is_floating(x.element()))
    found = found.binary("or", x.compare("NE", x).binary("and", repeated.compare("NE", repeated)));
  const Expression position(c.build, c.build.iota({Element::kI64, x.shape()}, axis));
  const Expression candidates = position.where(found, position.size(x.shape().word(axis)));
  const Value most = c.build.size(x.shape().word(axis));
  finish(c, c.build.reduce("minimum", candidates.value(), most, {axis}));
}

void lower_arg_max(Context& c) {
  lower_arg(c, "maximum", bound(c.build, c.input(0).element(), false));
}
void lower_arg_min(Context& c) {
  lower_arg(c, "minimum", bound(c.build, c.input(0).element(), true));
}

// --- order ---

// Sorts the positions with their elements. A NaN is above all others; equal elements keep their
// order.
void lower_argsort(Context& c) {
  Builder& build = c.build;
  const Value x = widened(c, 0).value();
  const Value positions = build.iota({Element::kI64, x.shape()}, x.rank() - 1);
  const Type element(x.element(), Shape::scalar()), position(Element::kI64, Shape::scalar());
  const std::string before =
      build.region(std::array{element, element, position, position}, [&](auto arguments) {
        const bool descending = c.attrs<ArgsortAttrs>().descending;
        const Value &a = arguments[descending ? 1 : 0], &b = arguments[descending ? 0 : 1];
        Value less = build.compare("LT", a, b);
        if (is_floating(x.element()))
          less = build.binary(
              "or", less,
              build.binary("and", build.compare("EQ", a, a), build.compare("NE", b, b)));
        return std::vector<Value>{less};
      });
  c.result(build
               .add("sort", std::array{x, positions}, {&before, 1},
                    fmt::format("dimension = {} : i64, is_stable = true", x.rank() - 1),
                    std::array{x.type, positions.type})
               .back());
}

// --- running sums, by doubling ---

void lower_cumsum(Context& c) {
  const auto& attrs = c.attrs<CumsumAttrs>();
  Value x = widened(c, 0).value();
  const int axis = resolve_axis(c.op(), attrs.axis, x.rank());
  const Value zero = c.build.constant(0.0, {x.element(), Shape::scalar()});
  const std::int64_t size = dim::known("Cumsum", x.shape().word(axis), "its lowering");
  for (std::int64_t by = 1; by < size; by *= 2) {
    Axes low(static_cast<std::size_t>(x.rank()), 0), high = low;
    low[static_cast<std::size_t>(axis)] = attrs.reverse ? -by : by;
    high[static_cast<std::size_t>(axis)] = attrs.reverse ? by : -by;
    x = c.build.binary("add", x, c.build.pad(x, zero, low, high));
  }
  finish(c, x);
}

// --- moments ---

void lower_variance(Context& c) {
  const Expression x = widened(c, 0);
  const std::uint32_t mask = reduced_axes(c.op(), c.attrs<ReduceAttrs>(), x.shape().rank());
  Axes axes;
  std::int64_t count = 1;
  for (int axis = 0; axis < x.shape().rank(); ++axis) {
    if ((mask >> axis & 1u) == 0) continue;
    axes.push_back(axis);
    count = dim::product(count, x.shape().word(axis));
  }
  const Expression sum = x.sum(axes), mean = sum / sum.size(count);
  const Expression distance = x - x.repeat(mean.value(), other_axes(x.shape(), axes));
  finish(c, 0, (square(distance).sum(axes) / sum.size(count)).value());
  finish(c, 1, mean.value());
}

void lower_scaled_distance(Context& c) {
  const Value x = c.input(0);
  const Expression wide(c.build, c.build.convert(x, c.input(1).element()));
  finish(c, (wide - wide.repeat(c.input(1))) * wide.repeat(c.input(2)));
}

void lower_all_finite(Context& c) {
  const Value all = c.build.constant(1.0, {Element::kBool, Shape::scalar()});
  Value finite = all;
  for (std::size_t i = 0; i < c.num_inputs(); ++i) {
    const Value& x = c.input(i);
    const Value each = c.build.add("is_finite", {&x, 1}, "", {Element::kBool, x.shape()});
    finite = c.build.binary("and", finite, c.build.reduce("and", each, all, all_axes(x.shape())));
  }
  c.result(finite);
}

// --- sequences ---

// start + i * step, computed in 64 bits as in the kernels.
Expression sequence(Context& c, double step) {
  const auto& attrs = c.attrs<SequenceAttrs>();
  const Element wide = is_floating(c.output().dtype) ? Element::kF64 : Element::kI64;
  const Expression positions(c.build, c.build.iota({wide, c.output().shape}, 0));
  return attrs.start + positions * step;
}

void lower_range(Context& c) { finish(c, sequence(c, c.attrs<SequenceAttrs>().step)); }

void lower_linspace(Context& c) {
  const auto& attrs = c.attrs<SequenceAttrs>();
  const Expression numbers = sequence(c, attrs.linspace_step());
  if (attrs.count < 2) return finish(c, numbers);
  const Value last = numbers.like(attrs.last).value();
  const Value others = c.build.slice(numbers.value(), {0}, {attrs.count - 1});
  finish(c, c.build.concatenate(
                std::array{others, c.build.slice(last, {attrs.count - 1}, {attrs.count})}, 0));
}

constexpr Lowering kScanLowerings[] = {
    {"AllFinite", lower_all_finite}, {"ArgMax", lower_arg_max},
    {"ArgMin", lower_arg_min},       {"Argsort", lower_argsort},
    {"Cumsum", lower_cumsum},        {"LinSpace", lower_linspace},
    {"Range", lower_range},          {"ScaledDistance", lower_scaled_distance},
    {"Variance", lower_variance},
};

}  // namespace

LoweringList scan_lowerings() { return kScanLowerings; }

}  // namespace tandem::stablehlo
