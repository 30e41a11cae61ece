// Einstein summation as matrix products.
#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

#include "core/dim.h"
#include "core/status.h"
#include "ops/math/of_size.h"
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

// Stands for "..." in letters.
constexpr char kEllipsis = '.';

bool is_ellipsis(std::string_view equation, std::size_t at) {
  return equation.substr(at, 3) == "...";
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
      if (is_ellipsis(equation, at)) {
        if (has(terms.back(), kEllipsis)) refuse(equation, "\"...\" twice in a tensor");
        terms.back() += kEllipsis;
        at += 2;
      } else if (c == ',') {
        terms.emplace_back();
      } else if (equation.substr(at, 2) == "->") {
        arrow = true;
        ++at;
      } else if (std::isalpha(static_cast<unsigned char>(c)) != 0) {
        terms.back() += c;
      } else {
        refuse(equation, std::string("unexpected '") + c + "'");
      }
    }
    std::string all;
    for (const std::string& term : terms) all += term;
    if (!arrow) {
      for (const char letter : all)
        if (letter != kEllipsis && std::count(all.begin(), all.end(), letter) == 1)
          result += letter;
      std::sort(result.begin(), result.end());
      if (has(all, kEllipsis)) result.insert(result.begin(), kEllipsis);
      return;
    }
    for (; at < equation.size(); ++at) {
      char c = equation[at];
      if (is_ellipsis(equation, at)) {
        c = kEllipsis;
        at += 2;
      }
      if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;
      if (!has(all, c) || has(result, c))
        refuse(equation, std::string("unexpected '") + c + "' in the result");
      result += c;
    }
  }
};

// Replaces "..." by letters that the equation does not have: the last ones of as many as the tensor
// with the most axes needs.
void name_ellipses(std::string_view equation, Equation& parsed, TensorList tensors) {
  std::size_t most = 0;
  std::string used = parsed.result;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::string& letters = parsed.terms[i];
    used += letters;
    if (!has(letters, kEllipsis)) continue;
    const std::size_t rank = static_cast<std::size_t>(tensors[i].rank());
    if (rank + 1 < letters.size())
      fail<ShapeError>("[einsum] expected a tensor of {} axes or more for \"{}\", got shape {}",
                       letters.size() - 1, equation, tensors[i].shape().to_string());
    most = std::max(most, rank + 1 - letters.size());
  }
  std::string free;
  for (char letter = 'A'; letter <= 'z'; ++letter)
    if (std::isalpha(static_cast<unsigned char>(letter)) != 0 && !has(used, letter)) free += letter;
  if (free.size() < most) refuse(equation, "it has no letters left for the axes of \"...\"");
  const std::string names = free.substr(0, most);
  const auto replace = [&](std::string& letters, std::size_t axes) {
    const std::size_t at = letters.find(kEllipsis);
    if (at != std::string::npos) letters.replace(at, 1, names.substr(most - axes));
  };
  for (std::size_t i = 0; i < tensors.size(); ++i)
    replace(parsed.terms[i],
            static_cast<std::size_t>(tensors[i].rank()) + 1 - parsed.terms[i].size());
  replace(parsed.result, most);
}

// Each letter once: the diagonals of axes with the same one.
Term with_diagonals(Term term) {
  for (std::size_t i = 0; i < term.letters.size(); ++i) {
    const std::size_t other = term.letters.find(term.letters[i], i + 1);
    if (other == std::string::npos) continue;
    const char letter = term.letters[i];
    const auto first = static_cast<int>(i), second = static_cast<int>(other);
    const Shape& shape = term.tensor.shape();
    if (!dim::may_equal(shape.word(first), shape.word(second)))
      fail<ShapeError>("[einsum] expected one size for '{}', got {} and {}", letter,
                       dim::text(shape.word(first)), dim::text(shape.word(second)));
    term.tensor = of_size("einsum", "an operand of shape", term.tensor, second, shape.word(first))
                      .diagonal(0, first, second);
    term.letters.erase(other, 1);
    term.letters.erase(i, 1);
    term.letters += letter;
    i = static_cast<std::size_t>(-1);  // from the start
  }
  return term;
}

// Removes axes of size 1 whose letter has another size elsewhere: they broadcast.
void drop_broadcast(std::vector<Term>& terms) {
  for (Term& term : terms) {
    Dims axes;
    std::string left;
    for (std::size_t i = 0; i < term.letters.size(); ++i) {
      const char letter = term.letters[i];
      const bool larger = std::ranges::any_of(terms, [&](const Term& other) {
        return has(other.letters, letter) && other.size(letter) != 1;
      });
      if (larger && term.tensor.shape().word(static_cast<int>(i)) == 1)
        axes.push_back(static_cast<std::int64_t>(i));
      else
        left += letter;
    }
    if (axes.empty()) continue;
    term.tensor = squeeze(term.tensor, axes);
    term.letters = left;
  }
}

}  // namespace

Tensor einsum(std::string_view equation, TensorList tensors) {
  Equation parsed(equation);
  if (parsed.terms.size() != tensors.size())
    refuse(equation,
           fmt::format("it names {} tensors for {}", parsed.terms.size(), tensors.size()));
  name_ellipses(equation, parsed, tensors);
  std::vector<Term> terms;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].rank() != static_cast<int>(parsed.terms[i].size()))
      fail<ShapeError>("[einsum] expected a tensor of {} axes for \"{}\", got shape {}",
                       parsed.terms[i].size(), parsed.terms[i], tensors[i].shape().to_string());
    terms.push_back(with_diagonals({tensors[i], parsed.terms[i]}));
  }
  drop_broadcast(terms);
  for (std::size_t i = 0; i < terms.size(); ++i) {
    Term& term = terms[i];
    Shape agreed = term.tensor.shape();
    for (int axis = 0; axis < agreed.rank(); ++axis)
      for (std::size_t j = 0; j < i; ++j) {
        const Term& other = terms[j];
        const char letter = term.letters[static_cast<std::size_t>(axis)];
        if (!has(other.letters, letter)) continue;
        if (!dim::may_equal(other.size(letter), agreed.word(axis)))
          fail<ShapeError>("[einsum] expected one size for '{}', got {} and {}", letter,
                           dim::text(other.size(letter)), dim::text(agreed.word(axis)));
        agreed.set(axis, other.size(letter));
      }
    term.tensor = of_shape("einsum", "an operand of shape", term.tensor, agreed);
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
