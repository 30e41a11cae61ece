// Random programs whose inputs have unknown sizes on random axes give the bits of known ones.
//
// A program is planned with known sizes, so that each step is possible, and its steps compute with
// the sizes of their operands.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "function/random_network_steps.h"
#include "support/errors.h"
#include "support/outcomes.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::random_sizes_test {
namespace {

using testing::Choices;
using Tensors = std::vector<Tensor>;
using Step = std::function<Tensor(const Tensors&)>;
using Unary = std::function<Tensor(const Tensor&)>;

bool broadcasts(const Shape& a, const Shape& b) {
  for (int i = 1; i <= std::min(a.rank(), b.rank()); ++i)
    if (a.dim(-i) != b.dim(-i) && a.dim(-i) != 1 && b.dim(-i) != 1) return false;
  return true;
}

// A step of one tensor of rank 1 to 3.
Unary unary_step(Choices& choices, const Shape& shape) {
  const int rank = shape.rank(), axis = choices.pick(rank);
  const std::int64_t size = shape[axis], from = choices.pick(static_cast<int>(size)),
                     after = choices.pick(static_cast<int>(size - from));
  switch (choices.pick(17)) {
    case 0: return [](const Tensor& x) { return tanh(x); };
    case 1: return [axis](const Tensor& x) { return nn::softmax(x, axis); };
    case 2:
      if (rank == 1) break;
      return [axis](const Tensor& x) { return reduce_sum(x, {.axis = axis}); };
    case 3:
      return
          [axis](const Tensor& x) { return x - reduce_mean(x, {.axis = axis, .keepdims = true}); };
    case 4: return [axis](const Tensor& x) { return concat({x, cumsum(x, axis)}, axis); };
    case 5: return [](const Tensor& x) { return reshape(x, {x.dim(0), -1}); };
    case 6: return [](const Tensor& x) { return reshape(x, {x.size()}); };
    case 7: return [](const Tensor& x) { return transpose(x); };
    case 8: return [=](const Tensor& x) { return x.slice(axis, from, x.dim(axis) - after); };
    case 9: return [=](const Tensor& x) { return x.narrow(axis, from, x.dim(axis) - from); };
    case 10:
      return [](const Tensor& x) {
        std::vector<std::pair<Dim, Dim>> paddings(static_cast<std::size_t>(x.rank()), {0, 1});
        paddings[0] = {x.dim(-1) % 2, x.dim(0) / 2};
        return pad(x, paddings);
      };
    case 11: return [](const Tensor& x) { return x / x.dim(0) + max(x.dim(-1), 2) * x; };
    case 12:
      return [](const Tensor& x) {
        return x + linspace(0, 1, x.dim(-1)) - range(x.dim(-1), {.dtype = float32}) / x.size();
      };
    case 13:
      return [](const Tensor& x) { return broadcast_to(reduce_max(x), {x.dim(-1), x.dim(0)}); };
    case 14:
      if (size % 2 != 0) break;
      return [axis](const Tensor& x) {
        const std::vector<Tensor> halves = split(x, 2, {.axis = axis});
        return multiply(halves[0], halves[1]);
      };
    case 15:
      return
          [axis](const Tensor& x) { return identity(squeeze(expand_dims(x, axis), Dims{axis})); };
    default: return [](const Tensor& x) { return ones({x.dim(0) + 1, x.dim(-1)}) * x.dim(0); };
  }
  return [](const Tensor& x) { return x * x; };
}

// A step of two tensors; none if their shapes do not allow it.
Step binary_step(Choices& choices, const Tensors& values, std::size_t i, std::size_t j) {
  const Shape &a = values[i].shape(), &b = values[j].shape();
  const int kind = choices.pick(5);
  if (kind == 0 && a.rank() == 2 && b.rank() == 2)
    return [=](const Tensors& v) { return matmul(v[i], ones({v[i].dim(1), v[j].dim(0)})); };
  if (kind == 1 && a.rank() == b.rank() && a.without_leading(1) == b.without_leading(1))
    return [=](const Tensors& v) { return concat({v[i], v[j]}, 0); };
  if (kind == 2)
    return [=](const Tensors& v) {
      return v[i] * (max(v[i].dim(0), v[j].dim(0)) - min(v[i].dim(0), v[j].dim(0)));
    };
  if (!broadcasts(a, b) || std::max(a.rank(), b.rank()) > 3) return {};
  if (kind == 3) return [=](const Tensors& v) { return where(greater(v[i], 0.0), v[i], v[j]); };
  return [=](const Tensors& v) { return v[i] + v[j]; };
}

struct Program {
  Tensors inputs;
  std::vector<Step> steps;
};

Program plan(Choices& choices, std::uint32_t seed) {
  Program program;
  for (int i = 0; i < 2; ++i) {
    Dims sizes;
    const int rank = 1 + choices.pick(3);
    for (int axis = 0; axis < rank; ++axis) sizes.push_back(1 + choices.pick(4));
    program.inputs.push_back(testing::random_tensor(
        Shape(sizes), seed * 10 + static_cast<unsigned>(i), -1.0, 1.0, float32));
  }
  Tensors values = program.inputs;
  while (program.steps.size() < 8) {
    const auto pick = [&] {
      return static_cast<std::size_t>(choices.pick(static_cast<int>(values.size())));
    };
    const std::size_t i = pick(), j = pick();
    Step step;
    if (choices.pick(3) == 0) step = binary_step(choices, values, i, j);
    if (!step)
      step = [i, unary = unary_step(choices, values[i].shape())](const Tensors& v) {
        return unary(v[i]);
      };
    const Tensor value = step(values);
    if (value.rank() < 1 || value.rank() > 3 || value.size() > 500 || value.size() == 0) continue;
    values.push_back(value);
    program.steps.push_back(std::move(step));
  }
  return program;
}

// The values of all steps, and the gradients of their sum.
Tensors results_of(const Program& program, const Tensors& inputs) {
  GradientTape tape;
  for (const Tensor& input : inputs) tape.watch(input);
  Tensors values = inputs;
  for (const Step& step : program.steps) values.push_back(step(values));
  Tensor sum = zeros({});
  for (const Tensor& value : values) sum = sum + reduce_sum(value);
  Tensors results(values.begin() + std::ssize(inputs), values.end());
  for (const Tensor& gradient : tape.gradient(sum, inputs)) results.push_back(gradient);
  return results;
}

TEST(RandomUnknownSizes, GiveTheBitsOfKnownOnes) {
  testing::for_each_seed(400, [](std::uint32_t seed) {
    Choices choices(seed);
    const Program program = plan(choices, seed);
    std::vector<InputSpec> signature;
    std::string axes;
    for (const Tensor& input : program.inputs) {
      Shape shape = input.shape();
      for (int axis = 0; axis < shape.rank(); ++axis)
        if (choices.pick(3) > 0) shape.set(axis, -1);
      axes += shape.to_string();
      signature.push_back({shape, float32});
    }
    SCOPED_TRACE("seed " + std::to_string(seed) + ", shapes " + axes);
    const auto traced = function([&](const Tensors& inputs) { return results_of(program, inputs); },
                                 {.input_signature = signature});
    const Tensors expected = results_of(program, program.inputs);
    Tensors got;
    EXPECT_EQ(testing::any_error_of([&] { got = traced(program.inputs); }), "no error");
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].shape(), expected[i].shape()) << "result " << i;
      EXPECT_EQ(testing::bits_of(got[i]), testing::bits_of(expected[i])) << "result " << i;
    }
  });
}

}  // namespace
}  // namespace tandem::random_sizes_test
