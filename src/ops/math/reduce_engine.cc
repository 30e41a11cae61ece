#include "ops/math/reduce_engine.h"

#include <algorithm>
#include <array>

#include "core/parallel.h"
#include "ops/math/elementwise.h"

namespace tandem {
namespace {

// The elements and rows per block.
constexpr std::int64_t kBlock = 4096;
constexpr std::int64_t kBlockRows = 64;

std::int64_t blocks_of(std::int64_t count, std::int64_t block) {
  return (count + block - 1) / block;
}

// The sizes of some axes, and their strides in the input.
struct StridedAxes {
  int rank = 0;
  std::array<std::int64_t, kMaxRank> sizes{};
  std::array<std::int64_t, kMaxRank> strides{};

  void push(std::int64_t size, std::int64_t stride) {
    sizes[static_cast<std::size_t>(rank)] = size;
    strides[static_cast<std::size_t>(rank++)] = stride;
  }
  std::int64_t count() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank; ++i) product *= sizes[static_cast<std::size_t>(i)];
    return product;
  }
  // The input position of element `index`, counted in row-major order.
  std::int64_t offset(std::int64_t index) const {
    std::int64_t sum = 0;
    for (int i = rank - 1; i >= 0; --i) {
      const auto axis = static_cast<std::size_t>(i);
      sum += index % sizes[axis] * strides[axis];
      index /= sizes[axis];
    }
    return sum;
  }
};

// The input's axes. Adjacent axes that are all reduced or all kept are merged. The last one is
// `inner`; the others are in `kept` or `reduced`.
struct ReduceAxes {
  StridedAxes kept, reduced;  // without the last axis
  std::int64_t inner = 1;
  bool inner_reduced = true;

  ReduceAxes(const Shape& shape, std::uint32_t mask) {
    StridedAxes merged;
    std::array<bool, kMaxRank> is_reduced{};
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (shape.word(axis) == 1) continue;
      const bool reduce = (mask >> axis & 1u) != 0;
      const auto last = static_cast<std::size_t>(merged.rank - 1);
      if (merged.rank > 0 && is_reduced[last] == reduce) {
        merged.sizes[last] *= shape.word(axis);
      } else {
        is_reduced[static_cast<std::size_t>(merged.rank)] = reduce;
        merged.push(shape.word(axis), 0);
      }
    }
    if (merged.rank == 0) return;
    const auto last = static_cast<std::size_t>(merged.rank - 1);
    inner = merged.sizes[last];
    inner_reduced = is_reduced[last];
    std::int64_t stride = 1;
    for (std::size_t axis = last + 1; axis-- > 0;) {
      merged.strides[axis] = stride;
      stride *= merged.sizes[axis];
    }
    for (std::size_t axis = 0; axis < last; ++axis)
      (is_reduced[axis] ? reduced : kept).push(merged.sizes[axis], merged.strides[axis]);
  }
};

class AxisReduction {
 public:
  AxisReduction(KernelContext& c, const ReduceAxes& axes, const ReduceLoops& loops, std::byte* out)
      : axes_(axes),
        loops_(loops),
        x_(c.inputs[0].as<const std::byte>()),
        out_(out),
        outer_(axes.kept.count()),
        columns_(axes.inner_reduced ? 1 : axes.inner),
        chunks_(blocks_of(columns_, kReduceColumns)),
        rows_(axes.reduced.count()),
        reduced_(rows_ * (axes.inner_reduced ? axes.inner : 1)) {
    if (!axes.inner_reduced) {
      rows_in_block_ = kBlockRows;
      blocks_ = blocks_of(rows_, kBlockRows);
    } else if (axes.inner >= kBlock) {
      pieces_ = blocks_of(axes.inner, kBlock);
      blocks_ = rows_ * pieces_;
    } else {
      rows_in_block_ = kBlock / axes.inner;
      blocks_ = blocks_of(rows_, rows_in_block_);
    }
    if (blocks_ > 1)
      partial_ = static_cast<std::byte*>(c.scratch(
          static_cast<std::size_t>(outer_ * blocks_ * columns_ * loops.accumulator_size)));
  }

