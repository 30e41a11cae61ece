// Einstein summation as matrix products.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "core/dim.h"
#include "core/status.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// A tensor and the letters of its axes.
struct Term {
  Tensor tensor;
  std::string letters;

  std::int64_t size(char letter) const {
    return tensor.shape().word(static_cast<int>(letters.find(letter)));
  }
};

bool has(const std::string& letters, char letter) {
  return letters.find(letter) != std::string::npos;
}

// The axes in the order of `letters`.
Tensor ordered(const Term& term, const std::string& letters) {
  Dims axes;
  bool same = true;
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const std::size_t axis = term.letters.find(letters[i]);
    axes.push_back(static_cast<std::int64_t>(axis));
    same = same && axis == i;
  }
  return same ? term.tensor : transpose(term.tensor, axes);
}

// Sums over the letters that `keep` does not have.
Term summed(Term term, const std::string& keep) {
  Dims axes;
  std::string left;
  for (std::size_t i = 0; i < term.letters.size(); ++i) {
    if (has(keep, term.letters[i]))
      left += term.letters[i];
    else
      axes.push_back(static_cast<std::int64_t>(i));
  }
  if (axes.empty()) return term;
  return {reduce_sum(term.tensor, {.axis = axes}), left};
}

std::int64_t product_of(const Term& term, const std::string& letters) {
  std::int64_t product = 1;
  for (const char letter : letters) product = dim::product(product, term.size(letter));
  return product;
}

// The product of two terms, summed over the letters that `keep` does not have.
Term contract(const Term& first, const Term& second, const std::string& keep) {
  const Term a = summed(first, second.letters + keep), b = summed(second, first.letters + keep);
  std::string batch, inner, rows, columns;
  for (const char letter : a.letters)
    (has(b.letters, letter) ? (has(keep, letter) ? batch : inner) : rows) += letter;
  for (const char letter : b.letters)
    if (!has(a.letters, letter)) columns += letter;
  Dims left, right, result;
  for (const char letter : batch) {
    left.push_back(a.size(letter));
    right.push_back(a.size(letter));
    result.push_back(a.size(letter));
  }
  left.push_back(product_of(a, rows));
  left.push_back(product_of(a, inner));
  right.push_back(product_of(a, inner));
  right.push_back(product_of(b, columns));
  for (const char letter : rows) result.push_back(a.size(letter));
  for (const char letter : columns) result.push_back(b.size(letter));
  const Tensor product = matmul(reshape(ordered(a, batch + rows + inner), Shape(left)),
                                reshape(ordered(b, batch + inner + columns), Shape(right)));
  return {reshape(product, Shape(result)), batch + rows + columns};
}

[[noreturn]] void refuse(std::string_view equation, const std::string& why) {
  fail<InvalidArgumentError>("[einsum] expected an equation such as \"ij,jk->ik\", got \"{}\": {}",
                             equation, why);
}

// The letters of each tensor and of the result.
struct Equation {
  std::vector<std::string> terms = {""};
  std::string result;

  explicit Equation(std::string_view equation) {
    std::size_t at = 0;
    bool arrow = false;
    for (; at < equation.size() && !arrow; ++at) {
      const char c = equation[at];
      if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;
      if (c == '.')
        fail<UnimplementedError>("[einsum] \"...\" is not supported, got \"{}\"", equation);
      if (c == ',') {
        terms.emplace_back();
      } else if (equation.substr(at, 2) == "->") {
        arrow = true;
        ++at;
      } else if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
        if (has(terms.back(), c))
          fail<UnimplementedError>(
              "[einsum] one letter for two axes of a tensor is not supported, got \"{}\"",
              equation);
        terms.back() += c;
      } else {
        refuse(equation, std::string("unexpected '") + c + "'");
      }
    }
    std::string all;
    for (const std::string& term : terms) all += term;
    if (!arrow) {
      for (const char letter : all)
        if (std::count(all.begin(), all.end(), letter) == 1) result += letter;
      std::sort(result.begin(), result.end());
      return;
    }
    for (; at < equation.size(); ++at) {
      const char c = equation[at];
      if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;
      if (!has(all, c) || has(result, c))
        refuse(equation, std::string("unexpected '") + c + "' in the result");
      result += c;
    }
  }
};

}  // namespace

Tensor einsum(std::string_view equation, TensorList tensors) {
  const Equation parsed(equation);
  if (parsed.terms.size() != tensors.size())
    refuse(equation,
           fmt::format("it names {} tensors for {}", parsed.terms.size(), tensors.size()));
  std::vector<Term> terms;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].rank() != static_cast<int>(parsed.terms[i].size()))
      fail<ShapeError>("[einsum] expected a tensor of {} axes for \"{}\", got shape {}",
                       parsed.terms[i].size(), parsed.terms[i], tensors[i].shape().to_string());
    Term term{tensors[i], parsed.terms[i]};
    Shape agreed = tensors[i].shape();
    for (int axis = 0; axis < agreed.rank(); ++axis)
      for (const Term& other : terms) {
        const char letter = term.letters[static_cast<std::size_t>(axis)];
        if (!has(other.letters, letter)) continue;
        if (!dim::may_equal(other.size(letter), agreed.word(axis)))
          fail<ShapeError>("[einsum] expected one size for '{}', got {} and {}", letter,
                           dim::text(other.size(letter)), dim::text(agreed.word(axis)));
        agreed.set(axis, other.size(letter));
      }
    term.tensor = ensure_shape(term.tensor, agreed);
    terms.push_back(std::move(term));
  }
  Term result = terms.front();
  for (std::size_t i = 1; i < terms.size(); ++i) {
    std::string keep = parsed.result;
    for (std::size_t j = i + 1; j < terms.size(); ++j) keep += terms[j].letters;
    result = contract(result, terms[i], keep);
  }
  result = summed(std::move(result), parsed.result);
  return ordered(result, parsed.result);
}

}  // namespace tandem
