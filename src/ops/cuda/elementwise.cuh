// Element-wise kernels with one to three operands. An operation is a type whose objects are called
// on the GPU with elements in their compute type.
#pragma once

#include <utility>

#include "ops/cuda/elements.cuh"
#include "ops/cuda/strides.h"

namespace tandem::cuda {

template <class In, class Out, class Op>
__global__ void __launch_bounds__(kThreads)
    unary_elements(const In* x, Out* y, std::int64_t size, Op op) {
  constexpr int kCount = kPackOf<In, Out>;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  const auto in = load_pack<kCount>(x, mine.begin, mine.count);
  Pack<Out, kCount> out;
#pragma unroll
  for (int i = 0; i < kCount; ++i) out.at[i] = store_as<Out>(op(load_as(in.at[i])));
  store_pack(y, mine.begin, mine.count, out);
}

// y[i] = op(x[i]). In place where `y` is `x`.
template <class Out, class In, class Op>
void run_unary(KernelContext& c, const In* x, Out* y, std::int64_t size, const Op& op) {
  if (size == 0) return;
  constexpr int kCount = kPackOf<In, Out>;
  launch(c, {.blocks = blocks_for((size + kCount - 1) / kCount)}, unary_elements<In, Out, Op>, x, y,
         size, op);
}

// Result: the result's type; void for the operand's type.
template <class Op, class T, class Result = void>
void unary_on(KernelContext& c, const Op& op = {}) {
  using Out = std::conditional_t<std::is_void_v<Result>, T, Result>;
  run_unary(c, c.inputs[0].as<const T>(), c.outputs[0].as<Out>(), c.outputs[0].size(), op);
}

template <class In, class Out, class Op>
__global__ void __launch_bounds__(kThreads)
    binary_elements(const In* a, const In* b, Out* y, std::int64_t size, Op op) {
  constexpr int kCount = kPackOf<In, Out>;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  const auto left = load_pack<kCount>(a, mine.begin, mine.count);
  const auto right = load_pack<kCount>(b, mine.begin, mine.count);
  Pack<Out, kCount> out;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    out.at[i] = store_as<Out>(op(load_as(left.at[i]), load_as(right.at[i])));
  store_pack(y, mine.begin, mine.count, out);
}

template <class In, class Out, class Op>
__global__ void __launch_bounds__(kThreads)
    binary_strided(const In* a, const In* b, Out* y, Strides<2> strides, std::int64_t size, Op op) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= size) return;
  const auto at = strides.offsets(i);
  y[i] = store_as<Out>(op(load_as(a[at.of[0]]), load_as(b[at.of[1]])));
}

// Broadcasts the context's two inputs. Result: the result's type; void for the operands' type.
template <class Op, class T, class Result = void>
void binary_on(KernelContext& c, const Op& op = {}) {
  using Out = std::conditional_t<std::is_void_v<Result>, T, Result>;
  const TensorView &a = c.inputs[0], &b = c.inputs[1];
  Out* y = c.outputs[0].as<Out>();
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  if (a.shape == b.shape) {
    constexpr int kCount = kPackOf<T, Out>;
    launch(c, {.blocks = blocks_for((size + kCount - 1) / kCount)}, binary_elements<T, Out, Op>,
           a.as<const T>(), b.as<const T>(), y, size, op);
  } else {
    const Strides<2> strides(c.outputs[0].shape, {&a.shape, &b.shape});
    launch(c, {.blocks = blocks_for(size)}, binary_strided<T, Out, Op>, a.as<const T>(),
           b.as<const T>(), y, strides, size, op);
  }
}

template <class T, class Op>
__global__ void __launch_bounds__(kThreads)
    ternary_elements(const T* a, const T* b, const T* c, T* y, std::int64_t size, Op op) {
  constexpr int kCount = kPackOf<T, T>;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  const auto first = load_pack<kCount>(a, mine.begin, mine.count);
  const auto second = load_pack<kCount>(b, mine.begin, mine.count);
  const auto third = load_pack<kCount>(c, mine.begin, mine.count);
  Pack<T, kCount> out;
#pragma unroll
  for (int i = 0; i < kCount; ++i)
    out.at[i] = store_as<T>(op(load_as(first.at[i]), load_as(second.at[i]), load_as(third.at[i])));
  store_pack(y, mine.begin, mine.count, out);
}

// The context's three inputs and its result have one shape and dtype.
template <class Op, class T>
void ternary_on(KernelContext& c, const Op& op = {}) {
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  constexpr int kCount = kPackOf<T, T>;
  launch(c, {.blocks = blocks_for((size + kCount - 1) / kCount)}, ternary_elements<T, Op>,
         c.inputs[0].as<const T>(), c.inputs[1].as<const T>(), c.inputs[2].as<const T>(),
         c.outputs[0].as<T>(), size, op);
}

}  // namespace tandem::cuda
