#include "core/polynomial.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/status.h"
#include "tandem/shape.h"

namespace tandem {
namespace {

using Term = Polynomial::Term;

// The number of elements of a tensor of eight sizes with two terms each has 256.
constexpr std::size_t kMaxTerms = 256, kMaxPower = 64;
// This bounds the time of divisions; larger divisors are not tried.
constexpr std::size_t kMaxDivisorTerms = 16;

Term product_of(const Term& a, const Term& b) {
  Term product{.atoms = {}, .factor = checked_product(a.factor, b.factor)};
  std::merge(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end(),
             std::back_inserter(product.atoms));
  return product;
}

// a / b, if it is a term.
std::optional<Term> quotient_of(const Term& a, const Term& b) {
  if (a.factor % b.factor != 0) return std::nullopt;
  if (!std::includes(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end()))
    return std::nullopt;
  Term quotient{.atoms = {}, .factor = a.factor / b.factor};
  std::set_difference(a.atoms.begin(), a.atoms.end(), b.atoms.begin(), b.atoms.end(),
                      std::back_inserter(quotient.atoms));
  return quotient;
}

// An order that products keep, so that the highest term of a product is that of the factors: by
// power, then by the power of each atom.
bool is_lower(const Term& a, const Term& b) {
  if (a.atoms.size() != b.atoms.size()) return a.atoms.size() < b.atoms.size();
  return b.atoms < a.atoms;
}

const Term& highest(const Polynomial& polynomial) {
  return *std::max_element(polynomial.terms().begin(), polynomial.terms().end(), is_lower);
}

}  // namespace

void refuse_size(std::int64_t a, char with, std::int64_t b) {
  fail<ShapeError>("[Shape] expected sizes of at most {}, got {} {} {}", kMaxElements, a, with, b);
}

std::int64_t checked_sum(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (__builtin_add_overflow(a, b, &result)) refuse_size(a, '+', b);
  return result;
}

std::int64_t checked_product(std::int64_t a, std::int64_t b) {
  std::int64_t result;
  if (__builtin_mul_overflow(a, b, &result)) refuse_size(a, '*', b);
  return result;
}

Polynomial::Polynomial(std::int64_t constant) {
  if (constant != 0) terms_.push_back({{}, constant});
}

Polynomial Polynomial::of_atom(std::int32_t atom) { return Polynomial({Term{{atom}, 1}}); }

Polynomial::Polynomial(std::vector<Term> terms) {
  for (Term& term : terms) {
    if (term.atoms.size() > kMaxPower)
      fail<ShapeError>("[Shape] expected a size of at most power {} of unknown sizes", kMaxPower);
    std::sort(term.atoms.begin(), term.atoms.end());
  }
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return a.atoms < b.atoms; });
  for (Term& term : terms)
    if (!terms_.empty() && terms_.back().atoms == term.atoms)
      terms_.back().factor = checked_sum(terms_.back().factor, term.factor);
    else
      terms_.push_back(std::move(term));
  std::erase_if(terms_, [](const Term& term) { return term.factor == 0; });
  if (terms_.size() > kMaxTerms)
    fail<ShapeError>("[Shape] expected a size of at most {} terms", kMaxTerms);
}

std::int64_t Polynomial::constant_term() const {
  return !terms_.empty() && terms_.front().atoms.empty() ? terms_.front().factor : 0;
}

std::optional<std::int64_t> Polynomial::constant() const {
  if (!terms_.empty() && !terms_.back().atoms.empty()) return std::nullopt;
  return constant_term();
}

std::optional<std::int32_t> Polynomial::atom() const {
  if (terms_.size() != 1 || terms_[0].factor != 1 || terms_[0].atoms.size() != 1)
    return std::nullopt;
  return terms_[0].atoms[0];
}

std::int64_t Polynomial::common_factor() const {
  std::int64_t common = 0;
  for (const Term& term : terms_)
    if (!term.atoms.empty()) common = std::gcd(common, term.factor);
  return common;
}

Polynomial operator+(const Polynomial& a, const Polynomial& b) {
  std::vector<Term> terms = a.terms_;
  terms.insert(terms.end(), b.terms_.begin(), b.terms_.end());
  return Polynomial(std::move(terms));
}

Polynomial operator-(const Polynomial& a, const Polynomial& b) { return a + b * Polynomial(-1); }

Polynomial operator*(const Polynomial& a, const Polynomial& b) {
  if (a.terms_.size() * b.terms_.size() > 16 * kMaxTerms)
    fail<ShapeError>("[Shape] expected a size of at most {} terms", kMaxTerms);
  std::vector<Term> terms;
  for (const Term& left : a.terms_)
    for (const Term& right : b.terms_) terms.push_back(product_of(left, right));
  return Polynomial(std::move(terms));
}

std::optional<Polynomial> Polynomial::quotient(const Polynomial& a, const Polynomial& b) {
  if (b.terms_.empty() || b.terms_.size() > kMaxDivisorTerms) return std::nullopt;
  const Term& by = highest(b);
  Polynomial rest = a, result;
  for (std::size_t step = 0; !rest.terms_.empty(); ++step) {
    const std::optional<Term> term = quotient_of(highest(rest), by);
    if (!term || step == kMaxTerms) return std::nullopt;
    const Polynomial part({*term});
    result = result + part;
    rest = rest - part * b;
  }
  return result;
}

std::int64_t Polynomial::value(
    const std::function<std::int64_t(std::int32_t atom)>& value_of) const {
  std::int64_t sum = 0;
  for (const Term& term : terms_) {
    std::int64_t product = term.factor;
    for (const std::int32_t atom : term.atoms) {
      const std::int64_t value = value_of(atom);
      if (value == 0) product = 0;
      product = checked_product(product, value);
    }
    sum = checked_sum(sum, product);
  }
  return sum;
}

}  // namespace tandem
