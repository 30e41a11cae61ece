// The draws of control flow in a graph.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/generator.h"

namespace tandem {

class BodyDraws final : public DrawSequence {
 public:
  BodyDraws(std::shared_ptr<DrawSequence> behind, std::vector<OfBody> bodies);

  const std::vector<OfBody>& bodies() const override { return bodies_; }
  void enter(std::uint64_t number, bool replay) override;
  void leave() override;
  void mark(DrawMark& mark) const override;
  void ran(std::size_t body, DrawMark* mark) override;
  void restore(std::size_t body, const DrawMark& mark) override;
  std::uint64_t total() const override;
  void reset() override;

 private:
  // Calls visit for the control flow of a body that draws, last to first.
  template <class F>
  void for_each_inside(std::size_t body, const F& visit) const;

  std::shared_ptr<DrawSequence> behind_;
  std::vector<OfBody> bodies_;
  Generator own_;
  std::optional<GeneratorScope> scope_;
  bool replay_ = false;
  std::uint64_t start_ = 0;
  std::uint64_t taken_ = 0;  // by this node, in the present run
};

}  // namespace tandem
