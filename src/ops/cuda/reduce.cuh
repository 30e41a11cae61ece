// Reductions over any axes, for the formulas of ops/formula/reductions.h.
//
// The order in which elements are combined depends only on the shape, so that the result is the
// same in every run and on every GPU.
#pragma once

#include <algorithm>
#include <vector>

#include "ops/cuda/reduce_passes.h"
#include "ops/cuda/rows.cuh"
#include "ops/formula/reductions.h"

namespace tandem::cuda {

// The type of the values that a formula combines: the compute type, or Op::Accumulator<C>. A
// formula with such a type writes its results itself: store(position, total).
template <class Op, class C>
struct AccumulatorType {
  using type = C;
};
template <class Op, class C>
requires requires { typename Op::template Accumulator<C>; }
struct AccumulatorType<Op, C> {
  using type = typename Op::template Accumulator<C>;
};
template <class Op, class T>
using AccumulatorOf = typename AccumulatorType<Op, ComputeOf<T>>::type;

// The type of the result: T, or the compute type where Op::kWideResult.
template <class Op, class T>
struct ResultType {
  using type = T;
};
template <class Op, class T>
requires requires { Op::kWideResult; }
struct ResultType<Op, T> {
  using type = ComputeOf<T>;
};

// An element of the tensor, or a partial result of an earlier pass.
template <class Op, class T, class In>
__device__ __forceinline__ AccumulatorOf<Op, T> accumulated(const Op& op, const ReducePass& pass,
                                                            const In& in) {
  using C = ComputeOf<T>;
  using A = AccumulatorOf<Op, T>;
  if constexpr (std::is_same_v<A, C>) {
    const C value = static_cast<C>(load_as(in));
    return pass.first ? op.load(value) : value;
  } else if constexpr (std::is_same_v<In, A>) {
    return in;
  } else {
    return op.load(load_as(in));
  }
}

template <class Op, class T>
__device__ void store_reduced(const Op& op, const ReducePass& pass, void* out, std::int64_t at,
                              const AccumulatorOf<Op, T>& value) {
  using Result = typename ResultType<Op, T>::type;
  if (!pass.last)
    static_cast<AccumulatorOf<Op, T>*>(out)[at] = value;
  else if constexpr (std::is_same_v<AccumulatorOf<Op, T>, ComputeOf<T>>)
    static_cast<Result*>(out)[at] = store_as<Result>(op.finish(value, pass.reduced));
  else
    op.store(at, value);
}

// For inner size 1. Loads kPack elements at a time; pieces and rows are multiples of kPack.
template <class Op, class T, class In, int kPack>
__global__ void __launch_bounds__(kThreads)
    reduce_rows(const In* x, ReducePass pass, int width, void* out, Op op) {
  using A = AccumulatorOf<Op, T>;
  const MyRow row(width);
  if (row.index >= pass.outer * pass.pieces) return;
  const std::int64_t begin = row.index % pass.pieces * pass.piece;
  const std::int64_t end = begin + pass.piece < pass.length ? begin + pass.piece : pass.length;
  const In* from = x + row.index / pass.pieces * pass.length + begin;
  A sum = op.template neutral<ComputeOf<T>>();
  in_packs<kPack>([&](const auto& f) { f(from); },
                  [&] {
                    for_packs<kPack>(row, end - begin, [&](std::int64_t i) {
                      if constexpr (kPack == 1) {
                        sum = op.combine(sum, accumulated<Op, T>(op, pass, from[i]));
                      } else {
                        const auto pack = load_pack<kPack>(from, i, kPack);
#pragma unroll
                        for (int n = 0; n < kPack; ++n)
                          sum = op.combine(sum, accumulated<Op, T>(op, pass, pack.at[n]));
                      }
                    });
                  });
  sum = over_row(row, sum, [op](const A& a, const A& b) { return op.combine(a, b); });
  if (row.lane == 0) store_reduced<Op, T>(op, pass, out, row.index, sum);
}

template <class Op, class T, class In>
__global__ void __launch_bounds__(kThreads)
    reduce_columns(const In* x, ReducePass pass, void* out, Op op) {
  using A = AccumulatorOf<Op, T>;
  constexpr int kLanes = kThreads / kTile;
  __shared__ A partial[kLanes][kTile];
  const std::int64_t tiles = (pass.inner + kTile - 1) / kTile;
  const std::int64_t tile = blockIdx.x % tiles, piece = blockIdx.x / tiles % pass.pieces,
                     outer = blockIdx.x / tiles / pass.pieces;
  const int column_here = threadIdx.x % kTile, lane = threadIdx.x / kTile;
  const std::int64_t column = tile * kTile + column_here;
  const std::int64_t begin = piece * pass.piece;
  const std::int64_t end = begin + pass.piece < pass.length ? begin + pass.piece : pass.length;
  A sum = op.template neutral<ComputeOf<T>>();
  if (column < pass.inner) {
    const In* from = x + outer * pass.length * pass.inner + column;
    for_steps<4>(begin + lane, end, kLanes, [&](std::int64_t i) {
      sum = op.combine(sum, accumulated<Op, T>(op, pass, from[i * pass.inner]));
    });
  }
  partial[lane][column_here] = sum;
  __syncthreads();
  if (lane != 0 || column >= pass.inner) return;
#pragma unroll
  for (int i = 1; i < kLanes; ++i) sum = op.combine(sum, partial[i][column_here]);
  store_reduced<Op, T>(op, pass, out, (outer * pass.pieces + piece) * pass.inner + column, sum);
}

template <class Op, class T, class In>
void launch_pass(KernelContext& c, const ReducePass& pass, const void* x, void* out, const Op& op) {
  if (pass.inner == 1) {
    constexpr int kPack = std::is_class_v<In> && !is_16_bit<In> ? 1 : kPackOf<In>;
    const int width = row_width(pass.piece);
    const bool packs = pass.length % kPack == 0 && pass.piece % kPack == 0;
    launch(c, {.blocks = row_blocks(pass.outer * pass.pieces, width)},
           packs ? reduce_rows<Op, T, In, kPack> : reduce_rows<Op, T, In, 1>,
           static_cast<const In*>(x), pass, width, out, op);
  } else {
    const std::int64_t tiles = (pass.inner + kTile - 1) / kTile;
    launch(c, {.blocks = static_cast<unsigned>(tiles * pass.pieces * pass.outer)},
           reduce_columns<Op, T, In>, static_cast<const In*>(x), pass, out, op);
  }
}

// Reduces `x` over the axes of `mask` (bit i for axis i) into `out`. T: the elements' type.
template <class T, class Op>
void reduce_on(KernelContext& c, const TensorView& x, std::uint32_t mask, const TensorView& out,
               const Op& op = {}) {
  using A = AccumulatorOf<Op, T>;
  if (out.size() == 0) return;
  std::vector<AxisGroup> groups = axis_groups(x.shape, mask);
  const std::int64_t reduced = x.size() / out.size();
  const void* from = x.data;
  for (bool first = true, last = false; !last; first = false) {
    ReducePass pass = next_pass(groups);
    last = pass.pieces == 1 && std::none_of(groups.begin(), groups.end(),
                                            [](const AxisGroup& group) { return group.reduced; });
    pass.first = first;
    pass.last = last;
    pass.reduced = reduced;
    void* to = last ? out.data
                    : c.scratch(static_cast<std::size_t>(pass.outer * pass.pieces * pass.inner) *
                                sizeof(A));
    if (first)
      launch_pass<Op, T, T>(c, pass, from, to, op);
    else
      launch_pass<Op, T, A>(c, pass, from, to, op);
    from = to;
  }
}

}  // namespace tandem::cuda
