// Adasum: Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"

namespace tandem::hvd {

// a * (1 - a.b / (2 |a|^2)) + b * (1 - a.b / (2 |b|^2)), over a. A vector of zeros adds nothing.
void adasum_pair(const Buffer& a, const Buffer& b, void* result);

// Combines the ranks' vectors `arrays`, each on its own, which lie in `whole`, in place: by pairs,
// then pairs of pairs; dot products in float64. Every rank gets the same bits. Waits.
// REQUIRES: a floating dtype, a power of two of ranks.
void adasum(Communicator& communicator, const Buffer& whole, std::span<const Buffer> arrays,
            std::vector<std::byte>& scratch);

}  // namespace tandem::hvd
