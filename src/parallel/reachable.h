// Finds the leaves that a recorded tensor depends on.
#pragma once

#include <unordered_set>

#include "op/record.h"

namespace tandem::parallel {

// Adds the leaves that `tensor` was computed from to `leaves`.
void add_leaves_of(const Tensor& tensor, std::unordered_set<const Leaf*>& leaves);

}  // namespace tandem::parallel
