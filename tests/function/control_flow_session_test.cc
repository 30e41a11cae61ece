// Branches and loops in graphs that sessions run.
#include <gtest/gtest.h>

#include <tuple>

#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::control_flow_session_test {
namespace {

using testing::expect_error;

using Tensors = std::vector<Tensor>;

TEST(ControlFlowSession, BranchesAndLoopsWriteTheSessionsVariables) {
  Graph graph;
  Tensor x, result, unused;
  Variable v;
  {
    const GraphScope scope(graph);
    x = placeholder(float32, {2}, "x");
    v = Variable(constant({1.0f, 2.0f}), {.name = "v"});
    const Tensor before = v.value();
    const Tensor taken = cond(
        greater(reduce_sum(x), 0.0),
        [&] {
          v.assign_add(x);
          return v * 1.0;
        },
        [&] { return -x; });
    result = taken + before;
    unused = while_loop([](const Tensors& w) { return less(w[0], 3.0); },
                        [&](const Tensors& w) {
                          v.assign(v * 2.0);
                          return Tensors{w[0] + 1.0};
                        },
                        {zeros({})})[0];
  }
  Session session(graph, {.initialize_variables = true});
  EXPECT_EQ(session.run({{x, constant({1.0f, 1.0f})}}, result).to_vector<float>(),
            (std::vector<float>{3, 5}));
  EXPECT_EQ(session.run({{x, constant({-1.0f, -1.0f})}}, result).to_vector<float>(),
            (std::vector<float>{3, 4}));
  EXPECT_EQ(session.run(v).to_vector<float>(), (std::vector<float>{2, 3}));
  EXPECT_EQ(session.run(unused).item<float>(), 3.0f);
  EXPECT_EQ(session.run(v).to_vector<float>(), (std::vector<float>{16, 24}));
  Session other(graph, {.initialize_variables = true});
  EXPECT_EQ(other.run(v).to_vector<float>(), (std::vector<float>{1, 2}));
}

TEST(ControlFlowSession, GradientsBackpropagateThroughControlFlow) {
  Graph graph;
  Tensor x, n, of_x, of_w;
  {
    const GraphScope scope(graph);
    x = placeholder(float32, {2}, "x");
    n = placeholder(float32, {}, "n");
    const Variable w(constant({2.0f, 3.0f}), {.name = "w"});
    const Tensor y = while_loop([&](const Tensors& v) { return less(v[0], n); },
                                [&](const Tensors& v) {
                                  const Tensor next = cond(
                                      less(v[0], 1.0), [&] { return v[1] * w; },
                                      [&] { return square(v[1]) * x; });
                                  return Tensors{v[0] + 1.0, next};
                                },
                                {zeros({}), x})[1];
    of_x = gradients(y, std::vector<Tensor>{x})[0];
    of_w = gradients(y, std::vector<Variable>{w})[0];
  }
  Session session(graph, {.initialize_variables = true});
  const Feeds feeds = {{x, constant({1.0f, -1.0f})}, {n, constant(2.0f)}};
  // (x w)^2 x
  EXPECT_EQ(session.run(feeds, of_x).to_vector<float>(), (std::vector<float>{12, 27}));
  EXPECT_EQ(session.run(feeds, of_w).to_vector<float>(), (std::vector<float>{4, -6}));
  EXPECT_EQ(
      session.run({{x, constant({1.0f, -1.0f})}, {n, constant(0.0f)}}, of_x).to_vector<float>(),
      (std::vector<float>{1, 1}));
}

TEST(ControlFlowSession, GeneratesTheRandomNumbersOfEagerCalls) {
  const auto program = [](const Tensor& n) {
    const Tensor first = random::normal({3});
    const Tensors looped = while_loop([&](const Tensors& v) { return less(v[0], n); },
                                      [](const Tensors& v) {
                                        return Tensors{v[0] + 1.0, v[1] + random::uniform({3})};
                                      },
                                      {zeros({}), first});
    return std::pair(first, looped[1] + random::normal({3}));
  };
  Graph graph;
  Tensor n, first, all;
  {
    const GraphScope scope(graph);
    n = placeholder(float32, {}, "n");
    static_cast<void>(random::uniform({2}));  // no run fetches it
    std::tie(first, all) = program(n);
  }
  Session session(graph);
  for (float count : {2.0f, 0.0f, 5.0f}) {
    random::set_seed(6);
    const std::vector<float> eager = program(constant(count)).second.to_vector<float>();
    const std::uint64_t offset = random::get_state().offset;
    random::set_seed(6);
    EXPECT_EQ(session.run({{n, constant(count)}}, all).to_vector<float>(), eager);
    EXPECT_EQ(random::get_state().offset, offset);
    session.run(first);
    EXPECT_EQ(random::get_state().offset, offset + 1);
  }
}

TEST(ControlFlowSession, StepsOfAnOptimizerInALoopCount) {
  const auto train = [](const Variable& w, optimizers::Optimizer& optimizer) {
    const auto step = [&] { optimizer.minimize(reduce_sum(square(w)), {w}); };
    step();
    while_loop([](const Tensors& v) { return less(v[0], 3.0); },
               [&](const Tensors& v) {
                 step();
                 cond(
                     less(v[0], 1.0), [&] { step(); }, [] {});
                 return Tensors{v[0] + 1.0};
               },
               {zeros({})});
    step();
  };
  const auto make = [] {
    return optimizers::Adam(
        {.learning_rate = optimizers::schedules::exponential_decay(0.1, 2, 0.5)});
  };
  Variable w(constant({2.0f, -3.0f}));
  optimizers::Optimizer optimizer = make();
  Graph graph;
  Variable in_graph;
  Graph::Operation operation;
  {
    const GraphScope scope(graph);
    in_graph = Variable(constant({2.0f, -3.0f}), {.name = "w"});
    optimizers::Optimizer its_optimizer = make();
    its_optimizer.build({in_graph});
    operation = graph.updates("train", [&] { train(in_graph, its_optimizer); });
  }
  Session session(graph, {.initialize_variables = true});
  for (int i = 0; i < 3; ++i) {
    train(w, optimizer);
    session.run({operation});
    testing::expect_tensor(session.run(in_graph), float32, {2}, testing::values_of(w.value()),
                           1e-6);
  }
}

TEST(ControlFlowSession, VariablesCannotBeCreatedInABranch) {
  Graph graph;
  {
    const GraphScope scope(graph);
    expect_error<InvalidArgumentError>(
        [] {
          cond(
              constant(true), [] { return Variable(zeros({2}), {.name = "late"}).value(); },
              [] { return zeros({2}); });
        },
        "'late' was made in a branch");
  }
}

}  // namespace
}  // namespace tandem::control_flow_session_test
