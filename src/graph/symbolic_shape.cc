#include "graph/symbolic_shape.h"

#include "core/status.h"

namespace tandem {
namespace {

// The cast is safe: the visitors here do not write.
template <class F>
void visit_unknown(const AttrsType& type, const void* attrs, const F& visit) {
  if (attrs)
    type.visit_integers(const_cast<void*>(attrs), [&](std::int64_t& number) {
      if (dim::is_unknown(number)) visit(number);
    });
}

}  // namespace

Shape with_symbols(SizeTable& sizes, const Shape& shape, std::string_view name) {
  Shape result = shape;
  for (int axis = 0; axis < result.rank(); ++axis)
    if (!dim::is_size(result.word(axis)))
      result.set(axis, sizes.symbol(fmt::format("axis {} of '{}'", axis, name)));
  return result;
}

void check_sizes(const SizeTable& sizes, const OpDef& op, AttrsRef attrs) {
  visit_unknown(*attrs.type, attrs.data, [&](std::int64_t number) {
    if (!sizes.has(number))
      fail<InvalidArgumentError>(
          "[{}] an attribute was computed from a size that is not known before the graph runs",
          op.name);
  });
}

void KnownSizes::use(const std::shared_ptr<SizeTable>& sizes) {
  if (sizes_ != sizes) values_.clear();
  sizes_ = sizes;
}

void KnownSizes::bind(const Shape& symbolic, const Shape& concrete, std::string_view what) {
  if (!symbolic.matches(concrete) || !concrete.fully_defined())
    fail<InvalidArgumentError>("[{}] expected shape {}, got {}", what, symbolic.to_string(),
                               concrete.to_string());
  for (int axis = 0; axis < symbolic.rank(); ++axis) {
    if (!dim::is_unknown(symbolic.word(axis))) continue;
    const std::int64_t value = sizes_->evaluate(symbolic.word(axis), values_);
    if (value == SizeTable::kUnset)
      values_[static_cast<std::size_t>(sizes_->index_of(symbolic.word(axis)))] =
          concrete.word(axis);
    else if (value != concrete.word(axis))
      fail<InvalidArgumentError>("[{}] expected a size of {} for axis {}, got shape {}", what,
                                 value, axis, concrete.to_string());
  }
}

std::int64_t KnownSizes::operator()(std::int64_t size) const {
  if (!dim::is_unknown(size)) return size;
  const std::int64_t value = sizes_->evaluate(size, values_);
  if (value == SizeTable::kUnset)
    fail<InvalidArgumentError>("[Shape] something depends on {}, which is not known in this run",
                               sizes_->text(size));
  if (value < 0)
    fail<ShapeError>("[Shape] expected a size of at least 0, got {}, which is {}",
                     sizes_->text(size), value);
  return value;
}

Shape KnownSizes::operator()(Shape shape) const {
  for (int axis = 0; axis < shape.rank(); ++axis) shape.set(axis, (*this)(shape.word(axis)));
  return shape;
}

std::shared_ptr<const void> KnownSizes::fill_in(const OpDef& op,
                                                const std::shared_ptr<const void>& attrs) const {
  bool any = false;
  visit_unknown(op.attrs(), attrs.get(), [&](std::int64_t) { any = true; });
  return any ? with_sizes(op.attrs(), attrs.get(), *this) : attrs;
}

}  // namespace tandem
