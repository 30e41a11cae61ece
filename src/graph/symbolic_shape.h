// The unknown sizes of a graph (core/dim.h) in its nodes, and their values in one run.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/size_table.h"
#include "op/op.h"

namespace tandem {

// `shape` with a new symbol for each -1, "axis 0 of 'name'".
Shape with_symbols(SizeTable& sizes, const Shape& shape, std::string_view name);

// Throws InvalidArgumentError if the attributes have a number that was computed from an unknown
// size by plain arithmetic, or an unknown size of another graph.
void check_sizes(const SizeTable& sizes, const OpDef& op, AttrsRef attrs);

// A copy of `attrs`, with replacement(size) for each unknown size.
template <class F>
std::shared_ptr<const void> with_sizes(const AttrsType& type, const void* attrs,
                                       const F& replacement) {
  std::shared_ptr<const void> copy = type.copy(attrs);
  if (!copy) return copy;
  // The cast is safe: nothing else refers to the copy yet.
  type.visit_integers(const_cast<void*>(copy.get()), [&](std::int64_t& number) {
    if (dim::is_unknown(number)) number = replacement(number);
  });
  return copy;
}

// The values of the unknown sizes in one run.
class KnownSizes {
 public:
  // The sizes of a graph. Keeps the values that are bound already.
  void use(const std::shared_ptr<SizeTable>& sizes);
  // Binds the symbols of `symbolic` to the sizes of `concrete`. Throws InvalidArgumentError, which
  // names `what`, if the shapes do not match, if a size has another value already, or if `concrete`
  // has an unknown size.
  void bind(const Shape& symbolic, const Shape& concrete, std::string_view what);
  // The value of the size, or `size` itself if it is known or -1. Throws InvalidArgumentError if it
  // depends on a symbol that is not bound, and ShapeError if it has no value.
  std::int64_t operator()(std::int64_t size) const;
  Shape operator()(Shape shape) const;
  // `attrs` with the sizes filled in, or `attrs` itself if it has no unknown sizes.
  std::shared_ptr<const void> fill_in(const OpDef& op,
                                      const std::shared_ptr<const void>& attrs) const;

 private:
  std::shared_ptr<SizeTable> sizes_;
  mutable std::vector<std::int64_t> values_;  // of the expressions; derived ones when first needed
};

}  // namespace tandem
