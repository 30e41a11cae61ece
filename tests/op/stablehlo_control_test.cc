// Branches, loops and their gradients through a PJRT plug-in: they compute what the CPU computes,
// with the same random numbers.
#include <gtest/gtest.h>

#include <functional>

#include "graph/graph.h"
#include "op/context.h"
#include "op/lowered_run.h"
#include "support/errors.h"
#include "tandem/tandem.h"

namespace tandem::stablehlo_control_test {
namespace {

using testing::expect_lowered, testing::Step, testing::Tensors;

class LoweredControlFlow : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
    random::set_seed(17);
  }
};

Tensor steps(std::int64_t count) { return constant(count); }

// Adds `body` to a sum as often as the first input says.
Tensor repeated(const Tensor& count, const std::function<Tensor(const Tensor& sum)>& body,
                const Tensor& start, const WhileOptions& options = {}) {
  return while_loop([&](const Tensors& v) { return less(v[0], cast(count, int64)); },
                    [&](const Tensors& v) {
                      return Tensors{v[0] + 1, body(v[1])};
                    },
                    {zeros({}, {.dtype = int64}), start}, options)[1];
}

Tensor noise() { return random::uniform({3}); }

// The branches run other numbers of random operations, on which the numbers after them depend.
TEST_F(LoweredControlFlow, BranchesHaveRandomNumbers) {
  const Step step = [](const Tensors& in) {
    const Tensor before = noise();
    const Tensor chosen = cond(
        less(in[0], 3), [] { return noise() + noise() * 2.0; }, [] { return noise(); });
    const Tensor next = cond(
        less(in[0], 2), [] { return noise() * noise() * noise(); }, [] { return zeros({3}); });
    return Tensors{before, chosen, next, noise()};
  };
  for (const std::int64_t choice : {1, 5})
    expect_lowered("branches", step, {steps(choice)}, {.runs = 3});
}

TEST_F(LoweredControlFlow, LoopsHaveRandomNumbers) {
  const Step step = [](const Tensors& in) {
    const auto dropped = [](const Tensor& sum) {
      return nn::dropout(sum + noise(), 0.5) + noise();
    };
    const Tensor before = noise();
    const Tensor first = repeated(in[0], dropped, before);
    return Tensors{first, noise(), repeated(in[1], dropped, first), noise()};
  };
  for (const auto& [first, second] : {std::pair{3, 2}, {0, 5}, {1, 0}})
    expect_lowered("loops", step, {steps(first), steps(second)}, {.runs = 2});
}

TEST_F(LoweredControlFlow, LoopsInBranchesInLoopsHaveRandomNumbers) {
  const Step step = [](const Tensors& in) {
    const auto inner = [](const Tensor& sum) { return sum * 0.5 + noise(); };
    const auto outer = [&](const Tensor& sum) {
      const Tensor chosen = cond(
          less(reduce_sum(sum), 3.0), [&] { return repeated(in[1], inner, sum) + noise(); },
          [&] { return sum * noise(); });
      return chosen + noise();
    };
    return Tensors{repeated(in[0], outer, zeros({3})), noise()};
  };
  for (const auto& [outer, inner] : {std::pair{4, 2}, {5, 0}, {0, 3}})
    expect_lowered("nested", step, {steps(outer), steps(inner)}, {.runs = 2});
}

// The condition that ends the loop runs a random operation, too; at the limit it does not run.
TEST_F(LoweredControlFlow, ConditionsHaveRandomNumbers) {
  for (const std::int64_t limit : {2, 50}) {
    const Step step = [limit](const Tensors& in) {
      const Tensors ended = while_loop(
          [&](const Tensors& v) {
            return less(reduce_sum(noise()) + cast(v[0], float32) * 0.25, 3.0);
          },
          [](const Tensors& v) {
            return Tensors{v[0] + 1, v[1] + noise()};
          },
          {zeros({}, {.dtype = int64}), in[0]}, {.maximum_iterations = limit});
      return Tensors{ended[0], ended[1], noise()};
    };
    expect_lowered("condition", step, {ones({3})}, {.runs = 2});
  }
}

TEST_F(LoweredControlFlow, LoopsEndAtTheirLimit) {
  for (const std::int64_t limit : {0, 1, 3, 9}) {
    Variable runs(zeros({}), {.name = "runs"});
    const Step step = [&](const Tensors& in) {
      const auto body = [&](const Tensor& sum) {
        runs.assign_add(ones({}));
        return sum * 2.0;
      };
      return Tensors{repeated(in[0], body, ones({}), {.maximum_iterations = limit})};
    };
    expect_lowered("limit", step, {steps(5)}, {.runs = 2});
  }
}

// --- gradients ---

Tensors with_gradients(const Tensors& sources, const std::function<Tensor()>& call) {
  GradientTape tape;
  for (const Tensor& source : sources) tape.watch(source);
  Tensors results = {call()};
  for (Tensor& gradient : testing::gradients_of(tape, results[0], sources))
    results.push_back(std::move(gradient));
  return results;
}

