// How kernels go over [rows, columns] data, channels last, where what they compute belongs to the
// columns. The shape alone decides.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tandem::cuda {

struct ColumnGrid {
  static constexpr int kThreads = 256;           // of a block
  static constexpr int kMostAcross = 32;         // threads side by side
  static constexpr std::int64_t kBlocks = 1024;  // keep a GPU busy
  static constexpr std::int64_t kLeastRows = 8;  // a thread, where there are more blocks than one

  std::int64_t rows, columns;
  int across = 1;          // threads side by side, each of `pack` columns: a power of two
  int down = kThreads;     // threads below each other, which share out a piece's rows
  std::int64_t tiles = 1;  // of across * pack columns
  std::int64_t piece = 1;  // rows of a block
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
