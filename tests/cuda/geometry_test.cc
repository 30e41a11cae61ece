// The index arithmetic of padding, transposition, pooling and column sums on a GPU, tested on the
// host.
#include <gtest/gtest.h>

#include <numeric>
#include <optional>
#include <vector>

#include "ops/array/copy_on_gpu.h"
#include "ops/array/pad.h"
#include "ops/cuda/column_grid.h"
#include "ops/nn/pool.h"

namespace tandem {
namespace {

std::vector<std::int64_t> numbers(std::int64_t count) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(PadAxes, LeadToTheElementsThatArePadded) {
  struct Case {
    Shape input;
    Dims before, after;
    int rank;  // after axes are joined
  };
  const Case cases[] = {{{4}, {1}, {2}, 1},
                        {{2, 3}, {0, 0}, {0, 0}, 1},
                        {{2, 3, 4}, {1, 0, 0}, {0, 0, 0}, 1},
                        {{2, 3, 4}, {0, 2, 0}, {0, 1, 0}, 2},
                        {{2, 5, 6, 3}, {0, 1, 2, 0}, {0, 1, 3, 0}, 3},
                        {{3, 0, 2}, {0, 2, 0}, {0, 1, 0}, 2},
                        {Shape::scalar(), {}, {}, 1}};
  for (const Case& each : cases) {
    Dims sizes;
    for (int axis = 0; axis < each.input.rank(); ++axis)
      sizes.push_back(each.before[axis] + each.input[axis] + each.after[axis]);
    const Shape output(sizes);
    const PadAxes axes(each.input, output, each.before);
    EXPECT_EQ(axes.rank, each.rank) << each.input.to_string();
    for (std::int64_t i = 0; i < output.num_elements(); ++i) {
      std::int64_t rest = i, expected = 0, stride = 1;
      for (int axis = output.rank() - 1; axis >= 0; --axis) {
        const std::int64_t at = rest % output[axis] - each.before[axis];
        rest /= output[axis];
        if (at < 0 || at >= each.input[axis]) expected = -1;
        if (expected >= 0) expected += at * stride;
        stride *= each.input[axis];
      }
      EXPECT_EQ(axes.source_of(static_cast<std::uint32_t>(i), axes.rank), expected)
          << each.input.to_string() << " " << i;
      EXPECT_EQ(axes.source_of(static_cast<std::uint64_t>(i), axes.rank), expected);
    }
  }
}

// Transposes `shape` by `permutation`, as a strided copy.
StridedCopy transposition(const Shape& shape, const std::vector<int>& permutation) {
  const Dims strides = dense_strides(shape);
  StridedCopy copy;
  for (const int axis : permutation) copy.add_axis(shape[axis], strides[axis]);
  return copy;
}

TEST(TransposePlanes, MatchTheStridedCopy) {
  struct Case {
    Shape shape;
    std::vector<int> permutation;
  };
  const Case cases[] = {{{8, 9}, {1, 0}},
                        {{3, 8, 10}, {0, 2, 1}},
                        {{10, 3, 9}, {2, 1, 0}},
                        {{2, 8, 3, 12}, {2, 0, 3, 1}},
                        {{4, 9, 2, 11}, {3, 2, 0, 1}},
                        {{40, 33}, {1, 0}}};
  for (const Case& each : cases) {
    const StridedCopy copy = transposition(each.shape, each.permutation);
    const std::int64_t size = each.shape.num_elements();
    const std::vector<std::int64_t> input = numbers(size);
    std::vector<std::int64_t> expected(input.size()), found(input.size(), -1);
    copy.run(expected.data(), input.data(), sizeof(std::int64_t));
    const std::optional<TransposePlanes> planes = TransposePlanes::of(copy);
    ASSERT_TRUE(planes.has_value()) << each.shape.to_string();
    EXPECT_EQ(planes->planes * planes->rows * planes->columns, size);
    for (std::int64_t plane = 0; plane < planes->planes; ++plane) {
      const auto at = planes->plane(plane);
      for (std::int64_t row = 0; row < planes->rows; ++row)
        for (std::int64_t column = 0; column < planes->columns; ++column)
          found[static_cast<std::size_t>(at.output + row * planes->output_stride + column)] =
              input[static_cast<std::size_t>(at.input + column * planes->input_stride + row)];
    }
    EXPECT_TRUE(found == expected) << each.shape.to_string();
  }
}

TEST(TransposePlanes, AreNotWhereTheLastAxisStaysOrAPlaneIsSmall) {
  EXPECT_FALSE(TransposePlanes::of(transposition({8, 9}, {0, 1})));
  EXPECT_FALSE(TransposePlanes::of(transposition({8, 9, 16}, {1, 0, 2})));
  EXPECT_FALSE(TransposePlanes::of(transposition({5, 100, 3}, {0, 2, 1})));
  StridedCopy backwards;
  backwards.add_axis(64, -1);
  backwards.set_offset(63);
  EXPECT_FALSE(TransposePlanes::of(backwards));
}

TEST(ElementsTogether, AreLimitedByAlignmentAndRunLength) {
  const auto together = [](const Shape& shape, const std::vector<int>& permutation,
                           std::size_t bytes, std::uintptr_t address = 0) {
    return elements_together(transposition(shape, permutation), bytes, address);
  };
  EXPECT_EQ(together({6, 5, 64}, {1, 0, 2}, 4), 4);
  EXPECT_EQ(together({6, 5, 64}, {1, 0, 2}, 2), 8);
  EXPECT_EQ(together({6, 5, 64}, {1, 0, 2}, 2, 4), 2);  // 4 bytes into a pack of 16
  EXPECT_EQ(together({6, 5, 6}, {1, 0, 2}, 4), 2);
  EXPECT_EQ(together({6, 5, 7}, {1, 0, 2}, 4), 1);
  EXPECT_EQ(together({6, 5}, {1, 0}, 4), 1);
  EXPECT_EQ(together({6, 5, 64}, {1, 0, 2}, 8), 2);
  StridedCopy slice;  // columns [2, 10) of 16
  slice.add_axis(3, 16);
  slice.add_axis(8, 1);
  slice.set_offset(2);
  EXPECT_EQ(elements_together(slice, 4, 0), 2);
  StridedCopy repeated;  // each row 3 times
  repeated.add_axis(3, 0);
  repeated.add_axis(8, 1);
  EXPECT_EQ(elements_together(repeated, 4, 0), 4);
}

TEST(Pool, WindowsOverAPixelAreThoseThatCoverIt) {
  for (const nn::Padding padding :
       {nn::Padding::kValid, nn::Padding::kSame, nn::Padding::kExplicit})
    for (std::int64_t size = 1; size <= 9; ++size)
      for (std::int64_t window = 1; window <= 4; ++window)
        for (std::int64_t stride = 1; stride <= 4; ++stride) {
          const std::int64_t before = padding == nn::Padding::kExplicit ? window - 1 : 0;
          if (padding != nn::Padding::kSame && size + before < window) continue;
          const Pool pool = pool_of("Pool",
                                    {.window_h = window,
                                     .window_w = window,
                                     .stride_h = stride,
                                     .stride_w = stride,
                                     .padding = padding,
                                     .pad_top = before,
                                     .pad_left = before},
                                    {1, size, size + 1, 1});
          for (std::int64_t y = 0; y < pool.h; ++y) {
            const Pool::WindowRange over = pool.rows_over(y);
            for (std::int64_t oy = 0; oy < pool.oh; ++oy) {
              const PoolWindow covered(pool, oy, 0);
              EXPECT_EQ(oy >= over.first && oy < over.last, y >= covered.top && y < covered.bottom)
                  << size << " " << window << " " << stride << " " << y << " " << oy;
            }
          }
          for (std::int64_t x = 0; x < pool.w; ++x) {
            const Pool::WindowRange over = pool.columns_over(x);
            for (std::int64_t ox = 0; ox < pool.ow; ++ox) {
              const PoolWindow covered(pool, 0, ox);
              EXPECT_EQ(ox >= over.first && ox < over.last, x >= covered.left && x < covered.right)
                  << size << " " << window << " " << stride << " " << x << " " << ox;
            }
          }
        }
}

TEST(ColumnGrid, CoversEveryElementOnce) {
  struct Case {
    std::int64_t rows, columns;
    int pack;
  };
  const Case cases[] = {{1, 1, 1},    {7, 3, 1},       {100, 64, 4},    {5000, 8, 8},
                        {3, 1000, 1}, {100'000, 3, 1}, {2000, 2048, 8}, {40'000, 64, 4},
                        {0, 16, 4},   {257, 260, 4}};
  for (const Case& each : cases) {
    const cuda::ColumnGrid grid(each.rows, each.columns, each.pack);
    EXPECT_EQ(grid.across * grid.down, cuda::ColumnGrid::kThreads);
    EXPECT_GE(grid.pieces, 1);
    EXPECT_EQ(grid.blocks(), static_cast<unsigned>(grid.tiles * grid.pieces));
    std::vector<int> rows(static_cast<std::size_t>(each.rows));
    for (std::int64_t piece = 0; piece < grid.pieces; ++piece) {
      const std::int64_t end = std::min(each.rows, (piece + 1) * grid.piece);
      EXPECT_TRUE(piece * grid.piece < end || each.rows == 0);
      for (std::int64_t row = piece * grid.piece; row < end; ++row)
        ++rows[static_cast<std::size_t>(row)];
    }
    for (const int count : rows) EXPECT_EQ(count, 1);
    EXPECT_GE(grid.tiles * grid.across * each.pack, each.columns);
    EXPECT_LT((grid.tiles - 1) * grid.across * each.pack, each.columns);
  }
}

}  // namespace
}  // namespace tandem
