// Writes of parts of variables, at a place that is known when they run.
#include <gtest/gtest.h>

#include "array_reference.h"
#include "ops/array/array_ops.h"
#include "runtime/variable_impl.h"
#include "support/errors.h"
#include "tandem/array.h"
#include "tandem/device.h"
#include "tandem/errors.h"
#include "tandem/function.h"
#include "tandem/variable.h"

namespace tandem::assign_slice_test {
namespace {

using namespace testing;

void assign(Variable& variable, const Tensor& part, const Tensor& first, std::int64_t axis) {
  assign_slice(variable.impl().memory(0), part, first, axis);
}

Tensor place(std::int64_t first) { return constant(first, {.dtype = int64}); }

TEST(AssignSlice, WritesAPartAlongAnAxis) {
  for (const DType dtype : {float32, float64, bfloat16, int32, uint8, bool_}) {
    for (const int axis : {0, 1, 2}) {
      Dims sizes{4, 5, 3};
      Variable x(zeros(Shape(sizes), {.dtype = dtype}), {.trainable = false});
      sizes[axis] = 2;
      assign(x, ones(Shape(sizes), {.dtype = dtype}), place(1), axis - (axis == 1 ? 3 : 0));
      expect_moved(cast(x.value(), int32), {4, 5, 3}, [&](const Index& i) {
        const auto at = i[static_cast<std::size_t>(axis)];
        return at == 1 || at == 2 ? 1 : 0;
      });
    }
  }
}

TEST(AssignSlice, LeavesEarlierReadsAsTheyAre) {
  Variable x(zeros({4, 2}), {.trainable = false});
  const Tensor before = x.value();
  assign(x, ones({1, 2}), place(3), 0);
  EXPECT_EQ(before.to_vector<float>(), std::vector<float>(8, 0.0f));
  EXPECT_EQ(x.value().to_vector<float>(), (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 1}));
}

TEST(AssignSlice, WritesWhereEachRunOfAFunctionSays) {
  Variable x(zeros({3, 4}), {.trainable = false});
  const auto write = function([&](const Tensor& first) {
    assign(x, reshape(cast(first, float32), {1, 1}) + ones({3, 1}), first, 1);
    return reduce_sum(x.value());
  });
  for (std::int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(write(place(i)).item<float>(), 3.0f * static_cast<float>((i + 1) * (i + 2) / 2));
  EXPECT_EQ(write.num_traces(), 1u);
}

TEST(AssignSlice, WritesNothingForAnEmptyPart) {
  Variable x(zeros({3, 4}), {.trainable = false});
  assign(x, ones({3, 0}), place(4), 1);
  EXPECT_EQ(reduce_sum(x.value()).item<float>(), 0.0f);
}

TEST(AssignSlice, NamesAPlaceOutsideOfTheVariable) {
  const DeviceScope on_cpu("/cpu:0");  // where errors are synchronous
  Variable x(zeros({3, 4}), {.trainable = false});
  for (const std::int64_t first : {-1, 3})
    EXPECT_EQ(error_of<InvalidArgumentError>([&] {
                assign(x, ones({3, 2}), place(first), 1);
              }),
              "[AssignSlice] expected an index of [0, 2] for 2 of 4 places, got " +
                  std::to_string(first));
  EXPECT_EQ(reduce_sum(x.value()).item<float>(), 0.0f);
}

TEST(AssignSlice, RefusesPartsThatDoNotFit) {
  Variable x(zeros({3, 4}), {.trainable = false});
  EXPECT_EQ(error_of<ShapeError>([&] {
              assign(x, ones({2, 1}), place(0), 1);
            }),
            "[AssignSlice] expected a part along axis 1 of float32 of shape (3, 4), got float32 of "
            "shape (2, 1)");
  EXPECT_EQ(error_of<ShapeError>([&] {
              assign(x, ones({3, 1}, {.dtype = float64}), place(0), 1);
            }),
            "[AssignSlice] expected a part along axis 1 of float32 of shape (3, 4), got float64 of "
            "shape (3, 1)");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              assign(x, ones({3, 1}), constant(0), 1);
            }),
            "[AssignSlice] expected an int64 scalar as index, got int32 of shape ()");
}

}  // namespace
}  // namespace tandem::assign_slice_test
