// Kernels of index.cc on a GPU.
#include "ops/array/index.h"

#include "ops/array/array_ops.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/faults.cuh"
#include "ops/cuda/indices.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

constexpr const char* kNoIndex =
    "[{op}] expected indices of [0, {limit}), got {value} at position {position}";

__global__ void refuse_indices(Indices indices, std::int64_t count, Refusal refusal) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const std::int64_t index = indices[i];
  if (index < 0 || index >= refusal.limit) refusal.report(index, i);
}

// Gathers rows. Invalid indices give zeros.
template <class U>
__global__ void __launch_bounds__(kThreads)
    gather_elements(const U* params, Indices indices, U* y, std::int64_t rows, std::int64_t count,
                    std::int64_t inner, std::int64_t size) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const std::int64_t run = i / inner, index = indices[run % count];
  const bool there = index >= 0 && index < rows;
  y[i] = there ? params[(run / count * rows + index) * inner + i % inner] : U{};
}

void gather_kernel(KernelContext& c) {
  const TensorView &params = c.inputs[0], &indices = c.inputs[1], &y = c.outputs[0];
  const AxisSplit split(params.shape,
                        normalize_axis(*c.op, c.attrs<GatherAttrs>().axis, params.shape.rank()));
  const std::int64_t count = indices.size();
  if (count == 0) return;
  launch(c, {.blocks = blocks_for(count)}, refuse_indices, Indices(indices), count,
         Refusal(c, kNoIndex, split.size));
  if (y.size() == 0) return;
  // Copied in the widest words to which all runs of elements are aligned.
  const std::size_t run = static_cast<std::size_t>(split.inner) * size_of(params.dtype);
  std::size_t word = 16;
  while ((run | reinterpret_cast<std::uintptr_t>(params.data) |
          reinterpret_cast<std::uintptr_t>(y.data)) %
             word !=
         0)
    word /= 2;
  const auto inner = static_cast<std::int64_t>(run / word);
  const std::int64_t size = split.outer * count * inner;
  switch_bytes(word, [&]<class U>(Type<U>) {
    launch(c, {.blocks = blocks_for(size)}, gather_elements<U>, params.as<const U>(),
           Indices(indices), y.as<U>(), split.size, count, inner, size);
  });
}

constexpr const char* kNoPlace = "[{op}] expected an index of at most {limit}, got {value}";

// Writes [outer, added, inner] to [outer, rows, inner].
template <class U>
__global__ void __launch_bounds__(kThreads)
    assign_elements(U* to, const U* from, const std::int64_t* first, std::int64_t rows,
                    std::int64_t added, std::int64_t inner, std::int64_t size, Refusal refusal) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const std::int64_t begin = *first;
  if (begin < 0 || begin > rows - added) {
    if (i == 0) refusal.report(begin, 0);
    return;
  }
  const std::int64_t run = i / inner;
  to[(run / added * rows + begin + run % added) * inner + i % inner] = from[i];
}

void assign_slice_kernel(KernelContext& c) {
  const TensorView &variable = c.inputs[0], &part = c.inputs[1];
  const int axis = normalize_axis(*c.op, c.attrs<AssignSliceAttrs>().axis, variable.shape.rank());
  const AxisSplit to(variable.shape, axis), from(part.shape, axis);
  const std::int64_t size = part.size();
  if (size == 0) return;
  switch_bytes(size_of(part.dtype), [&]<class U>(Type<U>) {
    launch(c, {.blocks = blocks_for(size)}, assign_elements<U>, variable.as<U>(),
           part.as<const U>(), c.inputs[2].as<const std::int64_t>(), to.size, from.size, to.inner,
           size, Refusal(c, kNoPlace, to.size - from.size));
  });
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
  static constexpr CudaKernel kernels[] = {{"AssignSlice", on_gpu<assign_slice_kernel>},
                                           {"GatherV2", on_gpu<gather_kernel>},
                                           {"OneHot", on_gpu<one_hot_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
