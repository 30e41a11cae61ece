// The keys and values of earlier positions, by layer.
#pragma once

#include <unordered_map>

#include "runtime/open_key_values.h"
#include "tandem/generation.h"

namespace tandem {

struct KeyValueCache::Impl final : KeyValuesNumber {
  // The state of a layer that attends to earlier positions, or counts them.
  struct OfLayer {
    Variable position;  // int64 scalar: the number of positions so far
    Variable keys, values;
  };
  // The operands of an attention of the new positions to all positions.
  struct Attended {
    Tensor keys, values;  // [batch, capacity, heads, depth]
    Tensor mask;          // [new positions, capacity]
  };

  explicit Impl(std::int64_t most) : capacity(most) {}

  // That of the call on this thread; null if there is none.
  static Impl* open() { return static_cast<Impl*>(open_key_values); }

  // The positions [added] of a call, int64. The layer counts them: once per call.
  Tensor next_positions(const LayerBase& layer, std::int64_t added);
  // Adds the keys and values of a call, [batch, positions, heads, depth].
  Attended add(const LayerBase& layer, const Tensor& keys, const Tensor& values);

  const std::int64_t capacity;
  std::unordered_map<const LayerBase*, OfLayer> layers;
};

}  // namespace tandem
