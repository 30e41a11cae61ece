// Positions of elements in broadcast operands.
#pragma once

#include <array>
#include <cstdint>

#include "tandem/shape.h"

#ifdef __CUDACC__
#define TANDEM_ON_BOTH __host__ __device__
#else
#define TANDEM_ON_BOTH
#endif

namespace tandem::cuda {

// Maps the index of a result element to its positions in kOperands broadcast operands. Adjacent
// axes with compatible strides in all operands are merged.
template <int kOperands>
class Strides {
 public:
  struct Offsets {
    std::int64_t of[kOperands];
  };

  Strides(const Shape& result, const std::array<const Shape*, kOperands>& operands) {
    // From the last axis to the first: the strides of the operands; 0 if an operand repeats.
    std::int64_t step[kOperands];
    for (std::int64_t& each : step) each = 1;
    for (int axis = result.rank() - 1; axis >= 0; --axis) {
      const std::int64_t size = result.word(axis);
      if (size == 1) continue;
      std::int64_t stride[kOperands];
      for (int n = 0; n < kOperands; ++n) {
        const Shape& shape = *operands[static_cast<std::size_t>(n)];
        const int own = axis - (result.rank() - shape.rank());
        const bool repeats = own < 0 || shape.word(own) == 1;
        stride[n] = repeats ? 0 : step[n];
        if (!repeats) step[n] *= size;
      }
      bool joins = rank_ > 0;
      for (int n = 0; n < kOperands && joins; ++n)
        joins = stride[n] == strides_[rank_ - 1][n] * sizes_[rank_ - 1];
      if (joins) {
        sizes_[rank_ - 1] *= size;
        continue;
      }
      sizes_[rank_] = size;
      for (int n = 0; n < kOperands; ++n) strides_[rank_][n] = stride[n];
      ++rank_;
    }
    std::int64_t count = 1;
    for (int axis = 0; axis < rank_; ++axis) count *= sizes_[axis];
    small_ = count <= INT32_MAX;
  }

  TANDEM_ON_BOTH Offsets offsets(std::int64_t index) const {
    // 32-bit divisions are much faster.
    return small_ ? walk(static_cast<std::uint32_t>(index))
                  : walk(static_cast<std::uint64_t>(index));
  }

 private:
  template <class Index>
  TANDEM_ON_BOTH Offsets walk(Index index) const {
    Offsets result{};
    for (int axis = 0; axis < rank_; ++axis) {
      Index position = index;
      if (axis + 1 < rank_) {
        const Index size = static_cast<Index>(sizes_[axis]);
        position = index % size;
        index /= size;
      }
      for (int n = 0; n < kOperands; ++n)
        result.of[n] += static_cast<std::int64_t>(position) * strides_[axis][n];
    }
    return result;
  }

  int rank_ = 0;  // axes are stored from the last to the first
  bool small_ = true;
  std::int64_t sizes_[kMaxRank] = {};
  std::int64_t strides_[kMaxRank][kOperands] = {};
};

}  // namespace tandem::cuda
