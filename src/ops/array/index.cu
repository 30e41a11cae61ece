// Kernels of index.cc on a GPU.
#include "ops/array/index.h"

#include "ops/array/array_ops.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/faults.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

constexpr const char* kNoIndex =
    "[{op}] expected indices of [0, {limit}), got {value} at position {position}";

struct Indices {
  const void* data;
  bool wide;  // int64, else int32
  explicit Indices(const TensorView& view) : data(view.data), wide(view.dtype == int64) {}
  __device__ std::int64_t operator[](std::int64_t i) const {
    return wide ? static_cast<const std::int64_t*>(data)[i]
                : static_cast<const std::int32_t*>(data)[i];
  }
};

__global__ void refuse_indices(Indices indices, std::int64_t count, Refusal refusal) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t index = indices[i];
  if (index < 0 || index >= refusal.limit) refusal.tell(index, i);
}

// Zeros in the place of what is not there.
template <class U>
__global__ void __launch_bounds__(kThreads)
    gather_elements(const U* params, Indices indices, U* y, std::int64_t rows, std::int64_t count,
                    std::int64_t inner, std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const std::int64_t run = i / inner, index = indices[run % count];
  const bool there = index >= 0 && index < rows;
  y[i] = there ? params[(run / count * rows + index) * inner + i % inner] : U{0};
}

template <class U>
void gather_typed(KernelContext& c, const AxisSplit& split) {
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  launch(c, {.blocks = blocks_for(size)}, gather_elements<U>, c.inputs[0].as<const U>(),
         Indices(c.inputs[1]), c.outputs[0].as<U>(), split.size, c.inputs[1].size(), split.inner,
         size);
}

void gather_kernel(KernelContext& c) {
  const Shape& params = c.inputs[0].shape;
  const AxisSplit split(params, normalize_axis(*c.op, c.attrs<GatherAttrs>().axis, params.rank()));
  const std::int64_t count = c.inputs[1].size();
  if (count == 0) return;
  launch(c, {.blocks = blocks_for(count)}, refuse_indices, Indices(c.inputs[1]), count,
         Refusal(c, kNoIndex, split.size));
  switch (size_of(c.inputs[0].dtype)) {
    case 1: return gather_typed<std::uint8_t>(c, split);
    case 2: return gather_typed<std::uint16_t>(c, split);
    case 4: return gather_typed<std::uint32_t>(c, split);
    default: return gather_typed<std::uint64_t>(c, split);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    one_hot_elements(Indices indices, T* y, std::int64_t depth, std::int64_t size, T on, T off) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < size) y[i] = indices[i / depth] == i % depth ? on : off;
}

void one_hot_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<OneHotAttrs>();
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  switch_any(attrs.dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = blocks_for(size)}, one_hot_elements<T>, Indices(c.inputs[0]),
           c.outputs[0].as<T>(), attrs.depth, size, static_cast<T>(attrs.on),
           static_cast<T>(attrs.off));
  });
}

}  // namespace

KernelList index_kernels() {
  static constexpr CudaKernel kernels[] = {{"GatherV2", on_gpu<gather_kernel>},
                                           {"OneHot", on_gpu<one_hot_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
