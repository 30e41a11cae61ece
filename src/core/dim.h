// Sizes that are not known yet, and arithmetic that holds for all sizes.
//
// A size is an std::int64_t. It is known (0 or more), or a handle, a very negative number: the name
// of an expression over the symbols of one graph. Expressions are canonical, so equal ones have
// equal handles: (n + 2) - 2 is n, and a * b is b * a. The functions of `dim` take and return both.
// For known sizes they cost what the plain operators cost.
//
// Shape rules compute with these functions, and refuse what cannot hold:
//
//   if (!dim::may_equal(k, l)) fail<ShapeError>("[MatMul] expected equal inner sizes, got ...");
//
// A relation that may hold is accepted. The rule runs again when a program is made for known sizes;
// then may_equal(k, l) is k == l, so the same line checks the real numbers. A rule never branches
// on an unknown size. Where it must (the number of outputs, a rank), it takes dim::known(), which
// throws and names the axis. Messages format sizes by Shape::to_string() or dim::text(), never a
// handle.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tandem/shape.h"

namespace tandem {

class SizeTable;

namespace dim {

// A size as an argument of these functions: an std::int64_t, or the Dim that stands for it.
struct Word {
  constexpr Word(std::int64_t word) : number(word) {}         // NOLINT: implicit
  constexpr Word(const Dim& dim) : number(dim.word()) {}      // NOLINT: implicit
  constexpr operator std::int64_t() const { return number; }  // NOLINT: implicit
  std::int64_t number;
};

// Handles are at most kFirstHandle, and far from each other, so that plain arithmetic on one gives
// a number that is no handle.
inline constexpr std::int64_t kFirstHandle = -(std::int64_t{1} << 40);

// Whether a number of a shape or of attributes is a handle or was computed from one.
constexpr bool is_unknown(Word size) { return size.number <= kFirstHandle / 2; }
// Whether it is a size: known, or a handle. -1 is neither.
constexpr bool is_size(Word size) { return size.number >= 0 || is_unknown(size); }
// Whether the rank is known and every entry is a size. (Shape::fully_defined(): a known one.)
bool are_sizes(const Shape& shape);
constexpr bool both_known(Word a, Word b) { return !is_unknown(a) && !is_unknown(b); }

namespace detail {
enum class Op { kSum, kDifference, kProduct, kQuotient, kFloorQuotient, kMin, kMax, kBroadcast };
// At least one operand is a handle.
std::int64_t compute(Op op, std::int64_t a, std::int64_t b);
bool may_equal(std::int64_t a, std::int64_t b);
bool may_equal(const Shape& a, const Shape& b);
bool may_be_at_most(std::int64_t a, std::int64_t b);
bool may_be_multiple(std::int64_t a, std::int64_t b);
[[noreturn]] void refuse_overflow(std::int64_t a, char with, std::int64_t b);
[[noreturn]] void refuse_unknown(std::string_view op, std::int64_t size, std::string_view what);
}  // namespace detail

// --- arithmetic. It throws ShapeError if the result exceeds 63 bits, and InvalidArgumentError for
// sizes of different graphs and for numbers that were computed from a handle by plain operators.

inline std::int64_t sum(Word a, Word b) {
  if (!both_known(a, b)) [[unlikely]]
    return detail::compute(detail::Op::kSum, a, b);
  std::int64_t result;
  if (__builtin_add_overflow(a.number, b.number, &result)) [[unlikely]]
    detail::refuse_overflow(a, '+', b);
  return result;
}

// a - b, which may be negative.
inline std::int64_t difference(Word a, Word b) {
  if (!both_known(a, b)) [[unlikely]]
    return detail::compute(detail::Op::kDifference, a, b);
  std::int64_t result;
  if (__builtin_sub_overflow(a.number, b.number, &result)) [[unlikely]]
    detail::refuse_overflow(a, '-', b);
  return result;
}

inline std::int64_t product(Word a, Word b) {
  if (!both_known(a, b)) [[unlikely]]
    return detail::compute(detail::Op::kProduct, a, b);
  std::int64_t result;
  if (__builtin_mul_overflow(a.number, b.number, &result)) [[unlikely]]
    detail::refuse_overflow(a, '*', b);
  return result;
}

// a / b. REQUIRES: known sizes divide, and b is not 0. Check may_be_multiple() before.
inline std::int64_t quotient(Word a, Word b) {
  if (!both_known(a, b)) [[unlikely]]
    return detail::compute(detail::Op::kQuotient, a, b);
  return a / b;
}

// a / b, rounded down also for negative a. REQUIRES: b > 0 if it is known.
inline std::int64_t floor_quotient(Word a, Word b) {
  if (!both_known(a, b)) [[unlikely]]
    return detail::compute(detail::Op::kFloorQuotient, a, b);
  return a / b - (a % b < 0 ? 1 : 0);
}

// a / b, rounded up. REQUIRES: b > 0 if it is known.
inline std::int64_t ceil_quotient(Word a, Word b) {
  return floor_quotient(sum(a, difference(b, 1)), b);
}

inline std::int64_t min(Word a, Word b) {
  if (!both_known(a, b)) [[unlikely]]
    return detail::compute(detail::Op::kMin, a, b);
  return a < b ? a : b;
}

inline std::int64_t max(Word a, Word b) {
  if (!both_known(a, b)) [[unlikely]]
    return detail::compute(detail::Op::kMax, a, b);
  return a > b ? a : b;
}

// The size that axes of sizes a and b broadcast to. Check may_broadcast() before.
inline std::int64_t broadcast(Word a, Word b) {
  if (a == b || b == 1) return a;
  if (a == 1) return b;
  return detail::compute(detail::Op::kBroadcast, a, b);
}

// The product of all sizes. Throws ShapeError as Shape::num_elements() does.
inline std::int64_t num_elements(const Shape& shape) {
  if (shape.fully_defined()) [[likely]]
    return shape.num_elements();
  std::int64_t count = 1;
  for (const std::int64_t size : shape.words()) count = product(count, size);
  return count;
}

// --- requirements. False if the relation cannot hold; for known sizes, if it does not hold.

inline bool may_equal(Word a, Word b) {
  return a == b || (!both_known(a, b) && detail::may_equal(a, b));
}
// Whether the ranks are equal, and the sizes of each axis may be.
inline bool may_equal(const Shape& a, const Shape& b) { return a == b || detail::may_equal(a, b); }

// Whether a <= b may hold.
inline bool may_be_at_most(Word a, Word b) {
  if (!both_known(a, b)) [[unlikely]]
    return detail::may_be_at_most(a, b);
  return a <= b;
}

// Whether a may be b times a number, and b may be above 0.
inline bool may_be_multiple(Word a, Word b) {
  if (!both_known(a, b)) [[unlikely]]
    return detail::may_be_multiple(a, b);
  return b > 0 && a % b == 0;
}

// One of two sizes that have to be equal (may_equal()): a known one, if there is one.
constexpr std::int64_t agreed(Word a, Word b) { return is_unknown(a) && !is_unknown(b) ? b : a; }
Shape agreed(const Shape& a, const Shape& b);

inline bool may_broadcast(Word a, Word b) {
  return may_equal(a, b) || may_equal(a, 1) || may_equal(b, 1);
}

// --- where a number is needed

// The size. Throws InvalidArgumentError if it is unknown: "[op] expected axis 0 of argument 'x' to
// be known when the graph is made, because the number of results depends on it", where "the number
// of results" is `what`.
inline std::int64_t known(std::string_view op, Word size, std::string_view what) {
  if (is_unknown(size)) [[unlikely]]
    detail::refuse_unknown(op, size, what);
  return size;
}

// For messages: "5", or the expression of an unknown size with the names of its symbols, such as
// "(axis 0 of 'x') + 2".
std::string text(Word size);
std::string text(std::span<const std::int64_t> sizes, std::string_view separator);

}  // namespace dim
}  // namespace tandem
