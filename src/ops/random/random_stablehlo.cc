// Random tensors in StableHLO, from the same random words as the kernels (ops/random/units.h).
#include <algorithm>
#include <array>
#include <numbers>

#include "ops/lowering_support.h"
#include "ops/random/philox_stablehlo.h"
#include "ops/random/random_attrs.h"
#include "ops/random/words.h"

namespace tandem::stablehlo {
namespace {

// The random words of a tensor whose blocks have `per_block` elements: [blocks, 4, columns].
Value words_for(Context& c, std::int64_t per_block) {
  const std::int64_t count = c.output().shape.num_elements();
  const Value none = c.build.integer(0, {Element::kU64, Shape::scalar()});
  return random_words(c.build, c.key(), none,
                      std::max<std::int64_t>(1, (count + per_block - 1) / per_block));
}

// Rows [begin, begin + count) of every block, at a distance of `step`.
Expression rows(Context& c, const Value& words, std::int64_t begin, std::int64_t step) {
  const Shape& s = words.shape();
  return {c.build,
          c.build.slice(words, {0, begin, 0}, {s.word(0), s.word(1), s.word(2)}, {1, step, 1})};
}

// Sets the output to the first elements of `blocks`, in order.
void finish_elements(Context& c, const Value& blocks) {
  const std::int64_t all = blocks.shape().num_elements(), count = c.output().shape.num_elements();
  const Value flat = c.build.slice(c.build.reshape(blocks, Shape{all}), {0}, {count});
  finish(c, flat);
}

Expression shift_right(Context& c, const Expression& words, std::uint64_t by) {
  return words.binary("shift_right_logical", {c.build, c.build.integer(by, words.value().type)});
}
Expression shift_left(Context& c, const Expression& words, std::uint64_t by) {
  return words.binary("shift_left", {c.build, c.build.integer(by, words.value().type)});
}

Expression unit_float(Context& c, const Expression& words) {
  return shift_right(c, words, 8).as(Element::kF32) * 0x1p-24;
}
Expression positive_float(Context& c, const Expression& words) {
  return (shift_right(c, words, 1).as(Element::kF32) + 1.0) * 0x1p-31;
}
// From the even rows as high words and the odd ones as low words.
Expression joined(Context& c, const Value& words) {
  const Expression high = rows(c, words, 0, 2).as(Element::kU64);
  return shift_left(c, high, 32).binary("or", rows(c, words, 1, 2).as(Element::kU64));
}
Expression unit_double(Context& c, const Expression& bits) {
  return shift_right(c, bits, 11).as(Element::kF64) * 0x1p-53;
}

bool is_double(const Context& c) { return c.output().dtype == float64; }
std::int64_t elements_per_block(const Context& c) {
  return (is_double(c) ? 2 : 4) * std::int64_t{kColumns};
}

Expression uniform(Context& c, double low, double range, double top) {
  const Value words = words_for(c, elements_per_block(c));
  const Expression unit =
      is_double(c) ? unit_double(c, joined(c, words)) : unit_float(c, {c.build, words});
  const Expression value = low + unit * range;
  return value.where(value < top, value.like(top));
}

void lower_uniform(Context& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  finish_elements(c, uniform(c, attrs.a, attrs.b - attrs.a, largest_uniform(attrs)).value());
}

// --- normal numbers by the Box-Muller method ---

struct Direction {
  Expression cosine, sine;
};
Direction unit_vector(Context& c, const Expression& words) {
  const Expression turned(c.build, c.build.bitcast(shift_left(c, words, 2).value(), Element::kI32));
  const Expression x = turned.as(Element::kF32) * static_cast<double>(0x1p-32f * 1.57079632679f);
  const Expression z = x * x;
  const Expression s = ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * x + x;
  const Expression co =
      ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z -
      0.5 * z + 1.0;
  const Expression quarter = shift_right(c, words, 30);
  const auto is = [&](std::uint64_t number) {
    return quarter.compare("EQ", {c.build, c.build.integer(number, quarter.value().type)});
  };
  const Expression odd = is(1).binary("or", is(3));
  const Expression a = s.where(odd, co), b = co.where(odd, s);
  return {(-a).where(is(1).binary("or", is(2)), a), (-b).where(is(2).binary("or", is(3)), b)};
}

// Pairs of rows [blocks, pairs, columns] as neighbouring rows.
Value interleaved(Context& c, const Expression& first, const Expression& second) {
  const Shape& s = first.shape();
  const Shape row{s.word(0), s.word(1), 1, s.word(2)};
  return c.build.concatenate(
      std::array{c.build.reshape(first.value(), row), c.build.reshape(second.value(), row)}, 2);
}

Value float_normal(Context& c, const Value& words, double mean, double stddev) {
  const Expression radius = stddev * sqrt(-2.0 * log(positive_float(c, rows(c, words, 0, 2))));
  const Direction direction = unit_vector(c, rows(c, words, 1, 2));
  return interleaved(c, mean + radius * direction.cosine, mean + radius * direction.sine);
}

Value double_normal(Context& c, const Value& words, double mean, double stddev) {
  const Value units = unit_double(c, joined(c, words)).value();  // [blocks, 2, columns]
  const Expression u = 1.0 - rows(c, units, 0, 2);
  const Expression angle = 2.0 * std::numbers::pi * rows(c, units, 1, 2);
  const Expression radius = stddev * sqrt(-2.0 * log(u));
  return interleaved(c, mean + radius * angle.unary("cosine"), mean + radius * angle.unary("sine"));
}

void lower_normal(Context& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  const Value words = words_for(c, elements_per_block(c));
  finish_elements(c, is_double(c) ? double_normal(c, words, attrs.a, attrs.b)
                                  : float_normal(c, words, attrs.a, attrs.b));
}

Expression float_erf_inverse(const Expression& y) {
  const Expression w = -log((1.0 - y) * (1.0 + y)) - 2.5;
  Expression p = w.like(2.81022636e-08);
  for (const double coefficient : {3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                                   -0.00125372503, -0.00417768164, 0.246640727, 1.50140941})
    p = p * w + coefficient;
  return p * y;
}
Expression erf_inverse(const Expression& y) {
  if (y.element() != Element::kF64) return float_erf_inverse(y);
  Expression x = float_erf_inverse(y.as(Element::kF32)).as(Element::kF64);
  for (int step = 0; step < 2; ++step)
    x = x - (x.unary("chlo.erf") - y) * exp(x * x) / (2.0 * std::numbers::inv_sqrtpi);
  return x;
}

void lower_truncated_normal(Context& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  const Expression units = uniform(c, -kTwoDeviations, 2.0 * kTwoDeviations, kTwoDeviations);
  const Expression z = std::numbers::sqrt2 * erf_inverse(units);
  const Expression capped = z.like(2.0).where(z > 2.0, z);
  const Expression within = z.like(-2.0).where(capped < -2.0, capped);
  finish_elements(c, (attrs.a + attrs.b * within).value());
}

// --- integers ---

void lower_bernoulli(Context& c) {
  const Ones ones = c.attrs<RandomAttrs>().ones();
  const Expression words(c.build, words_for(c, 4 * std::int64_t{kColumns}));
  const Expression last(c.build, c.build.integer(ones.last, words.value().type));
  const Expression hit = words.compare("LE", last).as(Element::kF32);
  finish_elements(c, (hit * static_cast<double>(ones.one)).value());
}

// The high half of the product of 64-bit numbers, from 32-bit parts: random bits scaled to
// [0, count), as random_below().
Expression random_below(Context& c, const Expression& count, const Expression& bits) {
  const Expression mask(c.build, c.build.integer(0xffff'ffffu, bits.value().type));
  const auto low = [&](const Expression& x) { return x.binary("and", mask); };
  const auto high = [&](const Expression& x) { return shift_right(c, x, 32); };
  const Expression p01 = low(bits) * high(count), p10 = high(bits) * low(count);
  const Expression carry = high(low(bits) * low(count)) + low(p01) + low(p10);
  return high(bits) * high(count) + high(p01) + high(p10) + high(carry);
}

void lower_uniform_int(Context& c) {
  const auto& attrs = c.attrs<RandomAttrs>();
  const Expression bits = joined(c, words_for(c, 2 * std::int64_t{kColumns}));
  const auto number = [&](std::uint64_t value) {
    return Expression(c.build, c.build.integer(value, bits.value().type));
  };
  const Expression result = number(attrs.low) + random_below(c, number(attrs.integers()), bits);
  finish_elements(c, c.build.bitcast(result.value(), Element::kI64));
}

// The element that the kernel's shuffle swaps each element with: at most the element itself.
Value swapped_positions(Context& c, std::int64_t count) {
  const Value bits = rows(c, joined(c, words_for(c, kColumns)).value(), 0, 2).value();
  const Value flat = c.build.reshape(bits, Shape{bits.shape().num_elements()});
  const Expression mine(c.build, c.build.slice(flat, {0}, {count}));
  const Expression positions(c.build, c.build.iota(mine.value().type, 0));
  return c.build.bitcast(random_below(c, positions + 1.0, mine).value(), Element::kI64);
}

// The Fisher-Yates shuffle from the last element to the first, one swap after the other.
void lower_permutation(Context& c) {
  Builder& b = c.build;
  const std::int64_t count = c.output().shape.num_elements();
  const Value sorted = b.iota(c.output(), 0);
  if (count < 2) return c.result(sorted);
  const Type index(Element::kI64, Shape::scalar());
  const std::array start = {b.constant(static_cast<double>(count - 1), index),
                            swapped_positions(c, count), sorted};
  const std::array types = {start[0].type, start[1].type, start[2].type};
  const auto is_left = [&](std::span<const Value> state) -> std::vector<Value> {
    return {b.compare("GT", state[0], b.constant(0.0, index))};
  };
  const auto swap = [&](std::span<const Value> state) -> std::vector<Value> {
    const Value &at = state[0], &elements = state[2];
    const Value other = b.reshape(b.dynamic_slice(state[1], {&at, 1}, {1}), Shape::scalar());
    const Value mine = b.dynamic_slice(elements, {&at, 1}, {1});
    const Value theirs = b.dynamic_slice(elements, {&other, 1}, {1});
    const Value half = b.dynamic_update_slice(elements, theirs, {&at, 1});
    return {b.subtract(at, b.constant(1.0, index)), state[1],
            b.dynamic_update_slice(half, mine, {&other, 1})};
  };
  const std::array regions = {b.region(types, is_left), b.region(types, swap)};
  c.result(b.add("while", start, regions, "", types)[2]);
}

constexpr Lowering kRandomLowerings[] = {
    {"RandomBernoulli", lower_bernoulli},    {"RandomPermutation", lower_permutation},
    {"RandomStandardNormal", lower_normal},  {"RandomUniform", lower_uniform},
    {"RandomUniformInt", lower_uniform_int}, {"TruncatedNormal", lower_truncated_normal},
};

}  // namespace

LoweringList random_lowerings() { return kRandomLowerings; }

}  // namespace tandem::stablehlo
