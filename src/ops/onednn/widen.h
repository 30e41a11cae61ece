// Runs float32 computations on 16-bit tensors whose dtype oneDNN does not support directly.
#pragma once

#include <cstdint>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "op/dtype_switch.h"
#include "ops/onednn/onednn.h"

namespace tandem::onednn {

// The compute dtype for tensors of `dtype`: the same, or float32. Not for float64.
inline DType compute_dtype(DType dtype) { return computes(dtype) ? dtype : float32; }

template <class From, class To>
TANDEM_MULTIVERSION void convert_range(const From* from, To* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = To(static_cast<float>(from[i]));
}

template <class From, class To>
void convert(const From* from, To* to, std::int64_t count) {
  parallel_for(count, 16384, [&](std::int64_t begin, std::int64_t end) {
    convert_range(from + begin, to + begin, end - begin);
  });
}

// The elements of an input in its compute dtype, converted in scratch memory if necessary.
inline const void* widened(KernelContext& context, const TensorView& view) {
  if (computes(view.dtype)) return view.data;
  auto* copy =
      static_cast<float*>(context.scratch(static_cast<std::size_t>(view.size()) * sizeof(float)));
  if (view.dtype == float16)
    convert(view.as<const Half>(), copy, view.size());
  else
    convert(view.as<const BFloat16>(), copy, view.size());
  return copy;
}

// The memory in which to compute an output in its compute dtype: its own, or scratch memory, which
// finish() rounds to the output.
inline void* wide_output(KernelContext& context, const TensorView& view) {
  if (computes(view.dtype)) return view.data;
  return context.scratch(static_cast<std::size_t>(view.size()) * sizeof(float));
}
inline void finish(const TensorView& view, const void* computed) {
  if (computed == view.data) return;
  const auto* wide = static_cast<const float*>(computed);
  if (view.dtype == float16)
    convert(wide, view.as<Half>(), view.size());
  else
    convert(wide, view.as<BFloat16>(), view.size());
}

}  // namespace tandem::onednn
