// Adasum: Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/process/scratch.h"

namespace tandem::hvd {

// a * (1 - a.b / (2 |a|^2)) + b * (1 - a.b / (2 |b|^2)), over a. A vector of zeros adds nothing.
void adasum_pair(const Buffer& a, const Buffer& b, void* result);

// Combines the ranks' vectors `arrays`, each on its own, which lie in `whole`, in place: by pairs,
// then pairs of pairs; dot products in float64. Every rank gets the same bits. Works of a
// communicator have to be waited for, or tested until they are done, in the order of the calls.
// REQUIRES: a floating dtype, a power of two of ranks.
std::shared_ptr<Work> start_adasum(Communicator& communicator, const Buffer& whole,
                                   std::vector<Buffer> arrays, Scratch& scratch);

}  // namespace tandem::hvd
