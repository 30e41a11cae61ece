// The numbers of random operations in the bodies of control flow.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/generator.h"

namespace tandem {

class BodyRandomSequence final : public RandomSequence {
 public:
  // `before`: that of the previous control flow in the graph.
  BodyRandomSequence(std::shared_ptr<RandomSequence> before, std::vector<BodyCount> bodies);

  const std::vector<BodyCount>& bodies() const override { return bodies_; }
  void enter(std::uint64_t offset, bool replay) override;
  void leave() override;
  void mark(RandomMark& mark) const override;
  void ran(std::size_t body, RandomMark* mark) override;
  void restore(std::size_t body, const RandomMark& mark) override;
  std::uint64_t total() const override;
  void reset() override;
  void took(std::uint64_t count) override;

 private:
  // Calls visit for the control flow of a body that uses random numbers, last to first.
  template <class F>
  void for_each_inside(std::size_t body, const F& visit) const;

  std::shared_ptr<RandomSequence> before_;
  std::vector<BodyCount> bodies_;
  Generator own_;
  std::optional<Scoped<Generator*>> scope_;
  bool replay_ = false;
  std::uint64_t start_ = 0;
  std::uint64_t taken_ = 0;  // by this node, in the current run
};

}  // namespace tandem
