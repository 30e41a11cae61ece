// Shape rules asked about trial sizes, where sizes are not known.
//
// A rule is a function of numbers. Its result for unknown sizes is found by trials: first with
// distinct sizes, and where the rule refuses these, with sizes that equal each other or known ones.
// The first sizes that the rule accepts are then varied, one by one or with those they agree with.
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "graph/symbolic_shape.h"

namespace tandem {

class SizeTrials {
 public:
  struct Answer {
    std::map<std::int64_t, std::int64_t> sizes;  // of all unknown sizes that were needed
    std::vector<TensorSpec> outputs;
  };

  SizeTrials(const SymbolicSizes& sizes, const OpDef& op, AttrsRef attrs,
             std::span<const TensorSpec* const> inputs);

  // The answers to all trials that suit the rule; at least one. Throws what the rule throws when
  // none does, and InvalidArgumentError when the results' number, ranks or dtypes depend on the
  // sizes.
  const std::vector<Answer>& run();

  // The unknown sizes of the attributes and inputs, in this order. Attributes come first: what was
  // written as an attribute was meant.
  const std::vector<std::int64_t>& sizes() const { return mentioned_; }

 private:
  using Values = std::vector<std::int64_t>;  // of free_, in order
  using Members = std::vector<std::size_t>;  // indices of free_

  void note(AttrsRef attrs, std::span<const TensorSpec* const> inputs, bool outer);
  void note_size(std::int64_t size, bool outer);
  bool ask(const Values& values);
  Values uniform(std::int64_t value) const { return Values(free_.size(), value); }
  void ask_about_distinct_sizes();
  std::optional<Values> find_start();
  bool move(Values& values, const Members& members);
  void vary_from(Values values);
  void vary_pinned();
  void check_answers() const;

  const SymbolicSizes& sizes_;
  const OpDef& op_;
  AttrsRef attrs_;
  std::span<const TensorSpec* const> inputs_;
  std::vector<std::int64_t> mentioned_;
  std::vector<std::int64_t> free_;   // those that follow from no others
  std::vector<std::int64_t> seen_;   // mentioned anywhere
  std::vector<std::int64_t> known_;  // the numbers above 1 beside them
  std::vector<Members> groups_;      // those of one axis, which may have to agree
  std::vector<Answer> answers_;
  std::int64_t next_value_ = 0;
  std::exception_ptr refusal_;
};

}  // namespace tandem
