// A sum over the parts of a batch that is the same whoever computed which part.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tandem/tensor.h"

namespace tandem {

// Adds one part after the other by a binary tree, as ReduceOp::kTreeSum adds up ranks:
// ((0 + 1) + (2 + 3)) + ... A part without a value leaves the others' sums as they are. Keeps at
// most one sum a level.
class TreeSum {
 public:
  // The next part's; undefined: it has none.
  void add(Tensor value);
  // Of all parts; undefined: none had a value. A sum that is zero is +0. Ends the sum.
  Tensor total();

 private:
  void fold_top();

  std::size_t parts_ = 0;
  std::vector<Tensor> sums_;  // one for each 1-bit of `parts_`, the largest first
};

// The sum of what lies at several places (replicas, or their parts), in their order: one value
// after the other; in the replica-invariant mode a TreeSum. Undefined for no values.
Tensor sum_of_places(std::span<const Tensor> values);

}  // namespace tandem
