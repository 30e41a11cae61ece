// Branches and loops: as host code, and in traced functions.
#include <gtest/gtest.h>

#include <array>
#include <tuple>
#include <utility>

#include "support/gpus.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::control_flow_test {
namespace {

using testing::expect_error;

using Tensors = std::vector<Tensor>;

Tensor flag(bool value) { return constant(value); }

TEST(ControlFlow, EagerlyOneBranchRuns) {
  int runs = 0;
  const Tensor result = cond(
      flag(true), [&] { return constant(3.0f); },
      [&] {
        ++runs;
        return constant(4.0f);
      });
  EXPECT_EQ(result.item<float>(), 3.0f);
  EXPECT_EQ(runs, 0);
}

TEST(ControlFlow, CondChoosesInEachCall) {
  int traced = 0;
  const auto apply = function([&](const Tensor& p, const Tensor& x) {
    return cond(
        p,
        [&] {
          ++traced;
          return x * 2.0;
        },
        [&] {
          ++traced;
          return x + 100.0;
        });
  });
  const Tensor x = constant({1.0f, 2.0f});
  EXPECT_EQ(apply(flag(true), x).to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(apply(flag(false), x).to_vector<float>(), (std::vector<float>{101, 102}));
  EXPECT_EQ(apply(flag(true), x).to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(traced, 2);
}

TEST(ControlFlow, BranchesReturnStructures) {
  const auto apply = function([](const Tensor& x) {
    return cond(
        greater(reduce_sum(x), 0.0),
        [&] {
          return std::pair(x, Tensors{x * 2.0, reduce_sum(x)});
        },
        [&] {
          return std::pair(-x, Tensors{x, zeros({})});
        });
  });
  const auto [first, rest] = apply(constant({1.0f, 2.0f}));
  EXPECT_EQ(first.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(rest[0].to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(rest[1].item<float>(), 3.0f);
  const auto other = apply(constant({-1.0f, -2.0f}));
  EXPECT_EQ(other.first.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(other.second[1].item<float>(), 0.0f);
}

Tensors power(const Tensor& x, const Tensor& n) {
  return while_loop([&](const Tensors& v) { return less(v[0], n); },
                    [&](const Tensors& v) {
                      return Tensors{v[0] + ones({}, {.dtype = int32}), v[1] * x};
                    },
                    {zeros({}, {.dtype = int32}), ones_like(x)});
}

TEST(ControlFlow, WhileLoopsRunAsOftenAsTheirConditionSays) {
  const auto traced = function([](const Tensor& x, const Tensor& n) { return power(x, n); });
  const Tensor x = constant({2.0f, -1.5f});
  for (int n : {3, 0, 1, 5, 2}) {
    const Tensors eager = power(x, constant(n)), replayed = traced(x, constant(n));
    EXPECT_EQ(replayed[0].item<std::int32_t>(), n);
    EXPECT_EQ(replayed[1].to_vector<float>(), eager[1].to_vector<float>()) << n;
  }
  EXPECT_EQ(traced.num_traces(), 1u);
}

TEST(ControlFlow, MaximumIterationsEndALoop) {
  const auto run = [](const Tensor& x) {
    return while_loop([](const Tensors&) { return constant(true); },
                      [](const Tensors& v) { return Tensors{v[0] + 1.0}; }, {x},
                      {.maximum_iterations = 7})
        .front();
  };
  EXPECT_EQ(run(constant(0.5f)).item<float>(), 7.5f);
  EXPECT_EQ(function(run)(constant(0.5f)).item<float>(), 7.5f);
}

TEST(ControlFlow, LoopVariablesMayBeSwapped) {
  const auto run = [](const Tensor& n) {
    const Tensors last = while_loop([&](const Tensors& v) { return less(v[0], n); },
                                    [](const Tensors& v) {
                                      return Tensors{v[0] + 1.0, v[2], v[1] + v[2], v[3]};
                                    },
                                    {zeros({}), zeros({}), ones({}), constant(9.0f)});
    return Tensors{last[1], last[3]};
  };
  const auto traced = function(run);
  const std::vector<float> fibonacci = {0, 1, 1, 2, 3, 5, 8, 13};
  for (std::size_t i = 0; i < fibonacci.size(); ++i) {
    const Tensors result = traced(constant(static_cast<float>(i)));
    EXPECT_EQ(result[0].item<float>(), fibonacci[i]);
    EXPECT_EQ(result[1].item<float>(), 9.0f);
  }
}

// Collatz: a branch in a loop in a loop.
Tensor steps_to_one(const Tensor& limit) {
  const auto number = [](double value) { return full({}, value); };
  return while_loop([&](const Tensors& outer) { return less_equal(outer[0], limit); },
                    [&](const Tensors& outer) {
                      const Tensors inner =
                          while_loop([&](const Tensors& v) { return greater(v[0], 1.0); },
                                     [&](const Tensors& v) {
                                       const Tensor half = v[0] * 0.5;
                                       const Tensor next = cond(
                                           equal(floor(half), half), [&] { return half; },
                                           [&] { return v[0] * 3.0 + number(1.0); });
                                       return Tensors{next, v[1] + 1.0};
                                     },
                                     {outer[0], outer[1]});
                      return Tensors{outer[0] + 1.0, inner[1]};
                    },
                    {ones({}), zeros({})})[1];
}

TEST(ControlFlow, NestsToAnyDepth) {
  const auto traced = function(steps_to_one);
  for (float limit : {1.0f, 2.0f, 7.0f})
    EXPECT_EQ(traced(constant(limit)).item<float>(), steps_to_one(constant(limit)).item<float>());
}

TEST(ControlFlow, BranchesWriteVariables) {
  Variable v(constant({1.0f, 2.0f}));
  const auto step = function([&](const Tensor& p, const Tensor& x) {
    const Tensor before = v.value();
    cond(
        p, [&] { v.assign_add(x); }, [&] { v.assign(v * 10.0); });
    const Tensor after = v.value();
    v.assign_add(x);
    return std::pair(before, after);
  });
  const Tensor x = constant({1.0f, 1.0f});
  const auto [before, after] = step(flag(true), x);
  EXPECT_EQ(before.to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(after.to_vector<float>(), (std::vector<float>{2, 3}));
  EXPECT_EQ(v.value().to_vector<float>(), (std::vector<float>{3, 4}));
  const Tensor kept = v.value();
  step(flag(false), x);
  EXPECT_EQ(kept.to_vector<float>(), (std::vector<float>{3, 4}));
  EXPECT_EQ(v.value().to_vector<float>(), (std::vector<float>{31, 41}));
}

TEST(ControlFlow, ALoopReadsWhatItsIterationsWrote) {
  Variable v(constant(1.0f)), fixed(constant(3.0f));
  const auto run = [&](const Tensor& n) {
    const Tensor before = v.value();  // bodies do not change their inputs
    return while_loop([&](const Tensors& w) { return less(w[0], n); },
                      [&](const Tensors& w) {
                        v.assign(v * fixed + before);
                        return Tensors{w[0] + 1.0, w[1] + v};
                      },
                      {zeros({}), zeros({})})[1];
  };
  const Tensor n = constant(4.0f);
  const float expected = run(n).item<float>();
  const float value = v.value().item<float>();
  v.assign(constant(1.0f));
  const auto traced = function(run);
  EXPECT_EQ(traced(n).item<float>(), expected);
  EXPECT_EQ(v.value().item<float>(), value);
  fixed.assign(constant(5.0f));
  const float again = run(n).item<float>();
  v.assign(constant(value));
  EXPECT_EQ(traced(n).item<float>(), again);
}

TEST(ControlFlow, OnlyTheTakenBranchHasEffects) {
  Variable v(zeros({})), w(zeros({}));
  int traced = 0;
  const auto step = function([&](const Tensor& p) {
    cond(
        p,
        [&] {
          ++traced;
          v.assign_add(ones({}));
        },
        [&] { w.assign_add(ones({})); });
  });
  for (bool p : {true, false, false, true, false}) step(flag(p));
  EXPECT_EQ(v.value().item<float>(), 2.0f);
  EXPECT_EQ(w.value().item<float>(), 3.0f);
  EXPECT_EQ(traced, 1);
}

TEST(ControlFlow, GeneratesTheRandomNumbersOfEagerCalls) {
  const auto run = [](const Tensor& n) {
    const Tensor first = random::normal({3});
    const Tensors looped =
        while_loop([&](const Tensors& v) { return less(v[0], n); },
                   [](const Tensors& v) {
                     const Tensor noisy = v[1] + random::uniform({3});
                     const Tensor more = cond(
                         greater(reduce_sum(noisy), 3.0),
                         [&] { return noisy + random::normal({3}); }, [&] { return noisy; });
                     return Tensors{v[0] + 1.0, more};
                   },
                   {zeros({}), first});
    return looped[1] + random::normal({3});
  };
  const auto traced = function(run);
  for (float n : {0.0f, 3.0f, 1.0f, 6.0f}) {
    random::set_seed(11);
    const std::vector<float> eager = run(constant(n)).to_vector<float>();
    const std::uint64_t offset = random::get_state().offset;
    random::set_seed(11);
    EXPECT_EQ(traced(constant(n)).to_vector<float>(), eager) << n;
    EXPECT_EQ(random::get_state().offset, offset);
  }
}

TEST(ControlFlow, OneTraceServesEverySizeOfItsSignature) {
  const auto traced = function(
      [](const Tensor& x) {
        const Tensors last =
            while_loop([](const Tensors& v) { return less(reduce_sum(v[0]), 100.0); },
                       [&](const Tensors& v) {
                         return Tensors{v[0] + x, v[1] + 1.0};
                       },
                       {x, zeros({})});
        return cond(
            greater(last[1], 10.0), [&] { return last[0] * 2.0; }, [&] { return -last[0]; });
      },
      {.input_signature = {{.shape = {-1, 2}}}});
  EXPECT_EQ(traced(ones({1, 2})).to_vector<float>(), (std::vector<float>{100, 100}));
  EXPECT_EQ(traced(ones({3, 2})).to_vector<float>(), std::vector<float>(6, 34));
  EXPECT_EQ(traced(full({5, 2}, 5.0)).to_vector<float>(), std::vector<float>(10, -10));
  EXPECT_EQ(traced.num_traces(), 1u);
}

TEST(ControlFlow, BodiesSpreadOverDevices) {
  testing::use_gpus(2, 64);
  Variable v;
  {
    const DeviceScope gpu("/gpu:1");
    v = Variable(constant({1.0f, 1.0f}));
  }
  const auto run = [&](const Tensor& x, const Tensor& n) {
    return while_loop([&](const Tensors& w) { return less(w[0], n); },
                      [&](const Tensors& w) {
                        Tensor sum;
                        {
                          const DeviceScope cpu("/cpu:0");
                          sum = w[1] + x;
                        }
                        {
                          const DeviceScope gpu("/gpu:1");
                          v.assign_add(sum);
                        }
                        const DeviceScope gpu("/gpu:0");
                        return Tensors{w[0] + 1.0,
                                       cond(
                                           greater(reduce_sum(sum), 5.0), [&] { return sum - v; },
                                           [&] { return sum * v; })};
                      },
                      {zeros({}), x});
  };
  const Tensor x = constant({0.5f, 0.25f}), n = constant(6.0f);
  const std::vector<float> eager = run(x, n)[1].to_vector<float>();
  const std::vector<float> value = v.value().to_vector<float>();
  v.assign(constant({1.0f, 1.0f}));
  EXPECT_EQ(function(run)(x, n)[1].to_vector<float>(), eager);
  EXPECT_EQ(v.value().to_vector<float>(), value);
}

TEST(ControlFlow, LayersAreBuiltInABody) {
  const auto run = [](bool traced) {
    random::set_seed(8);
    Sequential model({layers::Dense(4, {.activation = "tanh"}), layers::Dense(2)});
    const auto forward = [&](const Tensor& x) {
      return cond(
          greater(reduce_sum(x), 0.0), [&] { return model(x); },
          [&] {
            return zeros({3, 2});
          });
    };
    const Tensor x = ones({3, 5});
    return (traced ? function(forward)(x) : forward(x)).to_vector<float>();
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(ControlFlow, InvalidBodiesAreRefused) {
  const Tensor x = constant({1.0f, 2.0f});
  expect_error<InvalidArgumentError>(
      [&] {
        cond(
            x, [&] { return x; }, [&] { return x; });
      },
      "[cond] expected a scalar of bool to decide, got shape (2,) and dtype float32");
  const auto branches = [&](auto then_fn, auto else_fn) {
    function([=](const Tensor& p) { return cond(p, then_fn, else_fn); })(constant(true));
  };
  expect_error<InvalidArgumentError>(
      [&] {
        branches([=] { return Tensors{x, x}; }, [=] { return Tensors{x}; });
      },
      "must have the same number, type, and overall structure of return values.");
  expect_error<InvalidArgumentError>(
      [&] { branches([=] { return x; }, [=] { return x.to(float64); }); },
      "false_fn output: tensor 0 of shape (2,) and dtype float64");
  expect_error<InvalidArgumentError>(
      [&] { branches([=] { return x; }, [=] { return reduce_sum(x); }); },
      "true_fn output:  tensor 0 of shape (2,)");

  const auto yes = [](const Tensors&) { return constant(true); };
  const auto loop = [&](bool traced, const auto& condition, const auto& body,
                        const Tensors& start) {
    const auto run = [&] { return while_loop(condition, body, start, {.maximum_iterations = 2}); };
    traced ? function(run)() : run();
  };
  for (bool traced : {false, true}) {
    expect_error<InvalidArgumentError>(
        [&] { loop(traced, yes, [](const Tensors& v) { return v; }, {}); },
        "No loop variables provided.");
    expect_error<InvalidArgumentError>(
        [&] {
          loop(traced, yes, [](const Tensors& v) { return Tensors{v[0], v[0]}; }, {x});
        },
        "The two structures don't have the same nested structure");
    expect_error<InvalidArgumentError>(
        [&] { loop(traced, yes, [](const Tensors& v) { return Tensors{v[0].to(float64)}; }, {x}); },
        "enters the loop with dtype float32, but has dtype float64 after one iteration.");
    expect_error<InvalidArgumentError>(
        [&] { loop(traced, yes, [](const Tensors& v) { return Tensors{v[0][0]}; }, {x}); },
        "enters the loop with shape (2,), but has shape () after one iteration.");
    expect_error<InvalidArgumentError>(
        [&] {
          loop(
              traced, [](const Tensors& v) { return v[0]; }, [](const Tensors& v) { return v; },
              {x});
        },
        "[while_loop] expected a scalar of bool to decide");
  }
}

TEST(ControlFlow, AnErrorInABodyPropagates) {
  Variable seen(zeros({}));
  const auto step = function([&](const Tensor& labels) {
    return while_loop([](const Tensors& v) { return less(v[0], 3.0); },
                      [&](const Tensors& v) {
                        seen.assign_add(ones({}));
                        return Tensors{v[0] + 1.0,
                                       v[1] + reduce_sum(nn::sparse_softmax_cross_entropy(
                                                  labels, zeros({2, 3})))};
                      },
                      {zeros({}), zeros({})})[1];
  });
  EXPECT_THROW(step(constant({1, 7})).item<float>(), InvalidArgumentError);
  EXPECT_NEAR(step(constant({1, 2})).item<float>(), 6 * std::log(3.0f), 1e-4f);
}

// The callable then runs eagerly.
TEST(ControlFlow, GradientsCanBeComputedOutsideTheFunction) {
  const Variable w(constant(3.0f));
  int calls = 0;
  const auto f = function([&](const Tensor& x) {
    ++calls;
    const Tensor y = cond(
        greater(x, 0.0), [&] { return x * w; }, [&] { return x * w * w; });
    return while_loop([](const std::vector<Tensor>& v) { return less(v[0], 100.0); },
                      [](const std::vector<Tensor>& v) { return std::vector<Tensor>{v[0] * 2.0}; },
                      {square(y)})
        .front();
  });
  const auto gradient = [&](float at) {
    GradientTape tape;
    return tape.gradient(f(constant(at)), w).item<float>();
  };
  for (int round = 0; round < 2; ++round) {
    EXPECT_FLOAT_EQ(gradient(2.0f), 4.0f * 2.0f * 4.0f * 3.0f);  // 4 (2 w)^2
    EXPECT_FLOAT_EQ(gradient(-1.0f), 2.0f * 4.0f * 27.0f);       // 2 w^4
  }
  EXPECT_EQ(calls, 1 + 4);
  const NoGradScope no_grad;
  EXPECT_FLOAT_EQ(f(constant(2.0f)).item<float>(), 144.0f);
  EXPECT_FLOAT_EQ(f(constant(-1.0f)).item<float>(), 162.0f);
  EXPECT_EQ(calls, 1 + 4 + 1);
}

// --- loops whose callables take the loop variables one by one ---

// 2 to the power of n, eagerly and traced.
template <class Loop>
void expect_powers(const Loop& loop) {
  const auto traced = function(loop);
  for (const int n : {0, 1, 5}) {
    const float expected = static_cast<float>(1 << n);
    EXPECT_EQ(loop(constant(n)).template item<float>(), expected) << n;
    EXPECT_EQ(traced(constant(n)).template item<float>(), expected) << n;
  }
}

TEST(WhileLoop, PassesTheLoopVariables) {
  expect_powers([](const Tensor& n) {
    return while_loop([&](Tensor i, Tensor) { return i < n; },
                      [](Tensor i, Tensor power) {
                        return Tensors{i + 1, power * 2.0};
                      },
                      {constant(0), ones({})})[1];
  });
  expect_powers([](const Tensor& n) {
    return while_loop([&](const Tensors& v) { return v[0] < n; },
                      [](auto i, auto power) {
                        return std::array<Tensor, 2>{i + 1, power * 2.0};
                      },
                      {constant(0), ones({})})[1];
  });
}

TEST(WhileLoop, OfATupleReturnsATuple) {
  expect_powers([](const Tensor& n) {
    const auto [i, power] =
        while_loop([&](Tensor i, Tensor) { return i < n; },
                   [](Tensor i, Tensor power) { return std::make_tuple(i + 1, power * 2.0); },
                   {constant(0), ones({})});
    return power;
  });
  expect_powers([](const Tensor& n) {
    const std::pair<Tensor, Tensor> last =
        while_loop([&](Tensor i, Tensor) { return i < n; },
                   [](Tensor i, Tensor power) { return std::pair(i + 1, power * 2.0); },
                   {constant(0), ones({})});
    return last.second;
  });
}

TEST(WhileLoop, OfOneVariable) {
  const Tensors last = while_loop([](Tensor i) { return i < 5; }, [](Tensor i) { return i + 2; },
                                  {constant(0)}, {.maximum_iterations = 2});
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(last[0].item<std::int32_t>(), 4);
}

TEST(WhileLoop, OfAnotherNumberOfVariablesThrows) {
  const auto both = [](Tensor i, Tensor) { return i < 5; };
  const auto next = [](Tensor i, Tensor x) { return std::pair(i + 1, x); };
  expect_error<InvalidArgumentError>([&] { while_loop(both, next, {constant(0)}); },
                                     "[while_loop] the result of the body has 2 tensors, but there "
                                     "are 1 loop variables");
  expect_error<InvalidArgumentError>(
      [&] { while_loop(both, [](const Tensors& v) { return v; }, {constant(0)}); },
      "[while_loop] the condition has 2 tensors");
}

// An example converts to a tensor if it has one component, and remains an example all the same.
TEST(ControlFlow, BranchesReturnExamples) {
  const Tensor x = constant({1.0f, 2.0f});
  const auto branches = [&](const Tensor& which) {
    return cond(
        which,
        [&] {
          return data::Example{x, x * 2.0};
        },
        [&] {
          return data::Example{x * 3.0, x};
        });
  };
  EXPECT_EQ(branches(flag(true))[1].to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(function(branches)(flag(false))[0].to_vector<float>(), (std::vector<float>{3, 6}));
}

}  // namespace
}  // namespace tandem::control_flow_test
