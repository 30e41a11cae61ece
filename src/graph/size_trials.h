// Infers shapes with unknown sizes by calling shape rules with trial sizes.
//
// A shape rule is a function of numbers. Its result for unknown sizes is found by trials: first
// with distinct sizes and, if the rule throws for these, with sizes that equal each other or known
// sizes. The first accepted sizes are then varied, one by one or together with those that must
// agree.
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
    std::map<std::int64_t, std::int64_t> sizes;  // the trial value of each unknown size
    std::vector<TensorSpec> outputs;
  };

  SizeTrials(const SymbolicSizes& sizes, const OpDef& op, AttrsRef attrs,
             std::span<const TensorSpec* const> inputs);

  // The answers to all accepted trials; at least one. Throws what the rule throws if it accepts no
  // trial, and InvalidArgumentError if the number, ranks or dtypes of the results depend on sizes.
  const std::vector<Answer>& run();

  // The unknown sizes of the attributes, then those of the inputs. Attributes come first because
  // they were given explicitly.
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
  std::vector<std::int64_t> free_;   // the unknown sizes that do not depend on others
  std::vector<std::int64_t> seen_;   // all unknown sizes
  std::vector<std::int64_t> known_;  // the known sizes above 1
  std::vector<Members> groups_;      // sizes of one axis, which may have to agree
  std::vector<Answer> answers_;
  std::int64_t next_value_ = 0;
  std::exception_ptr refusal_;
};

}  // namespace tandem
