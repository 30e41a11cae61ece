// Formats tensors as NumPy's array2string does with its default options: at most 8 fractional
// digits, lines of 75 columns, and only the three outer elements of each axis above 1000 elements.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "core/status.h"
#include "ops/math/elementwise.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tensor/tensor_impl.h"

namespace tandem {
namespace {

constexpr int kPrecision = 8;
constexpr std::int64_t kThreshold = 1000;
constexpr std::int64_t kEdgeItems = 3;
constexpr std::size_t kLineWidth = 75;

// The shortest decimal that reads back as the same number: d.ddd x 10^exponent.
struct Decimal {
  std::string digits;
  int exponent = 0;
};

Decimal parse_scientific(std::string_view text) {
  Decimal decimal;
  const std::size_t e = text.find('e');
  for (const char c : text.substr(0, e))
    if (c >= '0' && c <= '9') decimal.digits += c;
  while (decimal.digits.size() > 1 && decimal.digits.back() == '0') decimal.digits.pop_back();
  decimal.exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  return decimal;
}

// `value` is a T, finite and not negative.
template <class T>
Decimal shortest_decimal(double value) {
  if constexpr (sizeof(T) == 2) {
    for (int precision = 0;; ++precision) {
      const std::string text = fmt::format("{:.{}e}", value, precision);
      if (precision >= 8 || static_cast<double>(static_cast<T>(std::stof(text))) == value)
        return parse_scientific(text);
    }
  } else {
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), static_cast<T>(value),
                                   std::chars_format::scientific);
    return parse_scientific({buffer, static_cast<std::size_t>(end.ptr - buffer)});
  }
}

// The parts of a formatted number: "-12" "25" "" or "-1" "5" "e-05".
struct NumberText {
  std::string whole;
  std::string fraction;
  std::string exponent;
};

void trim_zeros(std::string& fraction) {
  while (!fraction.empty() && fraction.back() == '0') fraction.pop_back();
}

// If `exact_whole`, digits of the whole part beyond the type's precision are those of the exact
// value; otherwise they are zeros.
template <class T>
NumberText positional(double value, int precision, bool exact_whole) {
  NumberText text;
  const double magnitude = std::abs(value);
  const Decimal decimal = shortest_decimal<T>(magnitude);
  const int fraction_digits = static_cast<int>(decimal.digits.size()) - 1 - decimal.exponent;
  if (fraction_digits > precision) {
    const std::string fixed = fmt::format("{:.{}f}", magnitude, precision);
    const std::size_t point = fixed.find('.');
    text.whole = fixed.substr(0, point);
    text.fraction = fixed.substr(point + 1);
    trim_zeros(text.fraction);
  } else {
    std::string digits = decimal.digits;
    int exponent = decimal.exponent;
    if (exponent < 0) {
      digits.insert(0, static_cast<std::size_t>(-exponent), '0');
      exponent = 0;
    }
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    text.whole = exact_whole && decimal.digits.size() < whole ? fmt::format("{:.0f}", magnitude)
                                                              : digits.substr(0, whole);
    text.fraction = digits.substr(whole);
    trim_zeros(text.fraction);
  }
  if (std::signbit(value)) text.whole.insert(0, 1, '-');
  return text;
}

// Exactly `precision` fractional digits of the exact value.
NumberText scientific_digits(double value, int precision) {
  const std::string text = fmt::format("{:.{}e}", value, precision);
  const std::size_t point = text.find('.'), e = text.find('e');
  return {.whole = text.substr(0, std::min(point, e)),
          .fraction = point == std::string::npos ? "" : text.substr(point + 1, e - point - 1),
          .exponent = text.substr(e)};
}

template <class T>
NumberText scientific(double value, int precision) {
  const int shortest = static_cast<int>(shortest_decimal<T>(std::abs(value)).digits.size()) - 1;
  NumberText text = scientific_digits(value, std::min(shortest, precision));
  trim_zeros(text.fraction);
  return text;
}

