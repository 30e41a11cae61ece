// Kernels that compute something per column of [rows, columns] data (channels last): the statistics
// and gradients of normalisations.
//
// The per-column result is a type with
//   static Sums none();        // the result of no rows
//   void join(const Sums&);    // adds the rows of another result
//   using Wide = ...           // the same in double, constructible from Sums
// The order in which rows are joined depends only on the shape, so results are deterministic.
#pragma once

#include <utility>

#include "ops/cuda/column_grid.h"
#include "ops/cuda/elements.cuh"

namespace tandem::cuda {

static_assert(ColumnGrid::kThreads == kThreads);

// The calling thread's columns, [column, column + pack), and rows, begin, begin + step, ... below
// `end`. Threads past the last column have no rows.
struct MyColumns {
  std::int64_t column, piece, begin, end;
  int step;
  __device__ MyColumns(const ColumnGrid& grid, int pack)
      : column((blockIdx.x % grid.tiles * grid.across + threadIdx.x % grid.across) * pack),
        piece(blockIdx.x / grid.tiles),
        begin(piece * grid.piece + threadIdx.x / grid.across),
        end(piece * grid.piece + grid.piece),
        step(grid.down) {
    if (end > grid.rows || column >= grid.columns) end = column < grid.columns ? grid.rows : 0;
  }
};

// kCount rows first, first + step, ... of a thread's columns.
template <int kCount>
struct SomeRows {
  std::int64_t first, step, place, apart;
  __device__ std::int64_t row(int i) const { return first + i * step; }
  // The position of the first element of row i.
  __device__ std::int64_t at(int i) const { return place + i * apart; }
  template <int kPack, class T>
  __device__ void load(const T* from, Pack<T, kPack> (&packs)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) packs[i] = load_pack<kPack>(from, at(i), kPack);
  }
  // from.load(at) of each row.
  template <class From>
  __device__ auto loaded(const From& from) const {
    return loaded(from, std::make_integer_sequence<int, kCount>());
  }

 private:
  template <class From, int... kAll>
  __device__ auto loaded(const From& from, std::integer_sequence<int, kAll...>) const {
    struct {
      typename From::Loaded of[kCount];
    } all{{from.load(at(kAll))...}};
    return all;
  }
};

// Calls f(rows) for all rows of the calling thread: kCount rows at a time, so that their loads
// overlap, then the remaining ones one by one.
template <int kCount, class F>
__device__ __forceinline__ void over_rows(const MyColumns& mine, std::int64_t columns, const F& f) {
  const std::int64_t step = mine.step, apart = step * columns;
  std::int64_t row = mine.begin, place = row * columns + mine.column;
  if constexpr (kCount > 1)
    for (; row + (kCount - 1) * step < mine.end; row += kCount * step, place += kCount * apart)
      f(SomeRows<kCount>{row, step, place, apart});
  for (; row < mine.end; row += step, place += apart) f(SomeRows<1>{row, step, place, apart});
}

// partial[piece][column] = the sums of `terms` over the piece's rows.
// - terms.of_columns(column) loads what the terms need for kPack columns.
// - terms.add(columns, rows, sums) adds the elements of Terms::kRows rows, or of one row.
// - terms.memory(f) calls f with each pointer that it reads in packs.
template <class Sums, int kPack, class Terms>
__global__ void __launch_bounds__(kThreads)
    gather_columns(ColumnGrid grid, Sums* partial, Terms terms) {
  const MyColumns mine(grid, kPack);
  Sums sums[kPack];
#pragma unroll
  for (Sums& each : sums) each = Sums::none();
  if (mine.begin < mine.end) {
    const auto own = terms.of_columns(mine.column);
    in_packs<kPack>([&](const auto& f) { terms.memory(f); },
                    [&] {
                      over_rows<Terms::kRows>(mine, grid.columns, [&](const auto& rows) {
                        terms.add(own, rows, sums);
                      });
                    });
  }
  __shared__ Sums joined[kPack][kThreads];
#pragma unroll
  for (int i = 0; i < kPack; ++i) joined[i][threadIdx.x] = sums[i];
  for (int half = grid.down / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half * grid.across) continue;
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      joined[i][threadIdx.x].join(joined[i][threadIdx.x + half * grid.across]);
  }
  if (threadIdx.x >= grid.across) return;
#pragma unroll
  for (int i = 0; i < kPack; ++i)
    if (mine.column + i < grid.columns)
      partial[mine.piece * grid.columns + mine.column + i] = joined[i][threadIdx.x];
}