TEST_F(LoweredControlFlow, LoopsHaveGradients) {
  for (const std::int64_t limit : {0, 2, 8}) {
    const Step step = [limit](const Tensors& in) {
      return with_gradients({in[1], in[2]}, [&] {
        const auto body = [&](const Tensor& sum) { return tanh(matmul(sum, in[2])) + sum * 0.5; };
        return repeated(in[0], body, in[1], {.maximum_iterations = limit});
      });
    };
    for (const std::int64_t count : {0, 3})
      expect_lowered("loop", step, {steps(count), random::normal({2, 3}), random::normal({3, 3})});
  }
}

// The backward pass generates the random numbers of each iteration again.
TEST_F(LoweredControlFlow, LoopsWithRandomNumbersHaveGradients) {
  const Step step = [](const Tensors& in) {
    Tensors results = with_gradients({in[1], in[2]}, [&] {
      const auto body = [&](const Tensor& sum) {
        const Tensor chosen = cond(
            less(reduce_sum(sum), 1.0), [&] { return nn::dropout(sum * in[2], 0.5) * noise(); },
            [&] { return sum * noise() * noise(); });
        return sin(chosen * noise() + sum);
      };
      return repeated(in[0], body, noise() * in[1], {.maximum_iterations = 6});
    });
    results.push_back(noise());
    return results;
  };
  for (const std::int64_t count : {0, 4, 6})
    expect_lowered("loop", step, {steps(count), random::normal({3}), random::normal({3})},
                   {.runs = 2});
}

TEST_F(LoweredControlFlow, LoopsInLoopsHaveGradients) {
  const Step step = [](const Tensors& in) {
    return with_gradients({in[1], in[2]}, [&] {
      const auto inner = [&](const Tensor& sum) { return sin(sum * in[2]) + noise(); };
      const auto outer = [&](const Tensor& sum) {
        return repeated(in[0], inner, sum * sum, {.maximum_iterations = 3}) * 0.7;
      };
      return repeated(in[0], outer, in[1], {.maximum_iterations = 4});
    });
  };
  for (const std::int64_t count : {2, 9})
    expect_lowered("loops", step, {steps(count), random::normal({3}), random::normal({3})},
                   {.runs = 2});
}

TEST_F(LoweredControlFlow, BranchesWithRandomNumbersHaveGradients) {
  const Step step = [](const Tensors& in) {
    Tensors results = with_gradients({in[1]}, [&] {
      return cond(
          less(in[0], 3), [&] { return nn::dropout(in[1] * noise(), 0.5) * noise(); },
          [&] { return exp(in[1]) * noise(); });
    });
    results.push_back(noise());
    return results;
  };
  for (const std::int64_t choice : {1, 5})
    expect_lowered("branches", step, {steps(choice), random::normal({3})}, {.runs = 2});
}

// --- what cannot be lowered ---

void expect_refused(const Step& step, const Tensors& inputs, const char* why) {
  testing::expect_parts(
      testing::error_of<UnimplementedError>([&] { testing::run_lowered("step", step, inputs); }),
      {"[While", "in 'step' cannot be lowered to StableHLO: ", why});
}

TEST_F(LoweredControlFlow, GradientsOfLoopsNeedALimit) {
  const Step step = [](const Tensors& in) {
    return with_gradients({in[1]}, [&] {
      return repeated(
          in[0], [](const Tensor& sum) { return sum * sum; }, in[1]);
    });
  };
  expect_refused(step, {steps(2), ones({3})},
                 "expected a limit of iterations (WhileOptions::maximum_iterations)");
}

TEST_F(LoweredControlFlow, ConditionsHaveNoControlFlowWithRandomNumbers) {
  const Step step = [](const Tensors& in) {
    return while_loop(
        [&](const Tensors& v) {
          const auto zero = [] { return zeros({3}); };
          return less(reduce_sum(cond(less(v[0], 2), noise, zero)), 0.5);
        },
        [](const Tensors& v) { return Tensors{v[0] + 1}; }, {in[0]});
  };
  expect_refused(step, {steps(0)}, "its condition has control flow that runs random operations");
}

// Such as those of PowerSGD after each step. A device cannot tell the host in the midst of a module
// how often a body has run. No plug-in is needed to find out.
TEST(RefusedControlFlow, TheHostCannotActAfterEachRunOfABody) {
  const auto act = [] { context.graph->after_run([] {}); };
  const Step loop = [&](const Tensors& in) {
    const auto body = [&](const Tensor& sum) {
      act();
      return sum * 0.5;
    };
    return Tensors{repeated(in[0], body, in[1])};
  };
  const Step branch_in_loop = [&](const Tensors& in) {
    const auto body = [&](const Tensor& sum) {
      const auto acts = [&] {
        act();
        return sum * 2.0;
      };
      return cond(less(reduce_sum(sum), 3.0), acts, [&] { return sum; });
    };
    return Tensors{repeated(in[0], body, in[1])};
  };
  for (const Step& step : {loop, branch_in_loop})
    testing::expect_parts(testing::error_of<UnimplementedError>([&] {
                            testing::run_lowered("step", step, {steps(2), ones({3})});
                          }),
                          {"in 'step' cannot be lowered to StableHLO: ",
                           "the host is to do something after each run of a body"});
}

}  // namespace
}  // namespace tandem::stablehlo_control_test
