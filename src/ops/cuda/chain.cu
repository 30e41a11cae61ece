// Kernels that run a chain of element-wise operations.
#include "ops/cuda/chain.cuh"

#include "op/cuda_kernels.h"

namespace tandem::cuda {

bool takes_chains(const BlockOperation& operation);  // batch_norm.cu

namespace {

constexpr int kPack = 8;  // 16 bytes of the 16-bit types

template <class T>
__device__ __forceinline__ void store_result(void* to, const MyPack<kPack>& mine,
                                             const float (&x)[kPack]) {
  Pack<T, kPack> pack;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    if constexpr (std::is_same_v<T, bool>)
      pack.at[i] = x[i] != 0.0f;
    else
      pack.at[i] = store_as<T>(x[i]);
  }
  store_pack(static_cast<T*>(to), mine.begin, mine.count, pack);
}

// `result` may be the memory of an input.
template <int kInputs>
__global__ void __launch_bounds__(kThreads)
    chain_elements(Chain chain, void* result, DType dtype, std::int64_t size) {
  const MyPack<kPack> mine(size);
  if (mine.count == 0) return;
  RawPack<kPack> inputs[kInputs];
  load_inputs(chain, 0, mine.begin, mine.count, inputs);
  float x[kPack];
  run_chain<true>(chain, inputs, nullptr, x);
  switch (dtype) {
    case DType::kFloat16: return store_result<__half>(result, mine, x);
    case DType::kBFloat16: return store_result<__nv_bfloat16>(result, mine, x);
    case DType::kBool: return store_result<bool>(result, mine, x);
    default: return store_result<float>(result, mine, x);
  }
}

void chain_kernel(KernelContext& c) {
  const TensorView& y = c.outputs[0];
  if (y.size() == 0) return;
  const Chain chain = chain_of(c.attrs<FusedElementwiseAttrs>().chain, nullptr,
                               {c.inputs.begin(), c.inputs.end()}, false);
  const auto run = [&](auto kernel) {
    launch(c, {.blocks = blocks_for((y.size() + kPack - 1) / kPack)}, kernel, chain, y.data,
           y.dtype, y.size());
  };
  // The number of inputs is a template argument, so that no registers are wasted.
  if (chain.inputs <= 2)
    run(chain_elements<2>);
  else if (chain.inputs <= 4)
    run(chain_elements<4>);
  else
    run(chain_elements<kChainInputs>);
}

}  // namespace

void register_chains() {
  register_cuda_kernel(kFusedElementwise, on_gpu<chain_kernel>);
  register_cuda_chains({.takes = takes, .fits = fits, .tiles = takes_chains});
}

}  // namespace tandem::cuda
