// The trace of a function, for code that runs it elsewhere.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/trace.h"

namespace tandem {

// Immutable once the function is traced.
struct TracedFunction {
  std::string name;
  RefPtr<GraphImpl> graph;
  std::vector<TracedElement> elements;  // which the function takes from iterators in each run
  std::vector<Node::Input> feeds;       // the arguments, then the tensors of the elements
  std::vector<Node::Input> fetches;     // the tensors of the result
  std::uint64_t random_count = 0;       // random operations per run
  std::shared_ptr<const RandomSequence>
      last_random;                     // the last control flow that uses random numbers
  std::shared_ptr<const void> result;  // FunctionCall::result
};

}  // namespace tandem
