// The operation of all steps of an LSTM against the same steps composed of operations.
#include "ops/nn/lstm.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/errors.h"
#include "support/gradient_check.h"
#include "support/tensors.h"
#include "support/thread_counts.h"
#include "tandem/tandem.h"

namespace tandem::nn_lstm_test {
namespace {

using namespace testing;
using Tensors = std::vector<Tensor>;

// {hidden states, last cell} from {products, first hidden state, first cell, recurrent kernel}.
Tensors at_once(const Tensors& in, const LstmAttrs& attrs) {
  const LstmStates states = lstm_steps(in[0], in[1], in[2], in[3], attrs);
  return {states.hidden, states.last_cell};
}

Tensors composed(const Tensors& in, const LstmAttrs& attrs) {
  const int time = attrs.time_major ? 0 : 1;
  const Tensors x = unstack(in[0], time);
  Tensors hidden(x.size());
  Tensor h = in[1], c = in[2];
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t t = attrs.go_backwards ? x.size() - 1 - i : i;
    const Tensors z = split(x[t] + matmul(h, in[3]), 4, {.axis = 1});
    c = sigmoid(z[1]) * c + sigmoid(z[0]) * tanh(z[2]);
    h = hidden[t] = sigmoid(z[3]) * tanh(c);
  }
  return {stack(hidden, time), c};
}

Tensors inputs_of(std::int64_t batch, std::int64_t steps, std::int64_t units, bool time_major,
                  DType dtype = float64) {
  const Shape sequence =
      time_major ? Shape{steps, batch, 4 * units} : Shape{batch, steps, 4 * units};
  return {random_tensor(sequence, 1, -2, 2, dtype), random_tensor({batch, units}, 2, -1, 1, dtype),
          random_tensor({batch, units}, 3, -1, 1, dtype),
          random_tensor({units, 4 * units}, 4, -0.5, 0.5, dtype)};
}

// A number that depends on all states.
Tensor sum_of(const Tensors& states) {
  return reduce_sum(square(states[0])) + 2.0 * reduce_sum(square(states[1]));
}

// The states, and the gradients of sum_of().
template <class Steps>
Tensors results_of(const Steps& steps, const Tensors& in, const LstmAttrs& attrs) {
  GradientTape tape;
  for (const Tensor& each : in) tape.watch(each);
  Tensors results = steps(in, attrs);
  for (Tensor& gradient : tape.gradient(sum_of(results), in))
    results.push_back(std::move(gradient));
  return results;
}

const std::vector<LstmAttrs> kOrders = {
    {}, {.go_backwards = true}, {.time_major = true}, {.go_backwards = true, .time_major = true}};

TEST(LstmSteps, EqualComposedSteps) {
  for (const DType dtype : kFloatingTypes)
    for (const LstmAttrs& attrs : kOrders)
      for (const std::int64_t batch : {1, 3})
        for (const std::int64_t steps : {1, 5}) {
          SCOPED_TRACE(::testing::Message() << name_of(dtype) << " batch " << batch << " steps "
                                            << steps << " backwards " << attrs.go_backwards
                                            << " time_major " << attrs.time_major);
          const Tensors in = inputs_of(batch, steps, 17, attrs.time_major, dtype);
          const Tensors got = results_of(at_once, in, attrs);
          // Composed steps round 16-bit states, so these are compared with float64.
          Tensors wide;
          for (const Tensor& each : in) wide.push_back(cast(each, float64));
          const Tensors expected = results_of(composed, wide, attrs);
          for (std::size_t i = 0; i < expected.size(); ++i) {
            SCOPED_TRACE(i);
            expect_tensor(got[i], dtype, expected[i].shape(), values_of(expected[i]),
                          20 * epsilon_of(dtype));
          }
        }
}

TEST(LstmSteps, GatesMayTakeTheMemoryOfTheProducts) {
  for (const DType dtype : kFloatingTypes)
    for (const LstmAttrs& attrs : kOrders) {
      const Tensors in = inputs_of(3, 5, 4, attrs.time_major, dtype);
      const std::vector<double> products = values_of(in[0]);
      const LstmStates kept = lstm_steps(in[0], in[1], in[2], in[3], attrs);
      EXPECT_EQ(values_of(in[0]), products);
      const LstmStates moved = lstm_steps(in[0] * 1.0, in[1], in[2], in[3], attrs);
      EXPECT_EQ(values_of(moved.hidden), values_of(kept.hidden)) << name_of(dtype);
      EXPECT_EQ(values_of(moved.last_cell), values_of(kept.last_cell)) << name_of(dtype);
    }
}

TEST(LstmSteps, GradientsAreThoseOfDifferences) {
  for (const LstmAttrs& attrs : kOrders) {
    const Tensors in = inputs_of(2, 3, 2, attrs.time_major);
    const auto both = [&](const Tensors& x) {
      const Tensors states = at_once(x, attrs);
      return concat({reshape(states[0], {-1}), reshape(states[1], {-1})}, 0);
    };
    expect_gradients(both, in);
    expect_second_order(both, in, {.tolerance = 1e-5});
    for (const std::size_t output : {0, 1})
      expect_gradients([&](const Tensors& x) { return at_once(x, attrs)[output]; }, in);
  }
}

TEST(LstmSteps, TracesOfUnknownSizesEqualEagerCalls) {
  for (const LstmAttrs& attrs : kOrders) {
    const auto eager = [&](const Tensors& in) { return results_of(at_once, in, attrs); };
    const auto traced = function(
        eager,
        {.input_signature = {
             {{-1, -1, 12}, float64}, {{-1, 3}, float64}, {{-1, 3}, float64}, {{3, 12}, float64}}});
    for (const std::int64_t batch : {2, 3})
      for (const std::int64_t steps : {1, 4}) {
        const Tensors in = inputs_of(batch, steps, 3, attrs.time_major);
        const Tensors got = traced(in), expected = eager(in);
        // Where there is a GPU, it sums the products of a trace in another order.
        for (std::size_t i = 0; i < expected.size(); ++i)
          expect_tensor(got[i], float64, expected[i].shape(), values_of(expected[i]), 1e-14);
      }
  }
}

TEST(LstmSteps, SecondDerivativesNeedAKnownNumberOfSteps) {
  const auto traced = function(
      [](const Tensor& x) {
        GradientTape tape({.persistent = true});
        tape.watch(x);
        Tensors in = inputs_of(2, 1, 3, false);
        in[0] = x;
        return tape.gradient(sum_of(at_once(in, {})), x);
      },
      {.input_signature = {{{2, -1, 12}, float64}}});
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(traced(inputs_of(2, 2, 3, false)[0])); },
      "the number of operations of a second derivative");
}

