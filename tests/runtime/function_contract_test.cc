// What td::function promises beyond running: variables, signatures, where it may be called.
#include <gtest/gtest.h>

#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing::expect_error;

TEST(FunctionContract, VariablesMayBeMadeInTheFirstCall) {
  Variable v;
  const auto step = function([&](const Tensor& x) {
    if (!v.defined()) v = Variable(multiply(ones({2}), 3.0), {.name = "v"});
    v.assign_add(x);
    return v.value();
  });
  EXPECT_EQ(step(constant({1.0f, 2.0f})).to_vector<float>(), (std::vector<float>{4, 5}));
  EXPECT_EQ(step(constant({1.0f, 2.0f})).to_vector<float>(), (std::vector<float>{5, 7}));
}

TEST(FunctionContract, VariablesThatEachCallWouldMakeAreRefused) {
  const auto step = function([](const Tensor& x) {
    const Variable v(zeros({2}), {.name = "mine"});
    return x + v;
  });
  expect_error<InvalidArgumentError>(
      [&] {
        step(constant({1.0f, 2.0f}));
      },
      "tf.function-decorated function tried to create variables on non-first call.");
  Variable late;
  bool make = false;
  const auto other = function([&](const Tensor& x) {
    if (make) late = Variable(zeros({2}), {.name = "late"});
    return x;
  });
  other(constant({1.0f, 2.0f}));
  make = true;
  expect_error<InvalidArgumentError>([&] { other(constant({1.0f})); }, "'late'");
}

TEST(FunctionContract, AnInitialValueMayNotDependOnTheArguments) {
  Variable v;
  const auto step = function([&](const Tensor& x) {
    if (!v.defined()) v = Variable(x * 2.0, {.name = "v"});
    return v.value();
  });
  expect_error<InvalidArgumentError>([&] { step(constant({1.0f})); },
                                     "depends on the arguments of the function");
}

TEST(FunctionContract, LayersAreBuiltInTheFirstCallAsTheyWouldBeEagerly) {
  const Tensor x = ones({2, 3});
  const auto run = [&](bool traced) {
    random::set_seed(4);
    Sequential model({layers::Dense(4, {.activation = "relu"}), layers::Dense(2)});
    const auto forward = [&](const Tensor& input) { return model(input); };
    const auto replayed = function(forward);
    return (traced ? replayed(x) : forward(x)).to_vector<float>();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(FunctionContract, OneTraceServesEverySizeOfItsSignature) {
  int traced = 0;
  const Variable w(constant({1.0f, 2.0f, 3.0f}));
  const auto apply = function(
      [&](const Tensor& x) {
        ++traced;
        return reduce_sum(x * w, {.axis = Dims{1}}) + 1.0;
      },
      {.input_signature = {{.shape = {-1, 3}}}});
  EXPECT_EQ(apply(ones({2, 3})).to_vector<float>(), (std::vector<float>{7, 7}));
  EXPECT_EQ(apply(ones({1, 3})).to_vector<float>(), (std::vector<float>{7}));
  EXPECT_EQ(apply(ones({4, 3})).shape(), Shape({4}));
  EXPECT_EQ(traced, 1);
  expect_error<InvalidArgumentError>(
      [&] {
        apply(ones({2, 4}));
      },
      "expected shape (?, 3) and dtype float32, got (2, 4)");
  expect_error<InvalidArgumentError>(
      [&] {
        apply(ones({2, 3}, {.dtype = float64}));
      },
      "does not suit input_signature");
}

TEST(FunctionContract, NestedResultsAndAbsentTensors) {
  const auto parts = function([](const std::vector<Tensor>& given, const std::string& mode) {
    std::vector<Tensor> result = {given[0] * 2.0, Tensor()};
    if (mode == "both") result[1] = given[1] * 3.0;
    return std::pair(result, 7);
  });
  const std::vector<Tensor> given = {constant({1.0f}), constant({2.0f})};
  const auto [one, seven] = parts(given, std::string("one"));
  EXPECT_EQ(one[0].item<float>(), 2.0f);
  EXPECT_FALSE(one[1].defined());
  EXPECT_EQ(seven, 7);
  EXPECT_EQ(parts(given, std::string("both")).first[1].item<float>(), 6.0f);
  EXPECT_EQ(
      parts(std::vector<Tensor>{given[0], Tensor()}, std::string("one")).first[0].item<float>(),
      2.0f);
  EXPECT_EQ(parts.num_traces(), 3u);
}

}  // namespace
}  // namespace tandem