// Columns per block of finish_columns: few, because there are many pieces and few columns.
inline constexpr int kColumnsAtEnd = 8;

// Joins the pieces of each column and calls finish(column, sums).
template <class Sums, class Finish>
__global__ void __launch_bounds__(kThreads)
    finish_columns(const Sums* partial, std::int64_t pieces, std::int64_t columns, Finish finish) {
  using Wide = typename Sums::Wide;
  constexpr int kDown = kThreads / kColumnsAtEnd;
  const int here = threadIdx.x % kColumnsAtEnd, lane = threadIdx.x / kColumnsAtEnd;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumnsAtEnd + here;
  Wide sums = Wide::none();
  constexpr int kAtOnce = 4;
  for (std::int64_t piece = lane; column < columns && piece < pieces; piece += kAtOnce * kDown) {
    Sums some[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (piece + i * kDown < pieces) some[i] = partial[(piece + i * kDown) * columns + column];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (piece + i * kDown < pieces) sums.join(Wide(some[i]));
  }
  __shared__ Wide joined[kDown][kColumnsAtEnd];
  joined[lane][here] = sums;
  for (int half = kDown / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half) joined[lane][here].join(joined[lane + half][here]);
  }
  if (lane == 0 && column < columns) finish(column, joined[0][here]);
}

// Computes the sums of `terms` per column and passes them to `finish`.
template <class Sums, int kPack, class Terms, class Finish>
void reduce_columns_on(KernelContext& c, std::int64_t rows, std::int64_t columns,
                       const Terms& terms, const Finish& finish) {
  const ColumnGrid grid(rows, columns, kPack);
  Sums* partial =
      static_cast<Sums*>(c.scratch(static_cast<std::size_t>(grid.pieces * columns) * sizeof(Sums)));
  launch(c, {.blocks = grid.blocks()}, gather_columns<Sums, kPack, Terms>, grid, partial, terms);
  launch(c, {.blocks = blocks_for(columns, kColumnsAtEnd)}, finish_columns<Sums, Finish>, partial,
         grid.pieces, columns, finish);
}

// Calls body.run(columns, rows) for all elements. body.of_columns(column) and body.memory(f) are as
// above.
template <int kPack, class Body>
__global__ void __launch_bounds__(kThreads) for_columns(ColumnGrid grid, Body body) {
  const MyColumns mine(grid, kPack);
  if (mine.begin >= mine.end) return;
  const auto own = body.of_columns(mine.column);
  in_packs<kPack>([&](const auto& f) { body.memory(f); },
                  [&] {
                    over_rows<Body::kRows>(mine, grid.columns,
                                           [&](const auto& rows) { body.run(own, rows); });
                  });
}

template <int kPack, class Body>
void for_columns_on(KernelContext& c, std::int64_t rows, std::int64_t columns, const Body& body) {
  const ColumnGrid grid(rows, columns, kPack);
  launch(c, {.blocks = grid.blocks()}, for_columns<kPack, Body>, grid, body);
}

template <class C>
struct TwoSums {
  using Wide = TwoSums<double>;
  C first, second;
  TwoSums() = default;
  __device__ TwoSums(C a, C b) : first(a), second(b) {}
  template <class From>
  __device__ explicit TwoSums(const TwoSums<From>& from) : first(from.first), second(from.second) {}
  static __device__ TwoSums none() { return {C{0}, C{0}}; }
  __device__ void join(const TwoSums& other) {
    first += other.first;
    second += other.second;
  }
};

// The count of rows, their mean, and the sum of their squared distances from the mean. join()
// follows T. F. Chan, G. H. Golub and R. J. LeVeque, 1979.
template <class C>
struct Moments {
  using Wide = Moments<double>;
  C count, mean, squares;
  Moments() = default;
  __device__ Moments(C n, C m, C s) : count(n), mean(m), squares(s) {}
  template <class From>
  __device__ explicit Moments(const Moments<From>& from)
      : count(from.count), mean(from.mean), squares(from.squares) {}
  static __device__ Moments none() { return {C{0}, C{0}, C{0}}; }
  // `share` is other.count / (count + other.count).
  __device__ void join(const Moments& other, C share) {
    const C distance = other.mean - mean;
    mean += distance * share;
    squares += other.squares + distance * distance * (count * share);
    count += other.count;
  }
  __device__ void join(const Moments& other) {
    const C all = count + other.count;
    if (all > C{0}) join(other, other.count / all);
  }
};

}  // namespace tandem::cuda
