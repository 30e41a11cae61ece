// Shapes: the sizes of a tensor's axes. A value of fixed capacity, so that no shape allocates.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <span>
#include <string>

namespace tandem {

inline constexpr int kMaxRank = 8;
/// The most elements that a tensor may have. The bytes of as many still fit in 63 bits, whatever
/// the dtype.
inline constexpr std::int64_t kMaxElements = (std::int64_t{1} << 60) - 1;

// A short list of integers without allocation: axes, permutations, strides. At most kMaxRank.
class Dims {
 public:
  constexpr Dims() = default;
  Dims(std::initializer_list<std::int64_t> values)
      : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}
  // Throws InvalidArgumentError when there are more than kMaxRank values.
  explicit Dims(std::span<const std::int64_t> values);

  int size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::int64_t operator[](int i) const { return values_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return values_[static_cast<std::size_t>(i)]; }
  const std::int64_t* begin() const { return values_.data(); }
  const std::int64_t* end() const { return values_.data() + size_; }
  std::int64_t* begin() { return values_.data(); }
  std::int64_t* end() { return values_.data() + size_; }
  std::span<const std::int64_t> span() const { return {begin(), static_cast<std::size_t>(size_)}; }
  // Throws InvalidArgumentError when full.
  void push_back(std::int64_t value);

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

// A tensor's shape. Three states: of unknown rank (default constructed), of known rank with unknown
// sizes in it (negative; -1 where a program writes one), and fully defined. Concrete tensors always
// have fully defined shapes. Where an option takes a Shape, the unknown one means "not given".
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) : dims_(sizes), known_(true) {}
  explicit Shape(std::span<const std::int64_t> sizes) : dims_(sizes), known_(true) {}
  explicit Shape(const Dims& sizes) : dims_(sizes), known_(true) {}
  static Shape scalar() { return Shape(Dims()); }

  bool known() const { return known_; }
  bool fully_defined() const;
  int rank() const { return dims_.size(); }
  std::int64_t operator[](int axis) const { return dims_[axis]; }
  void set(int axis, std::int64_t size) { dims_[axis] = size; }
  // The size of `axis`, negative ones counting from the end. Throws InvalidArgumentError if absent.
  std::int64_t dim(std::int64_t axis) const;
  // The product of all sizes; 1 for a scalar. Throws InvalidArgumentError when one is not known,
  // and when the shape is too large.
  std::int64_t num_elements() const {
    const Count count = multiply();
    if (count.too_large) [[unlikely]]
      refuse_size();
    if (count.unknown) [[unlikely]]
      unknown_size();
    return count.empty ? 0 : count.product;
  }
  /// Whether no tensor can have this shape: the product of its known sizes, those of 0 left out, is
  /// larger than kMaxElements. (Zeros do not count, so that strides fit, too; NumPy does the same.)
  bool too_large() const { return multiply().too_large; }
  const Dims& dims() const { return dims_; }
  const std::int64_t* begin() const { return dims_.begin(); }
  const std::int64_t* end() const { return dims_.end(); }

  // This shape without its first `count` axes. REQUIRES: count <= rank().
  Shape without_leading(int count) const;
  // This shape with `size` put in front. Throws InvalidArgumentError past kMaxRank.
  Shape with_leading(std::int64_t size) const;
  // Whether a concrete shape could be one that this shape describes (-1 and unknown rank match
  // all).
  bool matches(const Shape& concrete) const;
  // As NumPy prints: "()", "(3,)", "(2, 3)"; unknown sizes as "?", unknown rank as "<unknown>".
  std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b) {
    return a.known_ == b.known_ && a.dims_ == b.dims_;
  }

 private:
  struct Count {
    std::int64_t product = 1;  // of the sizes above 0
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
  [[noreturn]] void refuse_size() const;
  [[noreturn]] void unknown_size() const;

  Dims dims_;
  bool known_ = false;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Whether two sizes of axes can be the same: they are equal, or one of them is not known
/// (negative). Where a function is traced or a graph is built, each unknown size is a negative
/// number of its own, so that == says no for two that may well agree when the graph runs.
constexpr bool may_agree(std::int64_t a, std::int64_t b) { return a == b || a < 0 || b < 0; }
/// Whether two shapes can be the same. One of unknown rank may agree with all.
bool may_agree(const Shape& a, const Shape& b);

}  // namespace tandem
