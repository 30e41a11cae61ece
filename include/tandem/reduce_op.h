// How values of several replicas or ranks become one.
#pragma once

#include <cstdint>

namespace tandem {

// kTreeSum: a sum whose additions form one fixed binary tree over the ranks in order, each rounded
// to the elements' type: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Groups of 2, 4, 8, ... ranks
// that are summed first, by the same tree, change no bit of it.
enum class ReduceOp : std::uint8_t { kSum, kMean, kMin, kMax, kProduct, kTreeSum };
constexpr ReduceOp last_value(ReduceOp) { return ReduceOp::kTreeSum; }

}  // namespace tandem