std::string non_finite(double value) {
  return std::isnan(value) ? "nan" : value < 0 ? "-inf" : "inf";
}

template <class T>
bool wants_exponents(const std::vector<double>& values) {
  double largest = 0.0, smallest = HUGE_VAL;
  for (const double value : values) {
    if (!std::isfinite(value) || value == 0.0) continue;
    largest = std::max(largest, std::abs(value));
    smallest = std::min(smallest, std::abs(value));
  }
  if (largest == 0.0) return false;
  // The ratio is rounded to the element type.
  return largest >= 1e8 || smallest < 0.0001 ||
         static_cast<double>(T(static_cast<T>(largest / smallest))) > 1000.0;
}

// Formats the elements in one common width.
template <class T>
std::vector<std::string> float_words(const std::vector<double>& values) {
  const bool exponents = wants_exponents<T>(values);
  std::vector<NumberText> numbers;
  std::size_t left = 0, right = 0, power = 0;
  bool any_finite = false;
  for (const double value : values) {
    numbers.emplace_back();
    if (!std::isfinite(value)) continue;
    any_finite = true;
    NumberText& text = numbers.back();
    text = exponents ? scientific<T>(value, kPrecision) : positional<T>(value, kPrecision, true);
    left = std::max(left, text.whole.size());
    right = std::max(right, text.fraction.size());
    power = std::max(power, text.exponent.size());
  }
  // The number of characters after the decimal point.
  const std::size_t after_point = any_finite && exponents ? right + power : right;
  for (const double value : values)
    if (!std::isfinite(value))
      left = std::max(left + after_point + 1, non_finite(value).size()) - after_point - 1;

  std::vector<std::string> words;
  for (std::size_t i = 0; i < values.size(); ++i) {
    std::string word;
    if (!std::isfinite(values[i])) {
      word = non_finite(values[i]);
      word.insert(0, left + after_point + 1 - word.size(), ' ');
    } else {
      NumberText& text = numbers[i];
      // Exponents align the digits: shorter numbers show more of their exact value.
      if (exponents) text = scientific_digits(values[i], static_cast<int>(right));
      word = std::string(left - text.whole.size(), ' ') + text.whole + '.' + text.fraction;
      word.append(right - text.fraction.size(), ' ');
      if (exponents) {
        text.exponent.insert(2, power - text.exponent.size(), '0');
        word += text.exponent;
      }
    }
    words.push_back(std::move(word));
  }
  return words;
}

// A scalar, as NumPy prints it.
template <class T>
std::string float_scalar(double value) {
  if (!std::isfinite(value)) return non_finite(value);
  const double magnitude = std::abs(value);
  if (magnitude == 0.0 || (magnitude >= 1e-4 && magnitude < 1e16)) {
    const NumberText text = positional<T>(value, 400, false);
    return fmt::format("{}.{}", text.whole, text.fraction.empty() ? "0" : text.fraction);
  }
  const NumberText text = scientific<T>(value, 400);
  return fmt::format("{}{}{}{}", text.whole, text.fraction.empty() ? "" : ".", text.fraction,
                     text.exponent);
}

template <class T>
std::vector<std::string> integer_words(const std::vector<T>& values) {
  std::vector<std::string> words;
  std::size_t width = 0;
  for (const T value : values) {
    words.push_back(std::to_string(value));
    width = std::max(width, words.back().size());
  }
  for (std::string& word : words) word.insert(0, width - word.size(), ' ');
  return words;
}

template <class T>
std::vector<std::string> words_of(const std::vector<T>& values, bool scalar) {
  if constexpr (std::is_same_v<T, bool>) {
    std::vector<std::string> words;
    for (const bool value : values) words.push_back(value ? (scalar ? "True" : " True") : "False");
    return words;
  } else if constexpr (std::is_integral_v<T>) {
    return integer_words(values);
  } else {
    const std::vector<double> numbers(values.begin(), values.end());
    return scalar ? std::vector<std::string>{float_scalar<T>(numbers[0])} : float_words<T>(numbers);
  }
}

