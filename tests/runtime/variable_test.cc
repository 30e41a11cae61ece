#include "tandem/variable.h"
#include "support/gpus.h"

#include <gtest/gtest.h>

#include "runtime/variable_impl.h"
#include "tandem/tandem.h"
#include "tensor/tensor_impl.h"

namespace tandem::variable_test {
namespace {

TEST(Variable, AReaderKeepsTheValueItRead) {
  Variable v(constant({1.0, 2.0}));
  const Tensor before = v;
  v.assign(constant({3.0, 4.0}));
  EXPECT_EQ(before.to_vector<float>(), (std::vector<float>{1.0f, 2.0f}));
  EXPECT_EQ(v.value().to_vector<float>(), (std::vector<float>{3.0f, 4.0f}));
}

TEST(Variable, AssigningWithoutReadersWritesInPlace) {
  Variable v(constant({1.0, 2.0}));
  const std::byte* memory = impl_of(v.value()).data();
  v.assign(constant({3.0, 4.0}));
  EXPECT_EQ(impl_of(v.value()).data(), memory);
  v.assign_add(constant({1.0, 1.0}));
  v.assign_sub(constant({0.5, 0.5}));
  EXPECT_EQ(impl_of(v.value()).data(), memory);
  EXPECT_EQ(v.value().to_vector<float>(), (std::vector<float>{3.5f, 4.5f}));
}

TEST(Variable, ListsOfNumbersHaveItsDtype) {
  Variable v(constant({1, 2}));
  v.assign({3, 4});
  v.assign_add({1, 1.0});
  v.assign_sub({0, 2});
  EXPECT_EQ(v.value().to_vector<std::int32_t>(), (std::vector<std::int32_t>{4, 3}));
  EXPECT_THROW(v.assign({1, 2, 3}), InvalidArgumentError);
  EXPECT_THROW(v.assign({0.5, 2}), InvalidArgumentError);
}

TEST(Variable, DoesNotShareMemoryWithItsInitialValue) {
  const Tensor initial = constant({1.0});
  Variable v(initial);
  v.assign(constant({2.0}));
  EXPECT_EQ(initial.to_vector<float>(), std::vector<float>{1.0f});
}

TEST(Variable, ShapesAndTypesMustAgree) {
  Variable v(constant({1.0, 2.0}), {.name = "dense/bias"});
  try {
    v.assign(constant({1.0, 2.0, 3.0}));
    FAIL();
  } catch (const InvalidArgumentError& error) {
    EXPECT_STREQ(error.what(),
                 "[assign] variable 'dense/bias' has shape (2,) and dtype float32, got shape (3,) "
                 "and dtype float32");
  }
  EXPECT_THROW(v.assign(constant({1, 2})), InvalidArgumentError);
}

TEST(Variable, IntegersAreNotTrainable) { EXPECT_FALSE(Variable(constant(1)).trainable()); }

TEST(Variable, HandlesShareTheVariable) {
  Variable a(constant(1.0));
  Variable b = a;
  b.assign(constant(2.0));
  EXPECT_EQ(a.value().item<float>(), 2.0f);
  EXPECT_TRUE(a == b);
  EXPECT_FALSE(a == Variable(constant(2.0)));
}

TEST(Variable, UndefinedVariablesAreReported) {
  EXPECT_THROW(Variable().value(), FailedPreconditionError);
}

TEST(Variable, IsOnTheDeviceOfTheScope) {
  testing::use_gpus(2);
  DeviceScope gpu("/gpu:1");
  Variable v(constant(1.0));
  EXPECT_EQ(v.device(), "/job:localhost/replica:0/task:0/device:GPU:1");
  DeviceScope cpu("/cpu:0");
  v.assign(constant(5.0));
  EXPECT_EQ(v.device(), "/job:localhost/replica:0/task:0/device:GPU:1");
  EXPECT_EQ(v.value().item<float>(), 5.0f);
}

TEST(Variable, HasTheDtypeOfItsOptions) {
  EXPECT_EQ(Variable(0, {.dtype = int64}).dtype(), int64);
  EXPECT_EQ(Variable(std::int64_t{1}, {.dtype = float32}).dtype(), float32);
  const Variable cast(constant({1.5, 2.0}), {.trainable = false, .dtype = int32});
  EXPECT_EQ(cast.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 2}));
}

}  // namespace
}  // namespace tandem::variable_test
