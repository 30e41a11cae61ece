// The index arithmetic of kernels, which depends on shapes only, tested on the host.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "device/cuda/module/fault.h"
#include "ops/cuda/reduce_passes.h"
#include "ops/cuda/strides.h"
#include "tandem/errors.h"

namespace tandem::cuda {
namespace {

std::vector<std::int64_t> positions(const Shape& shape, std::int64_t index) {
  std::vector<std::int64_t> at(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    at[static_cast<std::size_t>(axis)] = index % shape[axis];
    index /= shape[axis];
  }
  return at;
}

// The element of a broadcast operand at the index `at` of a result.
std::int64_t broadcast_offset(const Shape& operand, const std::vector<std::int64_t>& at) {
  std::int64_t offset = 0;
  const int missing = static_cast<int>(at.size()) - operand.rank();
  for (int axis = 0; axis < operand.rank(); ++axis)
    offset = offset * operand[axis] +
             (operand[axis] == 1 ? 0 : at[static_cast<std::size_t>(axis + missing)]);
  return offset;
}

TEST(Strides, LeadToTheElementsThatBroadcast) {
  struct Case {
    Shape result, a, b;
  };
  const Case cases[] = {{{2, 3, 4}, {2, 3, 4}, {4}},
                        {{2, 3, 4}, {2, 3, 4}, {3, 1}},
                        {{2, 3, 4}, {2, 1, 1}, {1, 3, 4}},
                        {{5}, {5}, {1}},
                        {{5}, {}, {5}},
                        {{1, 1}, {1, 1}, {1}},
                        {{2, 1, 3, 1, 5}, {3, 1, 1}, {2, 1, 3, 1, 5}},
                        {{2, 2, 2, 2, 2, 2, 2, 2}, {2, 1, 2, 1, 2, 1, 2, 1}, {2, 2, 1, 2}}};
  for (const Case& each : cases) {
    const Strides<2> strides(each.result, {&each.a, &each.b});
    for (std::int64_t i = 0; i < each.result.num_elements(); ++i) {
      const auto at = positions(each.result, i);
      const auto found = strides.offsets(i);
      EXPECT_EQ(found.of[0], broadcast_offset(each.a, at)) << each.result.to_string() << " " << i;
      EXPECT_EQ(found.of[1], broadcast_offset(each.b, at)) << each.result.to_string() << " " << i;
    }
  }
}

TEST(Strides, OfMoreElementsThan32BitsCount) {
  const Shape result = {3, std::int64_t{1} << 31}, a = {3, 1};
  const Strides<2> strides(result, {&result, &a});
  const std::int64_t index = (std::int64_t{1} << 32) + 7;
  EXPECT_EQ(strides.offsets(index).of[0], index);
  EXPECT_EQ(strides.offsets(index).of[1], 2);
}

// The sum over the axes of `mask`, in the passes that a GPU would run.
std::vector<double> sum_in_passes(std::vector<double> x, const Shape& shape, std::uint32_t mask) {
  std::vector<AxisGroup> groups = axis_groups(shape, mask);
  const auto left = [&] {
    for (const AxisGroup& group : groups)
      if (group.reduced) return true;
    return false;
  };
  int passes = 0;
  while (left()) {
    EXPECT_LE(++passes, 2 * shape.rank() + 2);
    const ReducePass pass = next_pass(groups);
    EXPECT_EQ(static_cast<std::int64_t>(x.size()), pass.outer * pass.length * pass.inner);
    EXPECT_GE(pass.piece * pass.pieces, pass.length);
    std::vector<double> sums(static_cast<std::size_t>(pass.outer * pass.pieces * pass.inner));
    for (std::int64_t o = 0; o < pass.outer; ++o)
      for (std::int64_t i = 0; i < pass.length; ++i)
        for (std::int64_t j = 0; j < pass.inner; ++j)
          sums[static_cast<std::size_t>((o * pass.pieces + i / pass.piece) * pass.inner + j)] +=
              x[static_cast<std::size_t>((o * pass.length + i) * pass.inner + j)];
    x = std::move(sums);
  }
  return x;
}

TEST(ReducePasses, AddUpEveryElementOnce) {
  const Shape shapes[] = {{7},       {1},          {100'000},   {3, 50'000},    {50'000, 3},
                          {1, 1, 1}, {64, 9, 130}, {4, 1, 300}, {2, 3, 4, 5, 6}};
  for (const Shape& shape : shapes)
    for (std::uint32_t mask = 0; mask < (1u << shape.rank()); ++mask) {
      std::vector<double> x(static_cast<std::size_t>(shape.num_elements()));
      std::iota(x.begin(), x.end(), 1.0);
      Dims kept;
      for (int axis = 0; axis < shape.rank(); ++axis)
        kept.push_back((mask >> axis & 1u) != 0 ? 1 : shape.word(axis));
      const Shape result(kept);
      std::vector<double> expected(static_cast<std::size_t>(result.num_elements()));
      for (std::int64_t i = 0; i < shape.num_elements(); ++i)
        expected[static_cast<std::size_t>(broadcast_offset(result, positions(shape, i)))] +=
            x[static_cast<std::size_t>(i)];
      EXPECT_TRUE(sum_in_passes(x, shape, mask) == expected) << shape.to_string() << " " << mask;
    }
}

TEST(ReducePasses, OfNothingAreOne) {
  std::vector<AxisGroup> groups = axis_groups({3, 0}, 0b10);
  const ReducePass pass = next_pass(groups);
  EXPECT_EQ(pass.outer, 3);
  EXPECT_EQ(pass.length, 0);
  EXPECT_EQ(pass.pieces, 1);
}

TEST(Faults, ReportInvalidValues) {
  Fault fault = {.claimed = 1,
                 .complete = 1,
                 .text = "[{op}] label {value} at position {position} is outside [0, {limit})",
                 .op = "Op",
                 .value = 12,
                 .position = 3,
                 .limit = 10};
  try {
    throw_fault(fault);
    FAIL();
  } catch (const InvalidArgumentError& error) {
    EXPECT_STREQ(error.what(), "[Op] label 12 at position 3 is outside [0, 10)");
  }
  EXPECT_EQ(fault.claimed, 0);  // can be claimed again
}

}  // namespace
}  // namespace tandem::cuda
