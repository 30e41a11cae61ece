// Runs element-wise kernels on ranges of their tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "op/op.h"

namespace tandem {

// The elements per tile: few enough to stay in the cache while several operations use them.
inline constexpr std::int64_t kTileElements = 2048;

// One operation of a fused operation, with its attributes.
struct MemberAttrs {
  const OpDef* op = nullptr;
  std::shared_ptr<const void> attrs;

  // A copy with attributes of its own.
  MemberAttrs own() const { return {op, attrs ? op->attrs().copy(attrs.get()) : nullptr}; }
};

// Elements [begin, begin + count) of a tensor, or the whole tensor if it is broadcast.
inline TensorView part_of(const TensorView& whole, std::int64_t begin, std::int64_t count) {
  if (whole.size() == 1) return whole;
  return {
      static_cast<std::byte*>(whole.data) + begin * static_cast<std::int64_t>(size_of(whole.dtype)),
      whole.dtype, Shape({count})};
}

inline void run_member(const MemberAttrs& member, KernelContext& context) {
  context.op = member.op;
  context.attrs_data = member.attrs.get();
  member.op->cpu_kernel(context);
}

}  // namespace tandem
