// Shared by the kernels of Pad.
#pragma once

#include <cstdint>

#include "op/fields.h"
#include "tandem/shape.h"

namespace tandem {

struct PadAttrs {
  Dims before;
  Dims after;
  double value = 0.0;
  TANDEM_FIELDS(before, after, value)
};

// Attributes of the gradient of a slice, which pads the slice's gradient with zeros. They hold the
// shape of the whole tensor: if its sizes are unknown, so is the number of zeros after the slice.
struct SliceGradAttrs : PadAttrs {
  Shape shape;
  TANDEM_FIELDS(before, shape)
};

// The axes of a padded copy, at least one, of sizes from[axis] and to[axis]. Axes without padding
// are merged into the axis before them.
struct PadAxes {
  int rank = 0;
  std::int64_t from[kMaxRank] = {}, before[kMaxRank] = {}, to[kMaxRank] = {};

  PadAxes(const Shape& input, const Shape& output, const Dims& counts_before) {
    for (int axis = 0; axis < input.rank(); ++axis) {
      if (rank > 0 && input.word(axis) == output.word(axis)) {
        from[rank - 1] *= input.word(axis);
        before[rank - 1] *= input.word(axis);
        to[rank - 1] *= input.word(axis);
        continue;
      }
      from[rank] = input.word(axis);
      before[rank] = counts_before[axis];
      to[rank] = output.word(axis);
      ++rank;
    }
    if (rank == 0) {
      from[0] = to[0] = 1;
      rank = 1;
    }
  }

  // The input element at output position `index` of the first `axes` axes; -1 in the padding.
  template <class Index>
  constexpr std::int64_t source_of(Index index, int axes) const {
    std::int64_t source = 0, stride = 1;
    bool inside = true;
    for (int axis = axes - 1; axis >= 0; --axis) {
      const Index size = static_cast<Index>(to[axis]);
      const std::int64_t at = static_cast<std::int64_t>(index % size) - before[axis];
      index /= size;
      inside = inside && at >= 0 && at < from[axis];
      source += at * stride;
      stride *= from[axis];
    }
    return inside ? source : -1;
  }
};

}  // namespace tandem
