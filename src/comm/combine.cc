#include "comm/combine.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr std::int64_t kBlock = 1024;  // elements that fit into the L1 cache

// Integers are summed in 64 bits, so that means of small integer types are exact; larger sums wrap
// around.
template <class T>
using Accumulator =
    std::conditional_t<std::is_integral_v<T>, std::int64_t,
                       std::conditional_t<std::is_same_v<T, double>, double, float>>;

template <class A>
A add(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return a + b;
}
template <class A>
A multiply(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  else
    return a * b;
}
// Minimum and maximum, which propagate NaN.
template <class A>
A least(A a, A b) {
  return b < a || b != b ? b : a;
}
template <class A>
A greatest(A a, A b) {
  return a < b || b != b ? b : a;
}

template <class T>
TANDEM_MULTIVERSION void load(Accumulator<T>* to, const T* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<Accumulator<T>>(from[i]);
}

template <class T>
TANDEM_MULTIVERSION void store(T* to, const Accumulator<T>* from, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<T>(from[i]);
}

template <class T>
TANDEM_MULTIVERSION void fold(Accumulator<T>* sum, const T* from, std::int64_t count, ReduceOp op) {
  using A = Accumulator<T>;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kTreeSum:
    case ReduceOp::kMean:
      for (std::int64_t i = 0; i < count; ++i) sum[i] = add(sum[i], static_cast<A>(from[i]));
      break;
    case ReduceOp::kMin:
      for (std::int64_t i = 0; i < count; ++i) sum[i] = least(sum[i], static_cast<A>(from[i]));
      break;
    case ReduceOp::kMax:
      for (std::int64_t i = 0; i < count; ++i) sum[i] = greatest(sum[i], static_cast<A>(from[i]));
      break;
    case ReduceOp::kProduct:
      for (std::int64_t i = 0; i < count; ++i) sum[i] = multiply(sum[i], static_cast<A>(from[i]));
      break;
  }
}

// Two float32 buffers, by far the most frequent case, in one pass without staging. `factor` is 1,
// or 0.5 for the mean; both are exact. The inputs and outputs may be equal but must not overlap
// otherwise, which permits `ivdep`.
TANDEM_MULTIVERSION void sum_pair(const float* a, const float* b, float* to, float* too,
                                  std::int64_t count, float factor) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const float sum = (a[i] + b[i]) * factor;
    to[i] = sum;
    too[i] = sum;
  }
}

template <class T>
void combine_range(std::span<const void* const> inputs, std::span<void* const> outputs,
                   std::int64_t begin, std::int64_t end, ReduceOp op, CombineOrder order) {
  using A = Accumulator<T>;
  alignas(64) A sum[kBlock], half[kBlock];
  const std::size_t ranks = inputs.size();
  const auto part = [&](std::size_t rank, std::int64_t at) {
    return static_cast<const T*>(inputs[rank]) + at;
  };
  const std::size_t first = order == CombineOrder::kHalves && ranks > 2 ? ranks / 2 : ranks;
  for (std::int64_t at = begin; at < end; at += kBlock) {
    const std::int64_t count = std::min(kBlock, end - at);
    load<T>(sum, part(0, at), count);
    for (std::size_t rank = 1; rank < first; ++rank) fold<T>(sum, part(rank, at), count, op);
    if (first < ranks) {
      load<T>(half, part(first, at), count);
      for (std::size_t rank = first + 1; rank < ranks; ++rank)
        fold<T>(half, part(rank, at), count, op);
      fold<A>(sum, half, count, op);
    }
    if (op == ReduceOp::kMean)
      for (std::int64_t i = 0; i < count; ++i)
        sum[i] = static_cast<A>(sum[i] / static_cast<A>(ranks));
    for (void* output : outputs) store<T>(static_cast<T*>(output) + at, sum, count);
  }
}

template <class T>
TANDEM_MULTIVERSION void add_to(T* sum, const T* from, std::int64_t count) {
  using A = Accumulator<T>;
  for (std::int64_t i = 0; i < count; ++i)
    sum[i] = static_cast<T>(add(static_cast<A>(sum[i]), static_cast<A>(from[i])));
}

