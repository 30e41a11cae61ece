/// @file
/// Shapes: the sizes of a tensor's axes. Values of fixed capacity, which never allocate.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <iterator>
#include <span>
#include <string>

#include "tandem/dim.h"

namespace tandem {

inline constexpr int kMaxRank = 8;  ///< the largest rank of a tensor
/// The largest number of elements of a tensor. Their size in bytes fits in 63 bits for every dtype.
inline constexpr std::int64_t kMaxElements = (std::int64_t{1} << 60) - 1;

/// A short list of integers without allocation: axes, permutations or strides. At most kMaxRank
/// values. (Lists of sizes that may be unknown are a Shape or Sizes.)
class Dims {
 public:
  constexpr Dims() = default;
  /// The given values. Throws InvalidArgumentError for more than kMaxRank.
  Dims(std::initializer_list<std::int64_t> values)
      : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}
  /// The given values. Throws InvalidArgumentError for more than kMaxRank.
  explicit Dims(std::span<const std::int64_t> values);
  /// The values between two iterators. Throws InvalidArgumentError for more than kMaxRank.
  template <class Iterator>
  Dims(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) push_back(static_cast<std::int64_t>(*begin));
  }

  int size() const { return size_; }         ///< number of values
  bool empty() const { return size_ == 0; }  ///< whether there are no values
  /// @{
  /// Value i. REQUIRES: 0 <= i < size().
  std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  /// @}
  /// @{
  /// Iterates over the values.
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + size_; }
  std::int64_t* begin() { return values_.data(); }
  std::int64_t* end() { return values_.data() + size_; }
  /// @}
  /// The values as a span.
  std::span<const std::int64_t> span() const { return {begin(), static_cast<std::size_t>(size_)}; }
  /// Appends a value. Throws InvalidArgumentError if full.
  void push_back(std::int64_t value);

  /// Whether all values are equal.
  friend bool operator==(const Dims& a, const Dims& b) {
    if (a.size_ != b.size_) return false;
    for (int i = 0; i < a.size_; ++i)
      if (a[i] != b[i]) return false;
    return true;
  }

 private:
  std::array<std::int64_t, kMaxRank> values_{};
  std::int32_t size_ = 0;
};

/// A tensor's shape, in one of three states: unknown rank (default-constructed); known rank with
/// unknown sizes (negative; user code writes -1); fully defined. Tensors with values always have
/// fully defined shapes. As an option, the unknown shape means "not given". As tf.TensorShape.
class Shape {
 public:
  Shape() = default;
  /// @{
  /// A shape of known rank with these sizes; negative ones are unknown.
  Shape(std::initializer_list<Dim> sizes)
      : Shape(std::span<const Dim>(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const Dim> sizes);
  explicit Shape(std::span<const std::int64_t> sizes) : dims_(sizes), known_(true) {}
  explicit Shape(const Dims& sizes) : dims_(sizes), known_(true) {}
  /// @}
  static Shape scalar() { return Shape(Dims()); }  ///< the shape of a scalar

  bool known() const { return known_; }      ///< whether the rank is known
  bool fully_defined() const;                ///< whether rank and all sizes are known
  int rank() const { return dims_.size(); }  ///< number of axes; 0 for unknown rank
  Dims as_list() const { return dims(); }    ///< as dims(), in TensorFlow
  /// As rank(): the number of values of begin() and end().
  std::size_t size() const { return static_cast<std::size_t>(rank()); }
  /// As dim().
  Dim operator[](int axis) const { return Dim(word(axis)); }
  Dim front() const { return dim(0); }  ///< as dim(0)
  Dim back() const { return dim(-1); }  ///< as dim(-1)
  /// Sets the size of an axis. REQUIRES: 0 <= axis < rank().
  void set(int axis, Dim size) { dims_[axis] = size.word(); }
  /// Size of `axis`; negative ones count from the end. -1 for one that the user left open, as in an
  /// InputSpec. Throws InvalidArgumentError for an axis that does not exist.
  Dim dim(std::int64_t axis) const { return Dim(word(axis)); }
  /// Product of all sizes; 1 for a scalar. Throws InvalidArgumentError for unknown sizes and shapes
  /// that are too large.
  std::int64_t num_elements() const {
    const Count count = multiply();
    if (count.too_large) [[unlikely]]
      refuse_size();
    if (count.unknown) [[unlikely]]
      unknown_size();
    return count.empty ? 0 : count.product;
  }
  /// The same product, also of unknown sizes. Throws InvalidArgumentError for sizes of -1.
  Dim elements() const {
    const Count count = multiply();
    if (count.too_large) [[unlikely]]
      refuse_size();
    if (count.unknown) [[unlikely]]
      return unknown_elements();
    return count.empty ? 0 : count.product;
  }
  /// Whether no tensor can have this shape: the product of the known sizes other than 0 exceeds
  /// kMaxElements. (Zeros are ignored so that strides fit, too, as in NumPy.)
  bool too_large() const { return multiply().too_large; }
  /// All sizes. Throws InvalidArgumentError if one is unknown.
  Dims dims() const;
  class Iterator;
  /// @{
  /// Iterates over the sizes, which are Dims: `for (Dim size : x.shape())`.
  Iterator begin() const;
  Iterator end() const;
  /// @}

  /// This shape without its first `count` axes. REQUIRES: count <= rank().
  Shape without_leading(int count) const;
  /// This shape with a new first axis. Throws InvalidArgumentError if the rank exceeds kMaxRank.
  Shape with_leading(Dim size) const;
  /// Whether this shape describes the concrete one: unknown sizes and an unknown rank match all.
  bool matches(const Shape& concrete) const;
  /// Formats as NumPy: "()", "(3,)", "(2, 3)"; unknown sizes as "?", unknown rank as "\<unknown\>".
  std::string to_string() const;

  /// Whether rank and sizes are equal.
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.known_ == b.known_ && a.dims_ == b.dims_;
  }

