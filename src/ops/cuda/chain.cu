// Kernels of element-wise operations, by themselves and in chains.
#include "ops/cuda/chain.cuh"

#include <vector>

#include "op/cuda_kernels.h"
#include "ops/cuda/faults.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/strides.h"

namespace tandem::cuda {

bool takes_chains(const BlockOperation& operation);  // batch_norm.cu

namespace {

// Elements per thread: 16 bytes of the 16-bit types, of int32 and of float64.
template <class C>
inline constexpr int kPack = 8;
template <>
inline constexpr int kPack<std::int64_t> = 4;
template <>
inline constexpr int kPack<double> = 2;

// `result` may be the memory of an input.
template <class C, int kInputs>
__global__ void __launch_bounds__(kThreads)
    chain_elements(Chain chain, void* result, DType dtype, std::int64_t size) {
  const MyPack<kPack<C>> mine(size);
  if (mine.count == 0) return;
  RawPack<C, kPack<C>> inputs[kInputs];
  load_inputs(chain, 0, mine.begin, mine.count, inputs);
  C x[kPack<C>];
  run_chain<true>(chain, inputs, nullptr, x);
  store_numbers(result, dtype, mine, x);
}

// Two inputs that broadcast. Neighbouring threads access neighbouring elements.
template <class C>
__global__ void __launch_bounds__(kThreads)
    chain_strided(Chain chain, Strides<2> strides, void* result, DType dtype, std::int64_t size) {
  constexpr int kCount = kPack<C>;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * (kThreads * kCount) + threadIdx.x;
  if (first >= size) return;
  Strides<2>::Offsets at[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    at[i] = strides.offsets(first + i * kThreads < size ? first + i * kThreads : first);
  RawPack<C, kCount> inputs[2];
#pragma unroll
  for (int n = 0; n < 2; ++n)
    on_input<C>(chain.input[n], [&]<class T>(Type<T>) {
      const T* const from = static_cast<const T*>(chain.input[n].data);
      Pack<T, kCount> pack;
#pragma unroll
      for (int i = 0; i < kCount; ++i) pack.at[i] = from[at[i].of[n]];
      std::memcpy(&inputs[n], &pack, sizeof(pack));
    });
  C x[kCount];
  run_chain<true>(chain, inputs, nullptr, x);
  on_elements(dtype, [&]<class T>(Type<T>) {
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      if (first + i * kThreads < size)
        static_cast<T*>(result)[first + i * kThreads] = element_of<T>(x[i]);
  });
}

template <class C>
Grid grid_for(std::int64_t size) {
  return {.blocks = blocks_for((size + kPack<C> - 1) / kPack<C>)};
}

// REQUIRES: the result has elements. In double and int64: at most 3 inputs.
template <class C>
void run_elements(KernelContext& c, const Chain& chain) {
  const TensorView& y = c.outputs[0];
  const auto run = [&](auto kernel) {
    launch(c, grid_for<C>(y.size()), kernel, chain, y.data, y.dtype, y.size());
  };
  // The number of inputs is a template argument, so that no registers are wasted.
  if constexpr (!std::is_same_v<C, float>)
    run(chain_elements<C, 3>);
  else if (chain.inputs <= 2)
    run(chain_elements<float, 2>);
  else if (chain.inputs <= 4)
    run(chain_elements<float, 4>);
  else
    run(chain_elements<float, kChainInputs>);
}

void fused_kernel(KernelContext& c) {
  if (c.outputs[0].size() == 0) return;
  run_elements<float>(c, chain_of(c.attrs<FusedElementwiseAttrs>().chain, nullptr,
                                  {c.inputs.begin(), c.inputs.end()}, false));
}

// --- operations by themselves ---

template <class Op>
__global__ void __launch_bounds__(kThreads)
    find_refused(const void* x, DType dtype, std::int64_t size, Refusal refusal) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const std::int64_t value = dtype == DType::kInt64   ? static_cast<const std::int64_t*>(x)[i]
                             : dtype == DType::kInt32 ? static_cast<const std::int32_t*>(x)[i]
                                                      : static_cast<const std::uint8_t*>(x)[i];
  if (Op::refuses(value)) refusal.report(value, i);
}

// Reports the integers that `Op` refuses as right operand.
template <class Op>
void refuse(const KernelContext& c, const TensorView& right) {
  if (right.size() > 0)
    launch(c, {.blocks = blocks_for(right.size())}, find_refused<Op>, right.data, right.dtype,
           right.size(),
           Refusal(c, "[{op}] expected {expected}, got {value} at element {position}", 0, 0,
                   Op::kExpected));
}
void refuse_right(const KernelContext& c) {
  const auto& [op, form] = c.op->chain;
  // The shape rule has checked a number on the right.
  if (form != ChainForm::kPlain && form != ChainForm::kNumberLeft) return;
  const TensorView& right = c.inputs[form == ChainForm::kPlain ? 1 : 0];
  if (op == ChainOp::kPow) refuse<Pow>(c, right);
  if (op == ChainOp::kDiv || op == ChainOp::kFloorDiv || op == ChainOp::kFloorMod)
    refuse<RefusesZero>(c, right);
}

template <class C>
void run_operation(KernelContext& c) {
  if constexpr (std::is_integral_v<C>) refuse_right(c);
  const TensorView& y = c.outputs[0];
  const std::int64_t size = y.size();
  if (size == 0) return;
  const Chain chain = chain_of(c);
  if (std::all_of(c.inputs.begin(), c.inputs.begin() + chain.inputs,
                  [&](const TensorView& x) { return x.size() == size || x.size() == 1; }))
    return run_elements<C>(c, chain);
  const Strides<2> strides(y.shape, {&c.inputs[0].shape, &c.inputs[1].shape});
  launch(c, grid_for<C>(size), chain_strided<C>, chain, strides, y.data, y.dtype, size);
}

void operation_kernel(KernelContext& c) {
  switch (c.inputs[0].dtype) {
    case DType::kFloat64: return run_operation<double>(c);
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUInt8: return run_operation<std::int64_t>(c);
    default: return run_operation<float>(c);
  }
}

}  // namespace

// Every operation with a role in chains has a kernel.
KernelList chain_kernels() {
  static const auto& kernels = *new const std::vector<CudaKernel>([] {
    std::vector<CudaKernel> list;
    for (const OpDef* op : all_ops())
      if (is_one_step(op->chain)) list.push_back({op->name, on_gpu<operation_kernel>});
    return list;
  }());
  return kernels;
}

void register_chains() {
  register_cuda_kernel(kFusedElementwise, on_gpu<fused_kernel>);
  register_cuda_chains({.takes = takes, .fits = fits, .tiles = takes_chains});
}

}  // namespace tandem::cuda
