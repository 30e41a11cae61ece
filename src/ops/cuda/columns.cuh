// Kernels on [rows, columns] data, channels last, that compute something of each column: the
// statistics and gradients of normalisations.
//
// What is gathered of a column is a type of objects with
//   static Sums none();        // of no row
//   void join(const Sums&);    // of the rows of both
//   using Wide = ...           // the same in double, made from one
// Rows are joined in pieces and orders that the shape alone decides: the same bits in every run.
#pragma once

#include "ops/cuda/column_grid.h"
#include "ops/cuda/elements.cuh"

namespace tandem::cuda {

static_assert(ColumnGrid::kThreads == kThreads);

// The columns [column, column + pack) and the rows begin, begin + step, ... below `end` of the
// calling thread; none past the last column.
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

// partial[piece][column] = what `terms` says of the piece's rows: terms.of_columns(column) is what
// it needs to know of kPack columns, terms.add(that, row, place of the first of its elements, sums)
// adds a row's elements to as many sums.
template <class Sums, int kPack, class Terms>
__global__ void __launch_bounds__(kThreads)
    gather_columns(ColumnGrid grid, Sums* partial, Terms terms) {
  const MyColumns mine(grid, kPack);
  Sums sums[kPack];
#pragma unroll
  for (Sums& each : sums) each = Sums::none();
  if (mine.begin < mine.end) {
    const auto own = terms.of_columns(mine.column);
#pragma unroll 4
    for (std::int64_t row = mine.begin; row < mine.end; row += mine.step)
      terms.add(own, row, row * grid.columns + mine.column, sums);
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

inline constexpr int kColumnsAtEnd = 32;  // of a block that joins pieces

// finish(column, of all pieces).
template <class Sums, class Finish>
__global__ void __launch_bounds__(kThreads)
    finish_columns(const Sums* partial, std::int64_t pieces, std::int64_t columns, Finish finish) {
  using Wide = typename Sums::Wide;
  constexpr int kDown = kThreads / kColumnsAtEnd;
  const int here = threadIdx.x % kColumnsAtEnd, lane = threadIdx.x / kColumnsAtEnd;
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumnsAtEnd + here;
  Wide sums = Wide::none();
  if (column < columns)
    for (std::int64_t piece = lane; piece < pieces; piece += kDown)
      sums.join(Wide(partial[piece * columns + column]));
  __shared__ Wide joined[kDown][kColumnsAtEnd];
  joined[lane][here] = sums;
  __syncthreads();
  if (lane != 0 || column >= columns) return;
#pragma unroll
  for (int i = 1; i < kDown; ++i) sums.join(joined[i][here]);
  finish(column, sums);
}

// Elements of a row that a thread takes at a time: packs where they divide it.
template <class T>
bool in_packs(std::int64_t columns) {
  return columns % kPackOf<T> == 0;
}

// Gathers and finishes.
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

// body.run(of columns, place) for all packs of elements; body.of_columns(column) as above.
template <int kPack, class Body>
__global__ void __launch_bounds__(kThreads) for_columns(ColumnGrid grid, Body body) {
  const MyColumns mine(grid, kPack);
  if (mine.begin >= mine.end) return;
  const auto own = body.of_columns(mine.column);
#pragma unroll 2
  for (std::int64_t row = mine.begin; row < mine.end; row += mine.step)
    body.run(own, row * grid.columns + mine.column);
}

template <int kPack, class Body>
void for_columns_on(KernelContext& c, std::int64_t rows, std::int64_t columns, const Body& body) {
  const ColumnGrid grid(rows, columns, kPack);
  launch(c, {.blocks = grid.blocks()}, for_columns<kPack, Body>, grid, body);
}

// Two sums.
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

// A count of rows, their mean and the sum of their squared distances from it, gathered one by one
// (B. P. Welford, 1962) and joined (T. F. Chan, G. H. Golub and R. J. LeVeque, 1979).
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
  // `share`: 1 / the count with it.
  __device__ void add(C x, C share) {
    count += C{1};
    const C distance = x - mean;
    mean += distance * share;
    squares += distance * (x - mean);
  }
  __device__ void join(const Moments& other) {
    const C all = count + other.count;
    if (!(all > C{0})) return;
    const C distance = other.mean - mean, share = other.count / all;
    mean += distance * share;
    squares += other.squares + distance * distance * (count * share);
    count = all;
  }
};

}  // namespace tandem::cuda
