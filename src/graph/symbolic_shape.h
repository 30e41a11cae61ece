// Shapes of which some sizes are not known before a run.
//
// Each unknown size is a negative number of its own, so that attributes that were taken from shapes
// can be filled in once the sizes are known. The numbers are far from each other and from anything
// that stands in attributes otherwise (axes, -1): one that was computed WITH is found out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "op/op.h"

namespace tandem {

// What is known of an unknown size: that it is a sum of others, as where tensors are joined.
struct SizeSum {
  std::int64_t constant = 0;
  std::vector<std::pair<std::int64_t, std::int64_t>> parts;  // each a size, and how often it counts
};

// The unknown sizes of one graph.
class SymbolicSizes {
 public:
  std::int64_t fresh();
  int count() const { return count_; }
  // For a graph that is read: its shapes have `count` unknown sizes.
  void set_count(int count);
  // Whether a shape of this graph may have the size: a number, or one of the unknown ones.
  bool has(std::int64_t size) const;
  // Replaces each -1 in `shape` by a fresh one.
  Shape named(const Shape& shape);

  // Null where nothing is known of the size.
  const SizeSum* sum_of(std::int64_t size) const;
  // For a graph that is read: what is known of `inferred` holds for `stored`, too.
  void take_over(std::int64_t stored, std::int64_t inferred);

  // The outputs of `op` for inputs and attributes in which some sizes are not known: the shape rule
  // is asked with trial sizes, and what depends on them stays unknown. Throws what the rule throws
  // when no trial suits it.
  void infer(InferContext& context, const OpDef& op, AttrsRef attrs,
             std::span<const TensorSpec* const> inputs);

 private:
  int count_ = 0;
  std::unordered_map<std::int64_t, SizeSum> sums_;  // by size
};

// What the unknown sizes are in one run.
class KnownSizes {
 public:
  // Room for `count` sizes of a graph, those that are taken down already among them.
  void set_count(int count) { values_.resize(static_cast<std::size_t>(count), -1); }
  // Takes down that `symbolic` is `concrete`. Throws InvalidArgumentError, naming `what`, when they
  // do not agree with each other or with what was taken down before.
  void bind(const Shape& symbolic, const Shape& concrete, std::string_view what);
  // The size, or the number itself where it is known or a wildcard.
  std::int64_t operator()(std::int64_t size) const;
  Shape operator()(Shape shape) const;
  // `attrs` with the sizes filled in; itself where it has no unknown ones. Throws
  // InvalidArgumentError for what was computed with an unknown size.
  std::shared_ptr<const void> fill_in(const OpDef& op,
                                      const std::shared_ptr<const void>& attrs) const;

 private:
  std::vector<std::int64_t> values_;
};

}  // namespace tandem
