// Shapes with sizes that are unknown before a run.
//
// Each unknown size is a distinct negative number. So attributes that were copied from shapes can
// be filled in once the sizes are known. The numbers are far from each other and from other values
// of attributes (axes, -1), so that arithmetic on an unknown size is detected.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "op/op.h"

namespace tandem {

// A call of a shape rule.
struct AskedRule {
  const OpDef* op;
  std::shared_ptr<const void> attrs;  // null if they have no fields
  std::vector<TensorType> inputs;
};

// How an unknown size depends on others: it is a result of a shape rule, whatever arithmetic the
// rule does.
struct SizeRule {
  std::shared_ptr<const AskedRule> asked;
  int output = 0, axis = 0;
  // The dependent sizes that this one depends on.
  std::vector<std::int64_t> derived;
};

// The unknown sizes of one graph.
class SymbolicSizes {
 public:
  std::int64_t fresh();
  // A fresh unknown size for that axis of an output of `asked`. It has a SizeRule unless it depends
  // on too many others.
  std::int64_t derived(const std::shared_ptr<const AskedRule>& asked, int output, int axis);
  int count() const { return count_; }
  // For a graph that is deserialised: its shapes have `count` unknown sizes.
  void set_count(int count);
  // Whether the size is valid in this graph: a known size, or one of its unknown sizes.
  bool has(std::int64_t size) const;
  // Replaces each -1 in `shape` with a fresh unknown size.
  Shape named(const Shape& shape);

  // Returns null if the size does not depend on others.
  const SizeRule* rule_of(std::int64_t size) const;
  // For a graph that is deserialised: gives `stored` the rule of `inferred`.
  void take_over(std::int64_t stored, std::int64_t inferred);

 private:
  int count_ = 0;
  std::unordered_map<std::int64_t, SizeRule> rules_;  // by size
};

// Whether a number of a shape or of attributes is an unknown size or was computed from one.
bool is_unknown_size(std::int64_t number);
// Whether it is an unknown size itself.
bool names_unknown_size(std::int64_t number);

// A copy of `attrs`, with replacement(number) for each number that is_unknown_size().
template <class F>
std::shared_ptr<const void> with_sizes(const AttrsType& type, const void* attrs,
                                       const F& replacement) {
  std::shared_ptr<const void> copy = type.copy(attrs);
  if (!copy) return copy;
  // The cast is safe: nothing else refers to the copy yet.
  type.visit_integers(const_cast<void*>(copy.get()), [&](std::int64_t& number) {
    if (is_unknown_size(number)) number = replacement(number);
  });
  return copy;
}

// The values of the unknown sizes in one run.
class KnownSizes {
 public:
  // Reserves `count` sizes of a graph and keeps the values of those that are bound already.
  void set_count(int count) { values_.resize(static_cast<std::size_t>(count), -1); }
  // Binds the unknown sizes of `symbolic` to those of `concrete`. Throws InvalidArgumentError,
  // which names `what`, if the shapes do not match, if a size is bound to another value already, or
  // if `concrete` has an unknown size.
  void bind(const Shape& symbolic, const Shape& concrete, std::string_view what);
  // The value of the size, or `size` itself if it is known or a wildcard.
  std::int64_t operator()(std::int64_t size) const;
  Shape operator()(Shape shape) const;
  // `attrs` with the sizes filled in, or `attrs` itself if it has no unknown sizes. Throws
  // InvalidArgumentError for a number that was computed from an unknown size.
  std::shared_ptr<const void> fill_in(const OpDef& op,
                                      const std::shared_ptr<const void>& attrs) const;

 private:
  std::vector<std::int64_t> values_;
};

}  // namespace tandem
