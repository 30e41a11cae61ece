/// @file
/// Reductions over replicas or ranks.
#pragma once

#include <cstdint>

namespace tandem {

/// How values of several replicas or ranks are reduced. As tf.distribute.ReduceOp.
enum class ReduceOp : std::uint8_t {
  kSum,      ///< the sum
  kMean,     ///< the sum divided by the number of values
  kMin,      ///< the minimum
  kMax,      ///< the maximum
  kProduct,  ///< the product
  /// A sum over one fixed binary tree of the ranks in order, each addition rounded to the dtype:
  /// ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)). Summing groups of 2, 4, 8, ... ranks first, by the
  /// same tree, gives the same bits.
  kTreeSum,
  SUM = kSum,          ///< as kSum
  MEAN = kMean,        ///< as kMean
  AVG = kMean,         ///< as kMean
  MIN = kMin,          ///< as kMin
  MAX = kMax,          ///< as kMax
  PRODUCT = kProduct,  ///< as kProduct
  Sum = kSum,          ///< as kSum
  Mean = kMean,        ///< as kMean
  Min = kMin,          ///< as kMin
  Max = kMax,          ///< as kMax
  Product = kProduct,  ///< as kProduct
};
/// The last enumerator, for range checks.
constexpr ReduceOp last_value(ReduceOp) { return ReduceOp::kTreeSum; }

}  // namespace tandem
