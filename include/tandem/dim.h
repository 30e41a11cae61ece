/// @file
/// Dim: the size of an axis, which may be unknown while a function is traced or a graph is made.
#pragma once

#include <concepts>
#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <type_traits>

namespace tandem {

class Dim;

namespace detail {

// An integer that is no bool, or an enumerator that converts to one: a size, a position or an axis.
template <class T>
concept Integer = (std::integral<T> && !std::same_as<T, bool>) ||
                  (std::is_enum_v<T> && std::convertible_to<T, std::int64_t>);

// Two sizes, or a size and an integer.
template <class A, class B>
concept DimPair = (std::same_as<A, Dim> && (std::same_as<B, Dim> || Integer<B>)) ||
                  (Integer<A> && std::same_as<B, Dim>);

[[noreturn]] void refuse_unknown_dim(std::int64_t word);
// op: one of "+-*/%<>" (minimum and maximum).
Dim combine_dims(char op, Dim a, Dim b);
// At least one is unknown.
bool are_equal_dims(std::int64_t a, std::int64_t b);
bool is_less_dim(std::int64_t a, std::int64_t b);

}  // namespace detail

/// The size of an axis: a number, or an expression of sizes that are not known yet. Sizes that a
/// function's `input_signature` or a placeholder leaves open (-1) are unknown while the function is
/// traced or the graph is made.
///
/// A Dim converts to std::int64_t if it is known. Otherwise the conversion throws
/// InvalidArgumentError, so that no number stands for an unknown size. These work for all sizes: +,
/// -, *, /, %, min() and max() of sizes and integers, which give a Dim; functions that take sizes
/// (`reshape(x, {n, -1})`, `zeros({n, 4})`, `range(n)`, `Slice{0, n - 1}`); and tensor arithmetic
/// (`reduce_sum(x) / n`), where it is a scalar of the tensor's dtype. Quotients round toward zero
/// as those of integers. A comparison throws InvalidArgumentError if its result differs between
/// runs. As torch.SymInt.
///
/// With a double a Dim is a number: `0.5 * n` is a double, and throws if n is unknown.
class Dim {
 public:
  constexpr Dim() = default;  ///< 0
  /// A known size. Differences of sizes may be negative; -1 means "any" where a function says so.
  template <detail::Integer T>
  constexpr Dim(T size) : word_(static_cast<std::int64_t>(size)) {}  // NOLINT: implicit
  /// -1: a size that is left open, as None in a shape of Keras.
  constexpr Dim(std::nullopt_t) : word_(-1) {}  // NOLINT: implicit
  /// @{
  /// Copies. They are not trivial, so that `printf("%ld", x.dim(0))` does not compile: it would
  /// print a meaningless number for an unknown size. Write x.dim(0).value().
  constexpr Dim(const Dim& other) : word_(other.word_) {}
  constexpr Dim& operator=(const Dim& other) {
    word_ = other.word_;
    return *this;
  }
  /// @}

  /// Whether it is a number.
  constexpr bool known() const { return word_ > kLastUnknown; }
  /// The number. Throws InvalidArgumentError, which names the size, if it is unknown.
  constexpr std::int64_t value() const {
    if (!known()) [[unlikely]]
      detail::refuse_unknown_dim(word_);
    return word_;
  }
  constexpr operator std::int64_t() const { return value(); }  ///< as value(). NOLINT: implicit
  /// The number; for unknown sizes the expression, such as "(axis 0 of 'x' + 2)".
  std::string to_string() const;

  /// @{
  /// Arithmetic. Throws InvalidArgumentError for a division by zero and for sizes of different
  /// graphs, and ShapeError for results of more than 63 bits. A divisor that turns out not to be
  /// positive in a run is a ShapeError of that run.
  Dim& operator+=(Dim other) { return *this = detail::combine_dims('+', *this, other); }
  Dim& operator-=(Dim other) { return *this = detail::combine_dims('-', *this, other); }
  Dim& operator*=(Dim other) { return *this = detail::combine_dims('*', *this, other); }
  Dim& operator/=(Dim other) { return *this = detail::combine_dims('/', *this, other); }
  Dim& operator%=(Dim other) { return *this = detail::combine_dims('%', *this, other); }
  Dim& operator++() { return *this += 1; }
  Dim& operator--() { return *this -= 1; }
  Dim operator-() const { return detail::combine_dims('-', 0, *this); }
  /// @}

  /// For Tandem's own code: the number, or the name of an expression (core/dim.h).
  constexpr std::int64_t word() const { return word_; }

 private:
  // Names of expressions are at most this.
  static constexpr std::int64_t kLastUnknown = -(std::int64_t{1} << 39);

  std::int64_t word_ = 0;
};

/// @{
/// Arithmetic of sizes and integers. As Dim::operator+=() etc.
template <class A, class B>
requires detail::DimPair<A, B> Dim operator+(const A& a, const B& b) {
  return detail::combine_dims('+', a, b);
}
template <class A, class B>
requires detail::DimPair<A, B> Dim operator-(const A& a, const B& b) {
  return detail::combine_dims('-', a, b);
}
template <class A, class B>
requires detail::DimPair<A, B> Dim operator*(const A& a, const B& b) {
  return detail::combine_dims('*', a, b);
}
template <class A, class B>
requires detail::DimPair<A, B> Dim operator/(const A& a, const B& b) {
  return detail::combine_dims('/', a, b);
}
template <class A, class B>
requires detail::DimPair<A, B> Dim operator%(const A& a, const B& b) {
  return detail::combine_dims('%', a, b);
}
template <class A, class B>
requires detail::DimPair<A, B> Dim min(const A& a, const B& b) {
  return detail::combine_dims('<', a, b);
}
template <class A, class B>
requires detail::DimPair<A, B> Dim max(const A& a, const B& b) {
  return detail::combine_dims('>', a, b);
}
/// @}

/// @{
/// Comparison of sizes and integers. Throws InvalidArgumentError if the result depends on sizes
/// that are not known.
template <class A, class B>
requires detail::DimPair<A, B>
constexpr bool operator==(const A& a, const B& b) {
  const Dim x = a, y = b;
  return x.word() == y.word() ||
         ((!x.known() || !y.known()) && detail::are_equal_dims(x.word(), y.word()));
}
template <class A, class B>
requires detail::DimPair<A, B>
constexpr bool operator<(const A& a, const B& b) {
  const Dim x = a, y = b;
  return x.known() && y.known() ? x.word() < y.word() : detail::is_less_dim(x.word(), y.word());
}
template <class A, class B>
requires detail::DimPair<A, B>
constexpr bool operator>(const A& a, const B& b) { return b < a; }
template <class A, class B>
requires detail::DimPair<A, B>
constexpr bool operator<=(const A& a, const B& b) { return !(b < a); }
template <class A, class B>
requires detail::DimPair<A, B>
constexpr bool operator>=(const A& a, const B& b) { return !(a < b); }
/// @}

/// Writes to_string().
std::ostream& operator<<(std::ostream& out, const Dim& dim);
/// to_string(), by which {fmt} 10 and later prints it.
inline std::string format_as(const Dim& dim) { return dim.to_string(); }

}  // namespace tandem
