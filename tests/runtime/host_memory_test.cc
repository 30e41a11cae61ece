#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

#include "support/gpus.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::host_memory_test {
namespace {

using testing::expect_error;

TEST(HostMemory, IsNotCopied) {
  testing::use_gpus(0);
  std::vector<double> field = {1, 2, 3, 4, 5, 6};
  const Tensor tensor = from_blob(field, {2, 3});
  EXPECT_EQ(tensor.dtype(), float64);
  EXPECT_EQ(tensor.data<double>(), field.data());
  EXPECT_EQ(from_blob(field.data(), {6}).data<double>(), field.data());
  EXPECT_EQ(from_blob(static_cast<void*>(field.data()), {6}, float64).data<double>(), field.data());
  EXPECT_EQ(reduce_sum(tensor).item<double>(), 21);
}

TEST(HostMemory, ReadsStrides) {
  std::array<std::int32_t, 12> field{};
  std::iota(field.begin(), field.end(), 0);
  // Columns 0 and 2 of a matrix of 3 rows, and the rows from the last to the first.
  const Tensor columns = from_blob(field, {3, 2}, {.strides = {4, 2}});
  EXPECT_EQ(columns.to_vector<std::int32_t>(), (std::vector<std::int32_t>{0, 2, 4, 6, 8, 10}));
  const Tensor back = from_blob(field.data() + 8, {3, 4}, {.strides = {-4, 1}});
  EXPECT_EQ(back.to_vector<std::int32_t>(),
            (std::vector<std::int32_t>{8, 9, 10, 11, 4, 5, 6, 7, 0, 1, 2, 3}));
  const Tensor repeated = from_blob(field.data() + 5, {2, 2}, {.strides = {0, 0}});
  EXPECT_EQ(repeated.to_vector<std::int32_t>(), (std::vector<std::int32_t>{5, 5, 5, 5}));
  field.fill(7);
  EXPECT_EQ(columns.to_vector<std::int32_t>()[1], 2);
}

TEST(HostMemory, CallsTheDeleterAfterTheLastTensor) {
  std::vector<float> field(4, 1.0f);
  int calls = 0;
  void* freed = nullptr;
  const auto deleter = [&](void* memory) { ++calls, freed = memory; };
  Tensor tensor = from_blob(field, {4}, {.deleter = deleter});
  Tensor view = reshape(tensor, {2, 2});
  tensor = Tensor();
  EXPECT_EQ(calls, 0);
  view = Tensor();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(freed, field.data());
  const Tensor copy = from_blob(field, {2}, {.strides = {2}, .deleter = deleter});
  EXPECT_EQ(calls, 2);
}

// Each way in which a tensor's memory is reused if nothing else refers to it.
TEST(HostMemory, IsNeverWritten) {
  testing::use_gpus(0);
  const std::vector<float> field = {1, -2, 3, -4};
  const std::vector<float> before = field;
  const auto blob = [&] { return from_blob(field, {4}); };
  EXPECT_EQ(relu(blob()).to_vector<float>(), (std::vector<float>{1, 0, 3, 0}));
  EXPECT_EQ(((blob() + 1.0f) * blob()).to_vector<float>()[1], 2);
  Tensor own = blob();
  own += 1.0f;
  own.data_ptr<float>()[0] = 9;
  Variable variable(blob());
  variable.assign_add(blob());
  optimizers::SGD sgd({.learning_rate = 1.0});
  sgd.apply_gradients({{blob(), variable}});
  EXPECT_EQ(variable.value().to_vector<float>(), before);
  const auto square = function([](const Tensor& x) { return relu(x) * x; });
  for (int call = 0; call < 3; ++call)
    EXPECT_EQ(square(blob()).to_vector<float>(), (std::vector<float>{1, 0, 9, 0}));
  {
    GradientTape tape;
    const Tensor x = blob();
    tape.watch(x);
    EXPECT_EQ(tape.gradient(reduce_sum(x * x), x).to_vector<float>(),
              (std::vector<float>{2, -4, 6, -8}));
  }
  EXPECT_EQ(field, before);
}

TEST(HostMemory, TakesElementsBack) {
  const Tensor tensor = constant({{1.5, 2.5, 3.5}, {4.5, 5.5, 6.5}});
  std::vector<double> rows(6);
  copy_to(tensor, rows);
  EXPECT_EQ(rows, (std::vector<double>{1.5, 2.5, 3.5, 4.5, 5.5, 6.5}));
  std::vector<std::int32_t> columns(8, -1);  // a Fortran array of 2 columns and a row to spare
  copy_to(tensor, columns, {.strides = {4, 1}});
  EXPECT_EQ(columns, (std::vector<std::int32_t>{1, 2, 3, -1, 4, 5, 6, -1}));
}

TEST(HostMemory, RefusesWhatDoesNotFit) {
  std::vector<float> field(6);
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(from_blob(field, {2, 2}));
      },
      "[from_blob] expected memory of 4 elements for shape (2, 2), got 6");
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(from_blob(field, {2, 2}, {.strides = {6, 1}}));
      },
      "[from_blob] expected strides inside of 6 elements of memory, got elements 0 to 7 for shape "
      "(2, 2)");
  expect_error<ShapeError>([&] { static_cast<void>(from_blob(field, {2}, {.strides = {-1}})); },
                           "got elements -1 to 0");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(from_blob(field, {2, 2}, {.strides = {1}}));
      },
      "[from_blob] expected 2 strides for shape (2, 2), got 1");
  expect_error<InvalidArgumentError>([] { static_cast<void>(from_blob(nullptr, {2})); },
                                     "[from_blob] expected memory for shape (2,), got null");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(from_blob(reinterpret_cast<const char*>(field.data()) + 1, {1}, float32));
      },
      "[from_blob] expected an address that is a multiple of 4 for float32");
  expect_error<InvalidArgumentError>(
      [&] {
        copy_to(zeros({2, 2}), field, {.strides = {1, 1}});
      },
      "[copy_to] expected strides that keep the elements of shape (2, 2) apart, got a stride of 1");
  expect_error<ShapeError>([&] { copy_to(zeros({2}), field); },
                           "[copy_to] expected memory of 2 elements for shape (2,), got 6");
}

}  // namespace
}  // namespace tandem::host_memory_test
