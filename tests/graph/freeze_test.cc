// Graphs that are serialised with the values of their variables.
#include <gtest/gtest.h>

#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::freeze_test {
namespace {

using testing::expect_error;

using Floats = std::vector<float>;

Floats run_loaded(const std::string& bytes, const Tensor& x) {
  const Graph graph = Graph::deserialize(bytes);
  return Session(graph).run({{"x:0", x}}, "y:0").to_vector<float>();
}

TEST(FrozenGraph, AFrozenModelGivesTheSameBits) {
  random::set_seed(4);
  const Tensor x = random::normal({5, 3});
  Floats expected;
  std::string frozen, by_name;
  {
    Sequential model({layers::Dense(4, {.activation = "relu", .input_shape = {3}}),
                      layers::BatchNormalization(), layers::Dense(2)});
    model.compile({.optimizer = "adam", .loss = "mse"});
    model.fit(random::normal({16, 3}), ones({16, 2}), {.epochs = 2, .verbose = 0});
    Graph graph;
    Tensor y;
    {
      const GraphScope building(graph);
      const Tensor input = placeholder(float32, {-1, 3}, "x");
      y = identity(model(input), {.name = "y"});
    }
    expected = Session(graph).run({{"x:0", x}}, y).to_vector<float>();
    EXPECT_EQ(expected, model(x).to_vector<float>());
    frozen = graph.serialize({.freeze_variables = true, .outputs = {y}});
    by_name = graph.serialize();
    EXPECT_EQ(run_loaded(graph.serialize({.freeze_variables = true}), x), expected);
  }
  EXPECT_EQ(run_loaded(frozen, x), expected);
  const Graph loaded = Graph::deserialize(frozen);
  for (const Graph::Operation& operation : loaded.operations())
    EXPECT_NE(operation.type(), "VarHandleOp") << operation.name();
  EXPECT_EQ(Session(loaded).run("dense/bias:0").shape(), Shape({4}));
  expect_error<FailedPreconditionError>(
      [&] { run_loaded(by_name, x); },
      "The graph was read from bytes that hold 8 variables by name only, without values: "
      "'dense/kernel', 'dense/bias', ");
  expect_error<FailedPreconditionError>(
      [&] { run_loaded(by_name, x); },
      "Serialize it in the program that has them with SerializeOptions{.freeze_variables = true}.");
}

// A graph that trains its own variable.
struct Training {
  Graph graph;
  Tensor x, y;
  Training() {
    const GraphScope building(graph);
    x = placeholder(float32, {-1, 2}, "x");
    const Variable w(ones({2, 1}), {.name = "w"});
    y = identity(matmul(x, w), {.name = "y"});
    optimizers::Optimizer adam = optimizers::Adam({.learning_rate = 0.1});
    graph.updates("train", [&] { adam.minimize(reduce_sum(square(y)), {w}); });
    graph.initializer();
  }
};

TEST(FrozenGraph, VariablesOfASessionHaveItsValues) {
  Training training;
  const Tensor x = ones({3, 2});
  Session session(training.graph);
  const SerializeOptions options{
      .freeze_variables = true, .outputs = {training.y}, .session = &session};
  expect_error<FailedPreconditionError>([&] { training.graph.serialize(options); },
                                        "Attempting to use uninitialized value w");
  session.run(training.graph.operation("init"));
  for (int i = 0; i < 3; ++i) session.run({{training.x, x}}, training.graph.operation("train"));
  const std::string bytes = training.graph.serialize(options);
  EXPECT_EQ(run_loaded(bytes, x), session.run({{training.x, x}}, training.y).to_vector<float>());
  // Neither the updates nor the initial values.
  EXPECT_EQ(Graph::deserialize(bytes).operations().size(), 5u);
  expect_error<InvalidArgumentError>(
      [&] { training.graph.serialize({.freeze_variables = true, .outputs = {training.y}}); },
      "the values of variable 'w' belong to a session: give it as SerializeOptions::session");
}

TEST(FrozenGraph, VariablesThatAreWrittenCannotBeConstants) {
  Training training;
  Session session(training.graph, {.initialize_variables = true});
  expect_error<InvalidArgumentError>(
      [&] { training.graph.serialize({.freeze_variables = true, .session = &session}); },
      "writes it. Tell in SerializeOptions::outputs what the graph is for");
  Variable v(ones({}), {.name = "v"});
  Graph graph;
  {
    const GraphScope building(graph);
    cond(
        constant(true), [&] { v.assign(v * 2.0); }, [] {});
    v.assign_add(ones({}));
  }
  expect_error<InvalidArgumentError>(
      [&] { graph.serialize({.freeze_variables = true}); },
      "[Graph] variable 'v' cannot be stored as a constant: operation 'If' (If) writes it.");
}

TEST(FrozenGraph, TheInitializerIsLeftOutWithoutOutputs) {
  random::set_seed(4);
  Graph graph;
  {
    const GraphScope building(graph);
    const Variable w(random::normal({2, 2}), {.name = "w"});
    matmul(placeholder(float32, {-1, 2}, "x"), w, {.name = "y"});
    graph.initializer();
  }
  Session session(graph, {.initialize_variables = true});
  const Tensor x = ones({1, 2});
  const std::string bytes = graph.serialize({.freeze_variables = true, .session = &session});
  EXPECT_EQ(run_loaded(bytes, x), session.run({{"x:0", x}}, "y:0").to_vector<float>());
  const Graph loaded = Graph::deserialize(bytes);
  for (const Graph::Operation& operation : loaded.operations())
    EXPECT_EQ(operation.type().find("Normal"), std::string_view::npos) << operation.name();
  Session(loaded).run(loaded.operation("init"));  // does nothing
}

TEST(FrozenGraph, BranchesAndLoopsReadConstants) {
  const Variable scale(constant(3.0f), {.name = "scale"});
  Graph graph;
  {
    const GraphScope building(graph);
    const Tensor x = placeholder(float32, {2}, "x");
    const Tensor looped = while_loop([](const std::vector<Tensor>& v) { return less(v[0], 2.0); },
                                     [&](const std::vector<Tensor>& v) {
                                       const Tensor next = cond(
                                           less(v[0], 1.0), [&] { return v[1] * scale; },
                                           [&] { return v[1] + scale; });
                                       return std::vector<Tensor>{v[0] + 1.0, next};
                                     },
                                     {zeros({}), x * 1.0})[1];
    identity(looped * random::uniform({2}), {.name = "y"});
    cond(
        constant(true), [] { return random::normal({1}); }, [] { return zeros({1}); });
  }
  const Tensor x = constant({1.0f, 2.0f});
  random::set_seed(4);
  const Floats expected = Session(graph).run({{"x:0", x}}, "y:0").to_vector<float>();
  for (const std::vector<Fetch>& outputs : {std::vector<Fetch>{}, std::vector<Fetch>{"y:0"}}) {
    const std::string bytes = graph.serialize({.freeze_variables = true, .outputs = outputs});
    random::set_seed(4);
    EXPECT_EQ(run_loaded(bytes, x), expected);
    EXPECT_EQ(Graph::deserialize(bytes).serialize(), bytes);
  }
}

TEST(SerializedGraph, OutputsAreWrittenWithTheirDependencies) {
  Training training;
  const auto train = [](const Graph& graph) {
    Session session(graph);
    session.run(graph.operation("init"));
    for (int i = 0; i < 3; ++i) session.run({{"x:0", ones({3, 2})}}, graph.operation("train"));
    return session.run("w:0").to_vector<float>();
  };
  const Graph& graph = training.graph;
  const Graph copy = Graph::deserialize(
      graph.serialize({.outputs = {graph.operation("train"), graph.operation("init")}}));
  EXPECT_EQ(train(copy), train(graph));
  const Graph forward = Graph::deserialize(graph.serialize({.outputs = {"y:0"}}));
  EXPECT_LT(forward.operations().size(), graph.operations().size());
  Session session(forward, {.initialize_variables = true});
  EXPECT_EQ(session.run({{"x:0", ones({1, 2})}}, "y:0").item<float>(), 2.0f);
  expect_error<InvalidArgumentError>([&] { Graph().serialize({.outputs = {training.y}}); },
                                     "[Graph] an output to be serialised is not of this graph: "
                                     "'y'");
}

}  // namespace
}  // namespace tandem::freeze_test
