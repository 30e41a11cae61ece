// The arithmetic of the public Dim.
#include <ostream>

#include "core/dim.h"
#include "core/size_table.h"
#include "core/status.h"
#include "tandem/dim.h"

namespace tandem {
namespace {

// a / b, rounded toward zero.
std::int64_t whole_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0)
    fail<InvalidArgumentError>("[Dim] expected a divisor other than 0, got {} / 0", dim::text(a));
  if (dim::both_known(a, b)) return a / b;
  if (!dim::is_unknown(b) && b < 0) return dim::difference(0, whole_quotient(a, -b));
  // If a is never negative, the second quotient is 0.
  return dim::difference(dim::floor_quotient(dim::max(a, 0), b),
                         dim::floor_quotient(dim::max(dim::difference(0, a), 0), b));
}

[[noreturn]] void refuse_comparison(std::int64_t a, std::string_view relation, std::int64_t b) {
  fail<InvalidArgumentError>(
      "[Dim] whether {} {} {} is not known before the graph runs, so a traced function cannot "
      "branch on it: use min() and max() of sizes, or cond() and where() of tensors",
      dim::text(a), relation, dim::text(b));
}

}  // namespace

namespace detail {

void refuse_unknown_dim(std::int64_t word) {
  fail<InvalidArgumentError>(
      "[Dim] {} is not known before the graph runs, so it is not a number yet: compute with the "
      "td::Dim that Tensor::dim() returns (it takes part in arithmetic and is accepted wherever a "
      "size is), or make it a tensor by constant()",
      dim::text(word));
}

Dim combine_dims(char op, Dim a, Dim b) {
  const std::int64_t x = a.word(), y = b.word();
  switch (op) {
    case '+': return dim::sum(x, y);
    case '-': return dim::difference(x, y);
    case '*': return dim::product(x, y);
    case '/': return whole_quotient(x, y);
    case '%': return dim::difference(x, dim::product(whole_quotient(x, y), y));
    case '<': return dim::min(x, y);
    default: return dim::max(x, y);
  }
}

bool are_equal_dims(std::int64_t a, std::int64_t b) {
  if (dim::may_equal(a, b)) refuse_comparison(a, "==", b);
  return false;
}

bool is_less_dim(std::int64_t a, std::int64_t b) {
  if (!dim::may_be_at_most(b, a)) return true;
  if (!dim::may_be_at_most(dim::sum(a, 1), b)) return false;
  refuse_comparison(a, "<", b);
}

}  // namespace detail

std::string Dim::to_string() const { return dim::text(word_); }

std::ostream& operator<<(std::ostream& out, const Dim& dim) { return out << dim.to_string(); }

}  // namespace tandem
