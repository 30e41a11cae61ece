// Polynomials with integer coefficients, in one form each: terms in order, without zeros.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace tandem {

class Polynomial {
 public:
  // `factor` times the product of `atoms`, the numbers of variables: sorted, once for each power.
  struct Term {
    std::vector<std::int32_t> atoms;
    std::int64_t factor;
    auto operator<=>(const Term&) const = default;
  };

  Polynomial() = default;
  explicit Polynomial(std::int64_t constant);
  static Polynomial of_atom(std::int32_t atom);
  // From terms in any order. Throws ShapeError as the operators do.
  explicit Polynomial(std::vector<Term> terms);

  // In order; that without atoms is the first.
  const std::vector<Term>& terms() const { return terms_; }
  std::int64_t constant_term() const;
  // The value if it has no other term.
  std::optional<std::int64_t> constant() const;
  // The atom that it equals, if it is one.
  std::optional<std::int32_t> atom() const;
  // The greatest common divisor of the factors of terms with atoms; 0 if there are none.
  std::int64_t common_factor() const;

  // Throw ShapeError for more terms, higher powers or larger factors than are kept.
  friend Polynomial operator+(const Polynomial& a, const Polynomial& b);
  friend Polynomial operator-(const Polynomial& a, const Polynomial& b);
  friend Polynomial operator*(const Polynomial& a, const Polynomial& b);
  // a / b if b divides a.
  static std::optional<Polynomial> quotient(const Polynomial& a, const Polynomial& b);

  std::int64_t value(const std::function<std::int64_t(std::int32_t atom)>& value_of) const;

  auto operator<=>(const Polynomial&) const = default;

 private:
  std::vector<Term> terms_;
};

// Throws ShapeError "[Shape] expected sizes of at most ..., got a + b", where + is `with`.
[[noreturn]] void refuse_size(std::int64_t a, char with, std::int64_t b);
// Throw it if the result exceeds 63 bits.
std::int64_t checked_sum(std::int64_t a, std::int64_t b);
std::int64_t checked_product(std::int64_t a, std::int64_t b);

}  // namespace tandem