TEST(LstmSteps, NoExamplesHaveNoStatesAndAZeroGradient) {
  const Tensors results = results_of(at_once, inputs_of(0, 3, 2, false), {});
  EXPECT_EQ(results[0].shape(), (Shape{0, 3, 2}));
  expect_tensor(results[5], float64, {2, 8}, std::vector<double>(16));
}

TEST(LstmStepsSlow, DoNotDependOnTheNumberOfThreads) {
  expect_same_bits_with_any_team([] {
    std::vector<double> values;
    for (const DType dtype : {float32, float64, bfloat16})
      for (const std::int64_t units : {5, 64, 256})
        for (const std::int64_t batch : {1, 3, 33})
          for (const Tensor& each :
               results_of(at_once, inputs_of(batch, 3, units, false, dtype), {}))
            for (const double value : values_of(each)) values.push_back(value);
    return values;
  });
}

// The steps of a layer are an operation on CPUs, and composed of operations elsewhere.
TEST(LstmSteps, LayersHaveThemOnCpus) {
  config::set_emulated_gpus(1, 64);
  const auto has_operation = [](const char* device, const layers::LSTMOptions& options) {
    const layers::LSTM layer(2, options);
    layer(ones({1, 1, 3}));
    Graph graph;
    const GraphScope building(graph);
    const DeviceScope scope(device);
    layer(placeholder(float32, {2, 3, 3}));
    for (const Graph::Operation& operation : graph.operations())
      if (operation.type() == "LstmSteps") return true;
    return false;
  };
  EXPECT_TRUE(has_operation("/cpu:0", {}));
  EXPECT_FALSE(has_operation("/gpu:0", {}));
  EXPECT_FALSE(has_operation("/tpu:0", {}));
  EXPECT_FALSE(has_operation("", {}));
  EXPECT_FALSE(has_operation("/cpu:0", {.activation = "relu"}));
  EXPECT_FALSE(has_operation("/cpu:0", {.recurrent_activation = "hard_sigmoid"}));
}

TEST(LstmSteps, MistakesAreNamed) {
  const auto expect = [](std::size_t input, const Tensor& wrong, const char* message) {
    Tensors in = inputs_of(2, 3, 4, false);
    in[input] = wrong;
    expect_error<InvalidArgumentError>([&] { at_once(in, {}); }, message);
  };
  const auto of = [](const Shape& shape) { return zeros(shape, {.dtype = float64}); };
  expect(0, of({2, 3, 12}), "expected a sequence of 1 or more steps of 4 x 4 gates");
  expect(0, of({2, 0, 16}), "expected a sequence of 1 or more steps of 4 x 4 gates");
  expect(1, of({3, 4}), "[LstmSteps] expected a first hidden state of shape (2, 4), got (3, 4)");
  expect(2, of({2, 5}), "[LstmSteps] expected a first cell of shape (2, 4), got (2, 5)");
  expect(3, of({4, 12}), "[LstmSteps] expected a recurrent kernel of shape (4, 16), got (4, 12)");
  expect(3, of({4}), "[LstmSteps] expected a recurrent kernel (units, 4 units), got shape (4,)");
  Tensors in = inputs_of(2, 3, 4, false);
  in[2] = cast(in[2], float32);
  expect_error<DTypeError>([&] { at_once(in, {}); },
                           "[LstmSteps] expected one dtype, got float64 and float32");
}

}  // namespace
}  // namespace tandem::nn_lstm_test
