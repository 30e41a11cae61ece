// The GPU kernel of all_finite.cc.
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/tensor_table.cuh"

namespace tandem::cuda {
namespace {

// Tensors that one launch reads, passed as a kernel argument.
template <class T>
struct Tensors {
  // As many as fit into the 4096 bytes of a launch's arguments.
  static constexpr int kMost = 3840 / (sizeof(void*) + sizeof(std::int64_t) + sizeof(unsigned));
  const T* memory[kMost];
  std::int64_t size[kMost];
  unsigned end_block[kMost];  // the block after each tensor's last one
  int count;
};

constexpr int kPacksEach = 8;  // per thread

template <class T>
__global__ void __launch_bounds__(kThreads) find_infinite(Tensors<T> all, bool* finite) {
  using C = ComputeOf<T>;
  constexpr int kCount = kPackOf<T>;
  const TableChunk mine(all.end_block, all.count);
  const T* memory = all.memory[mine.entry];
  const std::int64_t size = all.size[mine.entry];
  bool good = true;
#pragma unroll
  for (int k = 0; k < kPacksEach; ++k) {
    const std::int64_t pack = (std::int64_t{mine.chunk} * kPacksEach + k) * kThreads + threadIdx.x;
    const std::int64_t begin = pack * kCount, left = size - begin;
    if (left <= 0) break;
    const int count = static_cast<int>(left < kCount ? left : kCount);
    const auto elements = load_pack<kCount>(memory, begin, count);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const C value = load_as(elements.at[i]);
      good = good && value - value == C(0);  // not of an infinity or a NaN
    }
  }
  if (!good) *finite = false;  // all threads that write, write the same
}

template <class T>
void check_tensors(KernelContext& c, DType dtype) {
  constexpr std::int64_t kEach = kPackOf<T> * kPacksEach;
  Tensors<T> some{};
  unsigned blocks = 0;
  const auto launch_some = [&] {
    if (some.count > 0)
      launch(c, {.blocks = blocks}, find_infinite<T>, some, c.outputs[0].as<bool>());
    some.count = 0;
    blocks = 0;
  };
  for (const TensorView& tensor : c.inputs) {
    if (tensor.dtype != dtype || tensor.size() == 0) continue;
    some.memory[some.count] = tensor.as<const T>();
    some.size[some.count] = tensor.size();
    blocks += blocks_for((tensor.size() + kEach - 1) / kEach);
    some.end_block[some.count] = blocks;
    if (++some.count == some.kMost) launch_some();
  }
  launch_some();
}

void all_finite_kernel(KernelContext& c) {
  check(cudaMemsetAsync(c.outputs[0].data, 1, sizeof(bool), stream_of(c)), "cudaMemsetAsync");
  for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16})
    switch_floating(dtype, [&]<class T>(Type<T>) { check_tensors<T>(c, dtype); });
}

}  // namespace

KernelList all_finite_kernels() {
  static constexpr CudaKernel kernels[] = {{"AllFinite", on_gpu<all_finite_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
