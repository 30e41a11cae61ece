// Adasum: Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020.
#pragma once

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/process/scratch.h"

namespace tandem::hvd {

// Writes a * (1 - a.b / (2 |a|^2)) + b * (1 - a.b / (2 |b|^2)) to `result`. A vector of zeros
// contributes nothing.
void adasum_pair(const Buffer& a, const Buffer& b, void* result);

// Reduces each of the ranks' vectors `arrays`, which lie in `whole`, in place: pairs of ranks, then
// pairs of pairs. Dot products are computed in float64, and every rank gets the same bits. Works of
// one communicator must be waited for, or tested until they are done, in the order of the calls.
// REQUIRES: a floating dtype, a power of two of ranks.
std::shared_ptr<CollectiveWork> start_adasum(Communicator& communicator, const Buffer& whole,
                                             std::vector<Buffer> arrays, Scratch& scratch);

}  // namespace tandem::hvd
