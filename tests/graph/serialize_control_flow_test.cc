// Branches and loops in graphs that travel.
#include <gtest/gtest.h>

#include <random>

#include "graph/proto/graph.pb.h"
#include "graph/serialize.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing::expect_error;

using Tensors = std::vector<Tensor>;

Graph copy_of(const Graph& graph) {
  const std::string bytes = graph.serialize();
  Graph copy = Graph::deserialize(bytes);
  EXPECT_EQ(copy.serialize(), bytes);
  return copy;
}

// Variables, draws, nested branches and an optimizer in a loop, and gradients through it.
Graph training() {
  Graph graph;
  const GraphScope scope(graph);
  const Tensor x = placeholder(float32, {-1, 3}, "x"), n = placeholder(float32, {}, "n");
  const Variable w(constant({{0.5f}, {-1.0f}, {2.0f}}), {.name = "w"});
  const Variable runs(zeros({}), {.trainable = false, .name = "runs"});
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
  const auto figures = [](const Graph& which) {
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
      all.push_back(static_cast<float>(random::get_state().draws));
    }
    return all;
  };
  const std::vector<float> expected = figures(graph);
  EXPECT_EQ(figures(copy_of(graph)), expected);
  EXPECT_EQ(figures(copy_of(copy_of(graph))), expected);
  EXPECT_EQ(expected[3], 1.0f);  // `runs` behind the first step
}

TEST(SerializedControlFlow, CapturedVariablesGoByName) {
  const Variable v(constant({1.0, 2.0}), {.name = "v"});
  Graph graph;
  {
    const GraphScope building(graph);
    cond(
        constant(true), [&] { v.assign(v * 2.0); }, [] {});
    add(v, 1.0, {.name = "sum"});
  }
  const Graph copy = copy_of(graph);
  expect_error<FailedPreconditionError>([&] { Session(copy).run("sum:0"); },
                                        "Attempting to use uninitialized value v");
}

TEST(SerializedControlFlow, LoopsOverDatasetsStayHere) {
  Graph graph;
  {
    const GraphScope scope(graph);
    const Variable v(zeros({}), {.name = "v"});
    for_each(data::Dataset::from_tensor_slices({ones({3})}),
             [&](const data::Example& example) { v.assign_add(example[0]); });
  }
  expect_error<UnimplementedError>([&] { static_cast<void>(graph.serialize()); },
                                   "(ForEach) goes over a dataset of this program");
}

proto::Graph message_of(const Graph& graph) {
  proto::Graph message;
  message.ParseFromString(serialize_nodes(graph.impl()));
  return message;
}

proto::ControlFlow& control_of(proto::Graph& message, std::string_view op) {
  for (proto::Node& node : *message.mutable_nodes())
    if (node.op() == op) return *node.mutable_control();
  throw std::runtime_error("no such node");
}

// Each breaks one rule.
TEST(SerializedControlFlow, WhatCannotBeIsRefused) {
  const proto::Graph whole = message_of(training());
  const auto refused = [&](std::string_view op, const auto& change, const std::string& text) {
    proto::Graph message = whole;
    change(control_of(message, op));
    expect_error<InvalidArgumentError>([&] { deserialize_nodes(message.SerializeAsString()); },
                                       text);
  };
  deserialize_nodes(whole.SerializeAsString());
  refused(
      "While", [](auto& control) { control.mutable_bodies()->RemoveLast(); }, "has 1 bodies");
  refused(
      "While", [](auto& c) { c.mutable_bodies(1)->mutable_fetches()->RemoveLast(); },
      "a body gives 1 tensors for 2 outputs");
  refused(
      "While", [](auto& c) { c.mutable_bodies(1)->mutable_fetches(0)->set_node(10000); },
      "fetches what body 1 does not compute");
  refused(
      "While", [](auto& c) { c.mutable_bodies(1)->mutable_feeds(0)->set_from(10000); },
      "feeds a body with 10000, which is no tensor of its frame");
  refused(
      "While", [](auto& c) { c.mutable_bodies(1)->mutable_feeds(0)->set_node(10000); },
      "feeds node 10000 of body 1, which is no placeholder");
  refused(
      "While",
      [](auto& c) {
        *c.mutable_bodies(0)->mutable_fetches(0) = c.bodies(0).fetches(0);
        c.mutable_bodies(0)->add_fetches();
      },
      "the condition is no scalar of bool");
  refused(
      "WhileGradient", [](auto& c) { c.clear_forward(); }, "goes back through nothing");
  refused(
      "WhileGradient", [](auto& c) { c.set_forward(0); }, "cannot go back through");
}

TEST(SerializedControlFlow, VariablesThatABodyWritesAreTaken) {
  Graph graph;
  {
    const GraphScope scope(graph);
    const Variable v(zeros({}), {.name = "v"}), w(zeros({2}), {.name = "w"});
    cond(
        constant(true), [&] { v.assign_add(ones({})); }, [] {});
    w.assign_add(ones({2}));
  }
  proto::Graph message = message_of(graph);
  int other = -1;
  for (int i = 0; i < message.nodes_size(); ++i)
    if (message.nodes(i).op() == "VarHandleOp" && message.nodes(i).name() == "w") other = i;
  proto::Graph wrong = message;
  for (proto::Node& node : *wrong.mutable_nodes()) {
    if (!node.has_control()) continue;
    for (proto::Node& inner :
         *node.mutable_control()->mutable_bodies(0)->mutable_graph()->mutable_nodes())
      if (inner.op() == "VarHandleOp") inner.set_outside(static_cast<std::uint32_t>(other));
  }
  expect_error<InvalidArgumentError>([&] { deserialize_nodes(wrong.SerializeAsString()); },
                                     "is no variable of the graph around");
  wrong = message;
  for (proto::Node& node : *wrong.mutable_nodes())
    if (node.has_control()) node.mutable_inputs()->RemoveLast();
  expect_error<InvalidArgumentError>([&] { deserialize_nodes(wrong.SerializeAsString()); },
                                     "does not take the variable 'v'");
}

// What the checksum would catch, let through: a graph, or a typed error.
TEST(SerializedControlFlow, ChangedNodesAreReadOrRefused) {
  const std::string bytes = serialize_nodes(training().impl());
  std::mt19937 random(1);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  int read = 0, refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::string changed = bytes;
    for (std::size_t k = 0; k <= below(3); ++k)
      changed[below(changed.size())] = static_cast<char>(below(256));
    try {
      serialize_nodes(*deserialize_nodes(changed));
      ++read;
    } catch (const InvalidArgumentError&) {
      ++refused;
    } catch (const DataLossError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace tandem
