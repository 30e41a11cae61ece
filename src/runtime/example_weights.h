// How the ranks' losses add up to the loss of the job.
#pragma once

namespace tandem {

// Whether the calling thread runs the forward pass of a model whose ranks have losses that are
// means over their own examples, and whose gradients are averaged with each rank weighted by its
// number of examples. If not, the job's loss is the sum of the ranks' losses, or a multiple of it.
extern constinit thread_local bool weighted_by_examples;

class ExampleWeightsScope {
 public:
  explicit ExampleWeightsScope(bool weighted) : previous_(weighted_by_examples) {
    weighted_by_examples = weighted;
  }
  ~ExampleWeightsScope() { weighted_by_examples = previous_; }
  ExampleWeightsScope(const ExampleWeightsScope&) = delete;
  ExampleWeightsScope& operator=(const ExampleWeightsScope&) = delete;

 private:
  bool previous_;
};

}  // namespace tandem
