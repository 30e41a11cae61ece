// The functions of core/dim.h for unknown sizes.
#include <algorithm>
#include <array>
#include <cmath>

#include "core/dim.h"
#include "core/size_table.h"
#include "core/status.h"

namespace tandem::dim {
namespace detail {
namespace {

std::shared_ptr<SizeTable> table_of(std::int64_t a, std::int64_t b) {
  return SizeTable::of(is_unknown(a) ? a : b);
}

}  // namespace

std::int64_t compute(Op op, std::int64_t a, std::int64_t b) {
  const std::array parts = {a, b};
  if (both_known(a, b)) {  // of sizes that broadcast
    TANDEM_ASSERT(op == Op::kBroadcast);
    return std::max(a, b);
  }
  const auto table = table_of(a, b);
  switch (op) {
    case Op::kSum: return table->combine('+', a, b);
    case Op::kDifference: return table->combine('-', a, b);
    case Op::kProduct: return table->combine('*', a, b);
    case Op::kQuotient: return table->quotient(a, b);
    case Op::kFloorQuotient: return table->floor_quotient(a, b);
    case Op::kMin: return table->extreme(SizeTable::Kind::kMin, parts);
    case Op::kMax: return table->extreme(SizeTable::Kind::kMax, parts);
    case Op::kBroadcast: break;
  }
  return table->broadcast(parts);
}

bool may_equal(std::int64_t a, std::int64_t b) { return table_of(a, b)->may_equal(a, b); }

bool may_equal(const Shape& a, const Shape& b) {
  return a.known() && b.known() &&
         std::equal(a.words().begin(), a.words().end(), b.words().begin(), b.words().end(),
                    [](std::int64_t m, std::int64_t n) { return dim::may_equal(m, n); });
}

bool may_be_at_most(std::int64_t a, std::int64_t b) {
  const auto table = table_of(a, b);
  return !table->at_least(table->difference(a, b), 1);
}

bool may_be_multiple(std::int64_t a, std::int64_t b) {
  if (is_unknown(b)) return table_of(a, b)->has(b);
  if (b <= 0) return false;
  const Polynomial whole = table_of(a, b)->difference(a, 0);
  return whole.common_factor() % b != 0 || whole.constant_term() % b == 0;
}

void refuse_overflow(std::int64_t a, char with, std::int64_t b) { refuse_size(a, with, b); }

void refuse_unknown(std::string_view op, std::int64_t size, std::string_view what) {
  fail<InvalidArgumentError>(
      "[{}] expected {} to be known when the graph is made, because {} depends on it", op,
      text(size), what);
}

}  // namespace detail

std::int64_t scaled(std::int64_t a, double factor) {
  if (!(factor > 0.0) || !std::isfinite(factor))
    fail<InvalidArgumentError>("[Shape] expected a finite factor above 0, got {}", factor);
  if (is_unknown(a)) return SizeTable::of(a)->scaled(a, factor);
  const double result = std::floor(static_cast<double>(a) * factor);
  if (!(std::abs(result) < 0x1p63))
    fail<ShapeError>("[Shape] expected a size of less than 63 bits, got {} times {}", a, factor);
  return static_cast<std::int64_t>(result);
}

bool are_sizes(const Shape& shape) {
  return shape.known() && std::all_of(shape.words().begin(), shape.words().end(), is_size);
}

Shape agreed(const Shape& a, const Shape& b) {
  Shape result = a;
  for (int axis = 0; axis < result.rank(); ++axis)
    result.set(axis, agreed(a.word(axis), b.word(axis)));
  return result;
}

std::string text(Word size) {
  if (!is_unknown(size)) return std::to_string(size.number);
  return SizeTable::of(size)->text(size);
}

std::string text(std::span<const std::int64_t> sizes, std::string_view separator) {
  std::string list;
  for (const std::int64_t& size : sizes) {
    if (&size != sizes.data()) list += separator;
    list += text(size);
  }
  return list;
}

}  // namespace tandem::dim
