// Serialised graphs with branches and loops.
#include <gtest/gtest.h>

#include "function/changed_bytes.h"
#include "function/serialize.h"
#include "graph/control_flow.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::serialize_control_flow_test {
namespace {

using testing::expect_error;

using Tensors = std::vector<Tensor>;

Graph copy_of(const Graph& graph) {
  const std::string bytes = graph.serialize();
  Graph copy = Graph::deserialize(bytes);
  EXPECT_EQ(copy.serialize(), bytes);
  return copy;
}

// Variables, random numbers, nested branches and an optimizer in a loop, and gradients through it.
Graph training() {
  Graph graph;
  const GraphScope scope(graph);
  const Tensor x = placeholder(float32, {-1, 3}, "x"), n = placeholder(float32, {}, "n");
  const Variable w(constant({{0.5f}, {-1.0f}, {2.0f}}), {.name = "w"});
  Variable runs(zeros({}), {.trainable = false, .name = "runs"});
  optimizers::Optimizer adam =
      optimizers::Adam({.learning_rate = optimizers::schedules::exponential_decay(0.1, 2, 0.5)});
  adam.build({w});
  graph.updates("train", [&] {
    const Tensor noise = random::normal({3});
    const Tensors looped =
        while_loop([&](const Tensors& v) { return less(v[0], n); },
                   [&](const Tensors& v) {
                     const Tensor dropped = nn::dropout(v[1], 0.25);
                     const Tensor next = cond(
                         less(v[0], 1.0), [&] { return dropped * noise; },
                         [&] { return nn::dropout(dropped, 0.5) + random::uniform({3}); });
                     return Tensors{v[0] + 1.0, next};
                   },
                   {zeros({}), x * 1.0});
    adam.minimize(reduce_sum(square(matmul(looped[1], w))), {w});
    while_loop([](const Tensors& v) { return less(v[0], 2.0); },
               [&](const Tensors& v) {
                 adam.minimize(reduce_mean(square(w)) * random::uniform({}), {w});
                 cond(
                     less(v[0], 1.0), [&] { runs.assign_add(ones({})); }, [] {});
                 return Tensors{v[0] + 1.0};
               },
               {zeros({})});
  });
  const Tensor y =
      while_loop([&](const Tensors& v) { return less(v[0], n); },
                 [&](const Tensors& v) {
                   const Tensor next = cond(
                       less(v[0], 1.0), [&] { return v[1] * x; }, [&] { return square(v[1]); });
                   return Tensors{v[0] + 1.0, next};
                 },
                 {zeros({}), x * 1.0})[1];
  reduce_sum(gradients(reduce_sum(y), std::vector<Tensor>{x})[0], {.name = "of_x"});
  graph.initializer();
  return graph;
}

TEST(SerializedControlFlow, RunsAsTheOriginal) {
  const Graph graph = training();
  const auto results = [](const Graph& which) {
    random::set_seed(4);
    Session session(which);
    session.run(which.operation("init"));
    std::vector<float> all;
    for (float count : {2.0f, 0.0f, 5.0f}) {
      const Feeds feeds = {{"x:0", ones({4, 3}) * 0.5}, {"n:0", constant(count)}};
      session.run(feeds, which.operation("train"));
      for (const char* name : {"w:0", "runs:0"})
        for (float value : session.run(name).to_vector<float>()) all.push_back(value);
      all.push_back(session.run(feeds, "of_x:0").item<float>());
      all.push_back(static_cast<float>(random::get_state().offset));
    }
    return all;
  };
  const std::vector<float> expected = results(graph);
  EXPECT_EQ(results(copy_of(graph)), expected);
  EXPECT_EQ(results(copy_of(copy_of(graph))), expected);
  EXPECT_EQ(expected[3], 1.0f);  // `runs` after the first step
}

TEST(SerializedControlFlow, CapturedVariablesAreIdentifiedByName) {
  Variable v(constant({1.0, 2.0}), {.name = "v"});
  Graph graph;
  {
    const GraphScope building(graph);
    cond(
        constant(true), [&] { v.assign(v * 2.0); }, [] {});
    reduce_sum(v, {.name = "sum"});
  }
  const Graph copy = copy_of(graph);
  expect_error<FailedPreconditionError>([&] { Session(copy).run("sum:0"); },
                                        "Attempting to use uninitialized value v");
}

TEST(SerializedControlFlow, LoopsOverDatasetsCannotBeSerialised) {
  const auto threes = data::Dataset::from_tensor_slices({ones({3})});
  Graph graph;
  {
    const GraphScope scope(graph);
    Variable v(zeros({}), {.name = "v"});
    for_each(threes, [&](const data::Example& example) { v.assign_add(example[0]); });
  }
  expect_error<UnimplementedError>([&] { static_cast<void>(graph.serialize()); },
                                   "(ForEach) goes over a dataset of this program");
}

ControlFlow& control_of(const Graph& graph, std::string_view op) {
  for (const auto& node : graph.impl().nodes())
    if (node->op->name == op) return const_cast<ControlFlow&>(*node->control);
  throw std::runtime_error("no such node");
}

// Each change breaks one rule.
TEST(SerializedControlFlow, InvalidGraphsAreRejected) {
  const auto refused = [&](std::string_view op, const auto& change, const std::string& text) {
    const Graph graph = training();
    change(control_of(graph, op), graph);
    const std::string bytes = serialize_nodes(graph.impl());
    expect_error<InvalidArgumentError>([&] { deserialize_nodes(bytes); }, text);
  };
  refused(
      "While", [](auto& flow, auto&) { flow.bodies.pop_back(); }, "has 1 bodies");
  refused(
      "While", [](auto& flow, auto&) { flow.bodies[1].fetches.pop_back(); },
      "a body returns 1 tensors for 2 outputs");
  refused(
      "While",
      [](auto& flow, auto&) { flow.bodies[0].fetches.push_back(flow.bodies[0].fetches[0]); },
      "the condition is not a bool scalar");
  refused(
      "While",
      [](auto& flow, auto&) { std::swap(flow.bodies[1].fetches[0], flow.bodies[0].fetches[0]); },
      "fetches a tensor that body 0 does not compute");
  refused(
      "While", [](auto& flow, auto&) { flow.bodies[1].feeds[0].from = 10000; },
      "feeds a body with tensor 10000, which is not in its frame");
  refused(
      "While",
      [](auto& flow, auto&) { flow.bodies[1].feeds[0].tensor = flow.bodies[1].fetches[0]; },
      "which is not a placeholder");
  refused(
      "WhileGradient",
      [](auto& flow, const auto& graph) { flow.forward = graph.impl().nodes().front().get(); },
      "cannot be the gradient of 'x'");
}

TEST(SerializedControlFlow, VariablesOfABodyAreRead) {
  const auto make = [] {
    Graph graph;
    const GraphScope scope(graph);
    Variable v(zeros({}), {.name = "v"});
    static_cast<void>(Variable(zeros({2}), {.name = "w"}));
    cond(
        constant(true), [&] { v.assign_add(ones({})); }, [] {});
    return graph;
  };
  const auto refused = [](const Graph& graph, const std::string& text) {
    const std::string bytes = serialize_nodes(graph.impl());
    expect_error<InvalidArgumentError>([&] { deserialize_nodes(bytes); }, text);
  };
  Graph graph = make();
  for (const auto& node : control_of(graph, "If").bodies[0].graph->nodes())
    if (node->outside) node->outside = graph.impl().find("w");
  refused(graph, "is not a variable of the enclosing graph");
  graph = make();
  for (const auto& node : graph.impl().nodes())
    if (node->control) node->inputs.pop_back();
  refused(graph, "has no input for the variable 'v'");
}

// Corruption without the checksum gives a graph or a typed error.
TEST(SerializedControlFlow, ChangedNodesAreReadOrRejected) {
  const std::string bytes = serialize_nodes(training().impl());
  testing::expect_read_or_refused(bytes, 2000);
}

}  // namespace
}  // namespace tandem::serialize_control_flow_test
