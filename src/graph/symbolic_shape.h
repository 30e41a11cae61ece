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
#include <vector>

#include "op/op.h"

namespace tandem {

// An operation as its shape rule was asked about it.
struct AskedRule {
  const OpDef* op;
  std::shared_ptr<const void> attrs;  // null where they have no fields
  std::vector<TensorSpec> inputs;
};

// How an unknown size follows from others: it is what a shape rule says. So it stays consistent
// with them, whatever arithmetic the rule does.
struct SizeRule {
  std::shared_ptr<const AskedRule> asked;
  int output = 0, axis = 0;
  // All sizes that follow from others and that this one depends on.
  std::vector<std::int64_t> derived;
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

  // Null where the size follows from no others.
  const SizeRule* rule_of(std::int64_t size) const;
  // For a graph that is read: `stored` follows from other sizes as `inferred` does.
  void take_over(std::int64_t stored, std::int64_t inferred);

  // The outputs of `op` for inputs and attributes in which some sizes are not known. The shape rule
  // is asked about trial sizes (SizeTrials). An output's size that is the same for all of them is
  // known; one that is always that of an input or attribute is that one; any other is a fresh
  // unknown size that follows from the rule. Throws what the rule throws when no trial suits it.
  void infer(InferContext& context, const OpDef& op, AttrsRef attrs,
             std::span<const TensorSpec* const> inputs);

 private:
  std::int64_t derived(const std::shared_ptr<const AskedRule>& asked, int output, int axis);

  int count_ = 0;
  std::unordered_map<std::int64_t, SizeRule> rules_;  // by size
};

// Whether a number of a shape or of attributes stands for an unknown size, or was computed with
// one.
bool is_unknown_size(std::int64_t number);
// Whether it stands for one as it is.
bool names_unknown_size(std::int64_t number);

// Calls visit(std::int64_t&) for each integer of the attributes.
template <class F>
void visit_attr_integers(const AttrsType& type, void* attrs, const F& visit) {
  type.visit_integers(
      attrs, [](void* user, std::int64_t& number) { (*static_cast<const F*>(user))(number); },
      const_cast<F*>(&visit));
}

// `attrs` copied, with replacement(number) for each number that is_unknown_size.
template <class F>
std::shared_ptr<const void> with_sizes(const AttrsType& type, const void* attrs,
                                       const F& replacement) {
  std::shared_ptr<const void> copy = type.copy(attrs);
  if (!copy) return copy;
  // The copy is ours alone until it is returned.
  visit_attr_integers(type, const_cast<void*>(copy.get()), [&](std::int64_t& number) {
    if (is_unknown_size(number)) number = replacement(number);
  });
  return copy;
}

// What the unknown sizes are in one run.
class KnownSizes {
 public:
  // Room for `count` sizes of a graph, those that are taken down already among them.
  void set_count(int count) { values_.resize(static_cast<std::size_t>(count), -1); }
  // Takes down that `symbolic` is `concrete`. Throws InvalidArgumentError, naming `what`, when they
  // do not agree with each other or with what was taken down before, and when `concrete` has an
  // unknown size itself.
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
