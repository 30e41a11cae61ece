// The grid of kernels that compute something per column of [rows, columns] data (channels last). It
// depends only on the shape.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::cuda {

struct ColumnGrid {
  static constexpr int kThreads = 256;           // per block
  static constexpr int kMostAcross = 32;         // most threads per row
  static constexpr std::int64_t kBlocks = 1024;  // enough to keep a GPU busy
  static constexpr std::int64_t kLeastRows = 8;  // per thread, if there are several blocks

  std::int64_t rows, columns;
  int across = 1;          // threads per row, each with `pack` columns; a power of two
  int down = kThreads;     // threads per column, which share the rows of a piece
  std::int64_t tiles = 1;  // number of tiles of across * pack columns
  std::int64_t piece = 1;  // rows per block
  std::int64_t pieces = 1;

  ColumnGrid(std::int64_t row_count, std::int64_t column_count, int pack)
      : rows(row_count), columns(column_count) {
    const std::int64_t packs = (columns + pack - 1) / pack;
    while (across < kMostAcross && across < packs) across *= 2;
    down = kThreads / across;
    tiles = (packs + across - 1) / across;
    const std::int64_t most = std::max<std::int64_t>(1, kBlocks / std::max<std::int64_t>(1, tiles));
    pieces = std::clamp<std::int64_t>(rows / (down * kLeastRows), 1, most);
    piece = std::max<std::int64_t>(1, (rows + pieces - 1) / pieces);
    pieces = std::max<std::int64_t>(1, (rows + piece - 1) / piece);
  }

  unsigned blocks() const { return static_cast<unsigned>(tiles * pieces); }
};

}  // namespace tandem::cuda