// The indices of an axis that are printed.
std::vector<std::int64_t> printed_indices(std::int64_t size, bool summarize) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < size; ++i)
    if (!summarize || size <= 2 * kEdgeItems || i < kEdgeItems || i >= size - kEdgeItems)
      indices.push_back(i);
  return indices;
}

// Arranges formatted elements in brackets and breaks the innermost axis into lines.
class ArrayLayout {
 public:
  ArrayLayout(const Shape& shape, bool summarize, std::vector<std::string> words)
      : shape_(shape), summarize_(summarize), words_(std::move(words)) {}

  std::string text() { return render(0, " ", kLineWidth); }

 private:
  std::string render(int axis, const std::string& indent, std::size_t width) {
    const std::int64_t size = shape_[axis];
    const bool dots = summarize_ && size > 2 * kEdgeItems;
    const std::int64_t count = dots ? 2 * kEdgeItems : size;
    std::string out;
    if (axis + 1 == shape_.rank()) {
      std::string line = indent;
      for (std::int64_t i = 0; i < count; ++i) {
        if (i > 0) line += ' ';
        if (dots && i == kEdgeItems) {
          extend(out, line, "...", width - 1, indent);
          line += ' ';
        }
        extend(out, line, words_[next_++], width - 1, indent);
      }
      out += line;
    } else {
      const std::string separator(static_cast<std::size_t>(shape_.rank() - axis - 1), '\n');
      for (std::int64_t i = 0; i < count; ++i) {
        if (i > 0) out += separator;
        if (dots && i == kEdgeItems) out += indent + "..." + separator;
        out += indent + render(axis + 1, indent + ' ', width - 1);
      }
    }
    return '[' + out.substr(indent.size()) + ']';
  }

  static void extend(std::string& out, std::string& line, const std::string& word,
                     std::size_t width, const std::string& indent) {
    if (line.size() + word.size() > width && line.size() > indent.size()) {
      out += line.substr(0, line.find_last_not_of(' ') + 1) + '\n';
      line = indent;
    }
    line += word;
  }

  const Shape& shape_;
  bool summarize_;
  std::vector<std::string> words_;
  std::size_t next_ = 0;
};

template <class T>
std::string print(const Shape& shape, const std::byte* data) {
  const bool summarize = shape.num_elements() > kThreshold;
  // The flat positions of the printed elements, in order.
  std::vector<std::int64_t> positions = {0};
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::vector<std::int64_t> indices = printed_indices(shape.word(axis), summarize);
    std::vector<std::int64_t> next;
    next.reserve(positions.size() * indices.size());
    for (const std::int64_t position : positions)
      for (const std::int64_t index : indices) next.push_back(position * shape.word(axis) + index);
    positions = std::move(next);
  }
  std::vector<T> values;
  values.reserve(positions.size());
  for (const std::int64_t position : positions)
    values.push_back(reinterpret_cast<const T*>(data)[position]);
  std::vector<std::string> words = words_of(values, shape.rank() == 0);
  return shape.rank() == 0 ? words[0] : ArrayLayout(shape, summarize, std::move(words)).text();
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Tensor& tensor) {
  const TensorImpl& impl = impl_of(tensor);
  if (impl.shape.num_elements() == 0) return out << "[]";
  if (is_storage(impl.dtype) && !is_integer(impl.dtype)) return out << cast(tensor, float32);
  std::vector<std::byte> host(impl.bytes());
  to_host(tensor, host.data());
  return out << switch_any_dtype(impl.dtype, [&](auto tag) {
           using T = typename decltype(tag)::type;
           if constexpr (is_narrow_floating<T> && sizeof(T) == 1)
             return std::string();  // printed above
           else
             return print<T>(impl.shape, host.data());
         });
}

void print(const Tensor& x) { std::cout << x << '\n'; }
void detail::print_line(const std::string& line) { std::cout << line << '\n'; }
std::string Tensor::to_string() const {
  std::ostringstream text;
  text << *this;
  return text.str();
}

}  // namespace tandem
