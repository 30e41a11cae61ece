// The arithmetic of collectives between the GPUs of a process (comm/device_arithmetic.h). The
// kernels read the elements of all ranks directly and write the result to all of its destinations.
#include "comm/device_arithmetic.h"
#include "ops/cuda/elements.cuh"
#include "ops/formula/functions.h"

namespace tandem::cuda {
namespace {

constexpr int kMostRanks = 64;

template <class T>
struct RankInputs {
  const T* in[kMostRanks];
  T* out[kMostRanks];
  int inputs, outputs;
  int half;  // inputs from here on are summed separately; equals `inputs` if there is one sum
  ReduceOp op;
};

// The type of sums, the same as in the host's combine().
template <class T>
using SumOf = std::conditional_t<std::is_integral_v<T>, std::int64_t, ComputeOf<T>>;

// As in the host's combine(), the first of two equal values is kept, and NaN always wins.
template <class C>
__device__ __forceinline__ C folded(ReduceOp op, C sum, C value) {
  switch (op) {
    case ReduceOp::kMin: return value < sum || value != value ? value : sum;
    case ReduceOp::kMax: return sum < value || value != value ? value : sum;
    case ReduceOp::kProduct: return Mul()(sum, value);
    default: return Add()(sum, value);
  }
}

// Combines a thread's elements of the inputs [begin, end).
template <int kCount, class T>
struct Sum {
  SumOf<T> at[kCount];
  __device__ __forceinline__ Sum(const RankInputs<T>& ranks, const MyPack<kCount>& mine, int begin,
                                 int end) {
    const auto first = load_pack<kCount>(ranks.in[begin], mine.begin, mine.count);
#pragma unroll
    for (int i = 0; i < kCount; ++i) at[i] = load_as(first.at[i]);
    for (int rank = begin + 1; rank < end; ++rank) {
      const auto next = load_pack<kCount>(ranks.in[rank], mine.begin, mine.count);
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        at[i] = folded<SumOf<T>>(ranks.op, at[i], load_as(next.at[i]));
    }
  }
};

// ReduceOp::kTreeSum, as the host's combine() does it.
template <int kCount, class T>
__device__ __forceinline__ Pack<T, kCount> tree_sum(const RankInputs<T>& ranks,
                                                    const MyPack<kCount>& mine) {
  constexpr int kMostDepth = 7;  // of kMostRanks
  Pack<T, kCount> sums[kMostDepth];
  int depth = 0;
  const auto fold_top = [&] {
    --depth;
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      sums[depth - 1].at[i] = store_as<T>(folded<SumOf<T>>(
          ReduceOp::kSum, load_as(sums[depth - 1].at[i]), load_as(sums[depth].at[i])));
  };
  for (int rank = 0; rank < ranks.inputs; ++rank) {
    sums[depth++] = load_pack<kCount>(ranks.in[rank], mine.begin, mine.count);
    for (int pairs = rank; pairs % 2 == 1; pairs /= 2) fold_top();
  }
  while (depth > 1) fold_top();
  return sums[0];
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    combine_by_tree(RankInputs<T> ranks, std::int64_t size) {
  constexpr int kCount = kPackOf<T>;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  const Pack<T, kCount> out = tree_sum<kCount>(ranks, mine);
  for (int n = 0; n < ranks.outputs; ++n) store_pack(ranks.out[n], mine.begin, mine.count, out);
}

template <class T>
__global__ void __launch_bounds__(kThreads) combine_ranks(RankInputs<T> ranks, std::int64_t size) {
  using C = SumOf<T>;
  constexpr int kCount = kPackOf<T>;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  Sum<kCount, T> sum(ranks, mine, 0, ranks.half);
  if (ranks.half < ranks.inputs) {
    const Sum<kCount, T> other(ranks, mine, ranks.half, ranks.inputs);
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum.at[i] = folded<C>(ranks.op, sum.at[i], other.at[i]);
  }
  Pack<T, kCount> out;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    out.at[i] = store_as<T>(ranks.op == ReduceOp::kMean
                                ? static_cast<C>(sum.at[i] / static_cast<C>(ranks.inputs))
                                : sum.at[i]);
  for (int n = 0; n < ranks.outputs; ++n) store_pack(ranks.out[n], mine.begin, mine.count, out);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    divide_elements(T* data, ComputeOf<T> by, std::int64_t size) {
  constexpr int kCount = kPackOf<T>;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  auto pack = load_pack<kCount>(data, mine.begin, mine.count);
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    pack.at[i] = store_as<T>(static_cast<ComputeOf<T>>(load_as(pack.at[i]) / by));
  store_pack(data, mine.begin, mine.count, pack);
}

// The context of a launch outside any operation.
KernelContext context_on(NativeGpu& gpu) {
  KernelContext c;
  c.native_stream = gpu.stream().native_handle();
  c.workspace = &gpu;
  make_current(gpu.ordinal());
  return c;
}

template <class T>
unsigned packs_in(std::int64_t size) {
  return blocks_for((size + kPackOf<T> - 1) / kPackOf<T>);
}

void combine(NativeGpu& gpu, std::span<const void* const> inputs, std::span<void* const> outputs,
             std::int64_t count, DType dtype, ReduceOp op, CombineOrder order) {
  if (inputs.size() > kMostRanks)
    throw InvalidArgumentError("[all_reduce] expected at most 64 replicas on GPUs of a process");
  const KernelContext c = context_on(gpu);
  switch_numeric(dtype, [&]<class T>(Type<T>) {
    RankInputs<T> ranks{};
    ranks.inputs = static_cast<int>(inputs.size());
    ranks.outputs = static_cast<int>(outputs.size());
    ranks.half =
        order == CombineOrder::kHalves && ranks.inputs > 2 ? ranks.inputs / 2 : ranks.inputs;
    ranks.op = op;
    for (std::size_t i = 0; i < inputs.size(); ++i) ranks.in[i] = static_cast<const T*>(inputs[i]);
    for (std::size_t i = 0; i < outputs.size(); ++i) ranks.out[i] = static_cast<T*>(outputs[i]);
    launch(c, {.blocks = packs_in<T>(count)},
           op == ReduceOp::kTreeSum ? combine_by_tree<T> : combine_ranks<T>, ranks, count);
  });
}

void divide(NativeGpu& gpu, const Buffer& part, int by) {
  const KernelContext c = context_on(gpu);
  switch_numeric(part.dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = packs_in<T>(part.count)}, divide_elements<T>, static_cast<T*>(part.data),
           static_cast<ComputeOf<T>>(by), part.count);
  });
}

}  // namespace

NativeArithmetic native_arithmetic() { return {.combine = combine, .divide = divide}; }

}  // namespace tandem::cuda
