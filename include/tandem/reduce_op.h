// How values of several replicas or ranks become one.
#pragma once

#include <cstdint>

namespace tandem {

enum class ReduceOp : std::uint8_t { kSum, kMean, kMin, kMax, kProduct };
constexpr ReduceOp last_value(ReduceOp) { return ReduceOp::kProduct; }

}  // namespace tandem