  /// @{
  /// For Tandem's own code: the size of an axis, or all, as Dim::word(). Throws as dim().
  std::int64_t word(std::int64_t axis) const {
    return axis >= 0 && axis < rank() ? dims_[static_cast<int>(axis)] : word_from_end(axis);
  }
  const Dims& words() const { return dims_; }
  /// @}

 private:
  struct Count {
    std::int64_t product = 1;  // product of the sizes above 0
    bool unknown = false, empty = false, too_large = false;
  };
  Count multiply() const {
    Count count;
    for (std::int64_t size : dims_) {
      count.unknown |= size < 0;
      count.empty |= size == 0;
      count.too_large |= __builtin_mul_overflow(count.product, size > 0 ? size : 1, &count.product);
    }
    count.too_large |= count.product > kMaxElements;
    return count;
  }
  Dim unknown_elements() const;
  std::int64_t word_from_end(std::int64_t axis) const;
  [[noreturn]] void refuse_size() const;
  [[noreturn]] void unknown_size() const;

  Dims dims_;
  bool known_ = false;
};

/// An iterator over the sizes of a shape.
class Shape::Iterator {
 public:
  using iterator_category = std::random_access_iterator_tag;  ///< category
  using value_type = Dim;                                     ///< a size
  using difference_type = std::ptrdiff_t;                     ///< difference
  using pointer = const Dim*;                                 ///< not used
  using reference = Dim;                                      ///< sizes are values

  Iterator() = default;
  explicit Iterator(const std::int64_t* at) : at_(at) {}           ///< at this size
  Dim operator*() const { return Dim(*at_); }                      ///< the size
  Dim operator[](difference_type n) const { return Dim(at_[n]); }  ///< the size n positions on
  /// @{
  /// Moves.
  Iterator& operator+=(difference_type n) {
    at_ += n;
    return *this;
  }
  Iterator& operator-=(difference_type n) { return *this += -n; }
  Iterator& operator++() { return *this += 1; }
  Iterator& operator--() { return *this += -1; }
  Iterator operator++(int) { return Iterator(at_++); }
  Iterator operator--(int) { return Iterator(at_--); }
  friend Iterator operator+(Iterator a, difference_type n) { return a += n; }
  friend Iterator operator+(difference_type n, Iterator a) { return a += n; }
  friend Iterator operator-(Iterator a, difference_type n) { return a -= n; }
  friend difference_type operator-(Iterator a, Iterator b) { return a.at_ - b.at_; }
  /// @}
  friend auto operator<=>(const Iterator&, const Iterator&) = default;  ///< by position

 private:
  const std::int64_t* at_ = nullptr;
};

inline Shape::Iterator Shape::begin() const { return Iterator(dims_.begin()); }
inline Shape::Iterator Shape::end() const { return Iterator(dims_.end()); }

/// Sizes or positions of several axes as a parameter type. Converts from a list in braces ({n, 2})
/// and from Dims.
class Sizes {
 public:
  /// The given ones. Throws InvalidArgumentError for more than kMaxRank.
  Sizes(std::initializer_list<Dim> sizes) : words_(Shape(sizes).words()) {}
  Sizes(const Dims& sizes) : words_(sizes) {}   ///< the given ones. NOLINT: implicit
  const Dims& words() const { return words_; }  ///< for Tandem's own code

 private:
  Dims words_;
};

/// Writes to_string().
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Whether two sizes may be equal: they are, or one is unknown (negative). In a trace or graph each
/// unknown size is a different negative number, so that == returns false for two that may be equal
/// in a run.
constexpr bool may_agree(std::int64_t a, std::int64_t b) { return a == b || a < 0 || b < 0; }
/// Whether two shapes may be equal. An unknown rank may equal all.
bool may_agree(const Shape& a, const Shape& b);

}  // namespace tandem