// ReduceOp::kTreeSum. The stack has one partial sum per 1-bit in the number of ranks added so far.
template <class T>
void tree_range(std::span<const void* const> inputs, std::span<void* const> outputs,
                std::int64_t begin, std::int64_t end) {
  constexpr std::int64_t kTreeBlock = 256;
  constexpr int kMostDepth = 32;  // for up to 2^32 ranks
  alignas(64) T sums[kMostDepth][kTreeBlock];
  for (std::int64_t at = begin; at < end; at += kTreeBlock) {
    const std::int64_t count = std::min(kTreeBlock, end - at);
    int depth = 0;
    const auto fold_top = [&] {
      --depth;
      add_to<T>(sums[depth - 1], sums[depth], count);
    };
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      const T* from = static_cast<const T*>(inputs[rank]) + at;
      std::memcpy(sums[depth++], from, static_cast<std::size_t>(count) * sizeof(T));
      for (std::size_t pairs = rank; pairs % 2 == 1; pairs /= 2) fold_top();
    }
    while (depth > 1) fold_top();
    for (void* output : outputs)
      std::memcpy(static_cast<T*>(output) + at, sums[0],
                  static_cast<std::size_t>(count) * sizeof(T));
  }
}

template <class T>
void combine_typed(std::span<const void* const> inputs, std::span<void* const> outputs,
                   std::int64_t count, ReduceOp op, CombineOrder order) {
  parallel_for(count, 32 * kBlock, [&](std::int64_t begin, std::int64_t end) {
    if constexpr (std::is_same_v<T, float>) {
      if (inputs.size() == 2 && (outputs.size() == 1 || outputs.size() == 2) &&
          (op == ReduceOp::kSum || op == ReduceOp::kTreeSum || op == ReduceOp::kMean)) {
        sum_pair(static_cast<const float*>(inputs[0]) + begin,
                 static_cast<const float*>(inputs[1]) + begin,
                 static_cast<float*>(outputs.front()) + begin,
                 static_cast<float*>(outputs.back()) + begin, end - begin,
                 op == ReduceOp::kMean ? 0.5f : 1.0f);
        return;
      }
    }
    if (op == ReduceOp::kTreeSum)
      tree_range<T>(inputs, outputs, begin, end);
    else
      combine_range<T>(inputs, outputs, begin, end, op, order);
  });
}

template <class T>
TANDEM_MULTIVERSION void divide_typed(T* data, std::int64_t count, int by) {
  using A = Accumulator<T>;
  for (std::int64_t i = 0; i < count; ++i)
    data[i] = static_cast<T>(static_cast<A>(static_cast<A>(data[i]) / static_cast<A>(by)));
}

}  // namespace

void combine(std::span<const void* const> inputs, std::span<void* const> outputs,
             std::int64_t count, DType dtype, ReduceOp op, CombineOrder order) {
  if (inputs.size() == 1 && outputs.size() == 1 && inputs.front() == outputs.front()) return;
  switch (dtype) {
    case DType::kFloat32: return combine_typed<float>(inputs, outputs, count, op, order);
    case DType::kFloat64: return combine_typed<double>(inputs, outputs, count, op, order);
    case DType::kFloat16: return combine_typed<Half>(inputs, outputs, count, op, order);
    case DType::kBFloat16: return combine_typed<BFloat16>(inputs, outputs, count, op, order);
    case DType::kInt32: return combine_typed<std::int32_t>(inputs, outputs, count, op, order);
    case DType::kInt64: return combine_typed<std::int64_t>(inputs, outputs, count, op, order);
    case DType::kUInt8: return combine_typed<std::uint8_t>(inputs, outputs, count, op, order);
    default:
      fail<InvalidArgumentError>("[all_reduce] {} elements cannot be reduced; cast them first",
                                 name_of(dtype));
  }
}

void divide(void* data, std::int64_t count, DType dtype, int by) {
  switch (dtype) {
    case DType::kFloat32: return divide_typed(static_cast<float*>(data), count, by);
    case DType::kFloat64: return divide_typed(static_cast<double*>(data), count, by);
    case DType::kFloat16: return divide_typed(static_cast<Half*>(data), count, by);
    case DType::kBFloat16: return divide_typed(static_cast<BFloat16*>(data), count, by);
    case DType::kInt32: return divide_typed(static_cast<std::int32_t*>(data), count, by);
    case DType::kInt64: return divide_typed(static_cast<std::int64_t*>(data), count, by);
    case DType::kUInt8: return divide_typed(static_cast<std::uint8_t*>(data), count, by);
    default: break;
  }
}

}  // namespace tandem
