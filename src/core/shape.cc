#include "tandem/shape.h"

#include <algorithm>
#include <ostream>

#include "core/dim.h"
#include "core/status.h"

namespace tandem {

Dims::Dims(std::span<const std::int64_t> values) {
  if (values.size() > kMaxRank)
    fail<ShapeError>("[Shape] expected at most {} axes, got {}", kMaxRank, values.size());
  std::copy(values.begin(), values.end(), values_.begin());
  size_ = static_cast<std::int32_t>(values.size());
}

void Dims::push_back(std::int64_t value) {
  if (size_ == kMaxRank)
    fail<ShapeError>("[Shape] expected at most {} axes, got {}", kMaxRank, size_ + 1);
  values_[static_cast<std::size_t>(size_++)] = value;
}

Shape::Shape(std::span<const Dim> sizes) : known_(true) {
  if (sizes.size() > kMaxRank)
    fail<ShapeError>("[Shape] expected at most {} axes, got {}", kMaxRank, sizes.size());
  for (const Dim& size : sizes) dims_.push_back(size.word());
}

bool Shape::fully_defined() const {
  return known_ &&
         std::all_of(dims_.begin(), dims_.end(), [](std::int64_t size) { return size >= 0; });
}

std::int64_t Shape::word_from_end(std::int64_t axis) const {
  if (!known_)
    fail<ShapeError>("[Shape] expected a known rank, got axis {} of {}", axis, to_string());
  if (axis < -rank() || axis >= rank())
    fail<ShapeError>("[Shape] expected an axis in [{}, {}) of shape {}, got {}", -rank(), rank(),
                     to_string(), axis);
  return dims_[static_cast<int>(axis + rank())];
}

void Shape::refuse_size() const {
  fail<ShapeError>("[Shape] expected at most {} elements, got shape {}", kMaxElements, to_string());
}

void Shape::unknown_size() const {
  fail<ShapeError>(
      "[Shape] the number of elements of shape {} is unknown until the "
      "graph runs",
      to_string());
}

Dims Shape::dims() const { return Dims(begin(), end()); }

Dim Shape::unknown_elements() const {
  if (!dim::are_sizes(*this)) unknown_size();
  return dim::num_elements(*this);
}

Shape Shape::without_leading(int count) const {
  TANDEM_ASSERT(known_ && count >= 0 && count <= rank());
  return Shape(dims_.span().subspan(static_cast<std::size_t>(count)));
}

Shape Shape::with_leading(Dim size) const {
  TANDEM_ASSERT(known_);
  Dims result{size.word()};
  for (std::int64_t each : dims_) result.push_back(each);
  return Shape(result);
}

bool Shape::matches(const Shape& concrete) const {
  if (!known_) return true;
  if (!concrete.known_ || rank() != concrete.rank()) return false;
  return std::equal(
      dims_.begin(), dims_.end(), concrete.dims_.begin(),
      [](std::int64_t mine, std::int64_t theirs) { return mine < 0 || mine == theirs; });
}

bool may_agree(const Shape& a, const Shape& b) {
  if (!a.known() || !b.known()) return true;
  return std::equal(a.words().begin(), a.words().end(), b.words().begin(), b.words().end(),
                    [](std::int64_t m, std::int64_t n) { return may_agree(m, n); });
}

std::string Shape::to_string() const {
  if (!known_) return "<unknown>";
  std::string text = "(";
  for (int axis = 0; axis < rank(); ++axis) {
    if (axis > 0) text += ", ";
    text += dims_[axis] < 0 ? "?" : std::to_string(dims_[axis]);
  }
  return text + (rank() == 1 ? ",)" : ")");
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << shape.to_string(); }

}  // namespace tandem
