// A sum over the parts of a batch whose rounding does not depend on which replica has which part.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tandem/tensor.h"

namespace tandem {

// Adds the values of parts 0, 1, 2, ... in a binary tree, as ReduceOp::kTreeSum adds the values of
// ranks: ((0 + 1) + (2 + 3)) + ... A part without a value leaves the sums of the others unchanged.
// Keeps at most one sum per level of the tree.
class TreeSum {
 public:
  // Adds the next part's value; undefined if it has none.
  void add(Tensor value);
  // The sum over all parts; undefined if none had a value. A zero sum is +0. Begins a new sum.
  Tensor total();

 private:
  void fold_top();

  std::size_t parts_ = 0;
  std::vector<Tensor> sums_;  // one per 1-bit of `parts_`, the largest first
};

// The sum of the values of several replicas (or of their parts), in their order. In the
// replica-invariant mode it is a TreeSum. Undefined if there are no values.
Tensor sum_of_copies(std::span<const Tensor> values);

}  // namespace tandem