  void run() const {
    if (axes_.inner_reduced && rows_ == 1 && blocks_ == 1) return run_short_runs();
    const std::int64_t tasks = outer_ * blocks_ * chunks_;
    const std::int64_t elements = std::max<std::int64_t>(1, outer_ * columns_ * reduced_ / tasks);
    parallel_for(tasks, std::max<std::int64_t>(1, kElementwiseGrain / elements),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t task = begin; task < end; ++task) run_task(task);
                 });
    if (blocks_ > 1) combine_blocks();
  }

 private:
  // The common case, a reduction over the last axis: each loop computes many outputs per call.
  void run_short_runs() const {
    const std::int64_t grain = std::max<std::int64_t>(1, kElementwiseGrain / axes_.inner);
    parallel_for(outer_, grain, [&](std::int64_t begin, std::int64_t end) {
      alignas(64) std::byte accumulators[kReduceColumns * kMaxAccumulator];
      for (; begin < end; begin += kReduceColumns) {
        const std::int64_t count = std::min(kReduceColumns, end - begin);
        loops_.runs(x_ + begin * axes_.inner * loops_.input_size, count, axes_.inner, accumulators);
        loops_.finish(accumulators, count, reduced_, out_ + begin * loops_.output_size);
      }
    });
  }

  // Processes one chunk of columns of one block of one output row.
  void run_task(std::int64_t task) const {
    const std::int64_t chunk = task % chunks_, block = task / chunks_ % blocks_,
                       outer = task / chunks_ / blocks_;
    const std::int64_t column = chunk * kReduceColumns,
                       columns = std::min(kReduceColumns, columns_ - column);
    alignas(64) std::byte local[kReduceColumns * kMaxAccumulator];
    std::byte* accumulators =
        blocks_ == 1
            ? local
            : partial_ + ((outer * blocks_ + block) * columns_ + column) * loops_.accumulator_size;
    const std::int64_t base = axes_.kept.offset(outer) + column;
    if (!axes_.inner_reduced)
      reduce_rows(base, block, columns, accumulators);
    else if (pieces_ > 1)
      reduce_piece(base, block, accumulators);
    else
      reduce_runs(base, block, accumulators);
    if (blocks_ == 1)
      loops_.finish(accumulators, columns, reduced_,
                    out_ + (outer * columns_ + column) * loops_.output_size);
  }

  const std::byte* at(std::int64_t offset) const { return x_ + offset * loops_.input_size; }

  void reduce_rows(std::int64_t base, std::int64_t block, std::int64_t columns,
                   std::byte* accumulators) const {
    const std::int64_t first = block * kBlockRows, last = std::min(rows_, first + kBlockRows);
    if (axes_.reduced.rank <= 1) {
      const std::int64_t stride = axes_.reduced.strides[0];
      loops_.rows(at(base + first * stride), last - first, stride, columns, true, accumulators);
      return;
    }
    for (std::int64_t row = first; row < last; ++row)
      loops_.rows(at(base + axes_.reduced.offset(row)), 1, 0, columns, row == first, accumulators);
  }

  void reduce_piece(std::int64_t base, std::int64_t block, std::byte* accumulator) const {
    const std::int64_t row = block / pieces_, start = block % pieces_ * kBlock;
    loops_.runs(at(base + axes_.reduced.offset(row) + start), 1,
                std::min(kBlock, axes_.inner - start), accumulator);
  }

  void reduce_runs(std::int64_t base, std::int64_t block, std::byte* accumulator) const {
    alignas(64) std::byte other[kMaxAccumulator];
    const std::int64_t first = block * rows_in_block_,
                       last = std::min(rows_, first + rows_in_block_);
    for (std::int64_t row = first; row < last; ++row) {
      loops_.runs(at(base + axes_.reduced.offset(row)), 1, axes_.inner,
                  row == first ? accumulator : other);
      if (row != first) loops_.combine(accumulator, other, 1);
    }
  }

  void combine_blocks() const {
    const std::int64_t step = columns_ * loops_.accumulator_size;
    const std::int64_t grain = std::max<std::int64_t>(1, kElementwiseGrain / (blocks_ * columns_));
    parallel_for(outer_, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t outer = begin; outer < end; ++outer) {
        std::byte* blocks = partial_ + outer * blocks_ * step;
        for (std::int64_t distance = 1; distance < blocks_; distance *= 2)
          for (std::int64_t i = 0; i + distance < blocks_; i += 2 * distance)
            loops_.combine(blocks + i * step, blocks + (i + distance) * step, columns_);
        loops_.finish(blocks, columns_, reduced_, out_ + outer * columns_ * loops_.output_size);
      }
    });
  }

  const ReduceAxes& axes_;
  const ReduceLoops& loops_;
  const std::byte* x_;
  std::byte* out_;
  std::int64_t outer_;       // output rows
  std::int64_t columns_;     // outputs per output row
  std::int64_t chunks_;      // chunks per output row
  std::int64_t rows_;        // input rows or runs per output row
  std::int64_t reduced_;     // input elements per output
  std::int64_t pieces_ = 1;  // pieces per run
  std::int64_t rows_in_block_ = 1;
  std::int64_t blocks_ = 1;
  std::byte* partial_ = nullptr;  // [outer, blocks, columns] accumulators
};

}  // namespace

void run_reduce(KernelContext& c, std::uint32_t mask, const ReduceLoops& loops, void* out) {
  const std::int64_t outputs = c.outputs[0].size();
  auto* results = static_cast<std::byte*>(out);
  if (outputs == 0) return;
  if (c.inputs[0].size() == 0) {  // every output is the result of no elements
    alignas(64) std::byte neutral[kReduceColumns * kMaxAccumulator];
    loops.rows(nullptr, 0, 0, std::min(kReduceColumns, outputs), true, neutral);
    for (std::int64_t i = 0; i < outputs; i += kReduceColumns)
      loops.finish(neutral, std::min(kReduceColumns, outputs - i), 0,
                   results + i * loops.output_size);
    return;
  }
  const ReduceAxes axes(c.inputs[0].shape, mask);
  AxisReduction(c, axes, loops, results).run();
}

}  // namespace tandem
