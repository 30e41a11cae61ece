// One pass over the elements of a dataset, as graphs and programs read it.
#pragma once

#include <vector>

#include "tandem/tensor.h"

namespace tandem {

// Not thread-safe.
class ElementPass {
 public:
  virtual ~ElementPass() = default;
  // Sets `element` to the next element's tensors, on any devices. Returns false at the end.
  virtual bool next(std::vector<Tensor>& element) = 0;
};

}  // namespace tandem
