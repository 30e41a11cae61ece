#include "tandem/graph.h"

#include <gtest/gtest.h>

#include "device/device_manager.h"
#include "graph/graph.h"
#include "support/errors.h"
#include "support/gpus.h"
#include "tandem/tandem.h"

namespace tandem::graph_test {
namespace {

using testing::error_of;

std::string name_of_tensor(const Tensor& tensor) { return symbol_of(tensor).node->name; }

TEST(Graph, NamesAreUniqueAndScoped) {
  Graph graph;
  const GraphScope building(graph);
  const Tensor a = constant({{1.0}}, {.name = "a"});
  EXPECT_EQ(name_of_tensor(a), "a");
  EXPECT_EQ(name_of_tensor(constant({{1.0}}, {.name = "a"})), "a_1");
  EXPECT_EQ(name_of_tensor(constant({{1.0}}, {.name = "a"})), "a_2");
  EXPECT_EQ(name_of_tensor(matmul(a, a)), "MatMul");
  EXPECT_EQ(name_of_tensor(matmul(a, a)), "MatMul_1");
  EXPECT_EQ(name_of_tensor(matmul(a, a, {.name = "y"})), "y");
  {
    const NameScope scope("tower");
    EXPECT_EQ(name_of_tensor(matmul(a, a)), "tower/MatMul");
    const NameScope inner("inner");
    EXPECT_EQ(name_of_tensor(constant({1.0}, {.name = "a"})), "tower/inner/a");
  }
  const NameScope again("tower");
  EXPECT_EQ(name_of_tensor(matmul(a, a)), "tower_1/MatMul");
  const NameScope root("");
  EXPECT_EQ(name_of_tensor(constant({1.0}, {.name = "b"})), "b");
}

TEST(Graph, RefusesNamesAsTensorFlowDoes) {
  Graph graph;
  const GraphScope building(graph);
  for (const std::string name : {"a b", "a:0", "/a", "_a", "a\n", "ä", "-a"}) {
    for (const auto& use : std::vector<std::function<void()>>{
             [&] { placeholder(float32, {1}, name); }, [&] { constant({1.0}, {.name = name}); },
             [&] { const NameScope scope(name); }})
      EXPECT_NE(error_of<InvalidArgumentError>(use).find("is not a valid name of "),
                std::string::npos)
          << name;
  }
  for (const std::string name : {"a", "0", ".a", "a/b", "a_b-c>d", "a\\b"})
    EXPECT_EQ(name_of_tensor(constant({1.0}, {.name = name})), name);
}

TEST(Graph, NameOptionsTakeEffect) {
  Graph graph;
  const GraphScope building(graph);
  const Tensor x = ones({2, 2}, {.name = "x"});
  EXPECT_EQ(name_of_tensor(x), "x");
  EXPECT_EQ(name_of_tensor(zeros({2}, {.name = "z"})), "z");
  EXPECT_EQ(name_of_tensor(full({2}, 3.0, {.name = "f"})), "f");
  EXPECT_EQ(name_of_tensor(range(3, {.dtype = int32, .name = "r"})), "r");
  EXPECT_EQ(name_of_tensor(eye(3, -1, {.name = "e"})), "e");
  EXPECT_EQ(name_of_tensor(reduce_sum(x, {.name = "total"})), "total");
  EXPECT_EQ(name_of_tensor(reduce_std(x, {.name = "std"})), "std");
  EXPECT_EQ(name_of_tensor(reduce_logsumexp(x, {.name = "lse"})), "lse");
  EXPECT_EQ(name_of_tensor(random::normal({2}, 0.0, 1.0, {.name = "noise"})), "noise");
  EXPECT_EQ(name_of_tensor(random::uniform({2}, 0.0, 1.0, {.name = "u"})), "u");
}

TEST(Graph, TensorsAndOperationsByName) {
  Graph graph;
  Tensor y;
  {
    const GraphScope building(graph);
    const Tensor x = placeholder(float32, {-1, 2}, "x");
    EXPECT_EQ(x.shape().to_string(), "(?, 2)");
    y = matmul(x, ones({2, 3}, {.name = "w"}), {.name = "y"});
  }
  EXPECT_EQ(graph.tensor("y:0").shape().to_string(), "(?, 3)");
  std::vector<std::string> listed;
  for (const Graph::Operation& operation : graph.operations())
    listed.push_back(operation.name() + " " + std::string(operation.type()));
  EXPECT_EQ(listed, (std::vector<std::string>{"x Placeholder", "w Fill", "y MatMul"}));
  EXPECT_EQ(graph.operation("y").inputs().size(), 2u);
  EXPECT_EQ(name_of_tensor(graph.operation("y").inputs()[0]), "x");

  EXPECT_EQ(
      error_of<InvalidArgumentError>([&] { graph.tensor("y"); }),
      "The name 'y' refers to an Operation, not a Tensor. Tensor names must be of the form "
      "\"<op_name>:<output_index>\". Its first output is 'y:0'; graph.operation(\"y\") is the "
      "operation, to be run for what it does.");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { graph.tensor("why"); }),
            "The name 'why' looks like an (invalid) Operation name, not a Tensor. Tensor names "
            "must be of the form \"<op_name>:<output_index>\".");
  EXPECT_EQ(error_of<NotFoundError>([&] { graph.tensor("y:1"); }),
            "The name 'y:1' refers to a Tensor which does not exist. The operation, 'y', exists "
            "but only has 1 outputs.");
  EXPECT_EQ(error_of<NotFoundError>([&] { graph.tensor("z:0"); }).substr(0, 99),
            "The name 'z:0' refers to a Tensor which does not exist. The operation, 'z', does not "
            "exist in the g");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { graph.tensor("y:first"); }),
            "The name 'y:first' looks a like a Tensor name, but is not a valid one. Tensor names "
            "must be of the form \"<op_name>:<output_index>\".");
  EXPECT_THROW(graph.operation("nothing"), NotFoundError);
}

TEST(Graph, ErrorsSuggestTheNearestName) {
  Graph graph;
  {
    const GraphScope building(graph);
    constant({1.0}, {.name = "weights"});
  }
  EXPECT_NE(
      error_of<NotFoundError>([&] { graph.tensor("wieghts:0"); }).find("Did you mean 'weights'?"),
      std::string::npos);
}

TEST(Graph, BuildingInitialisesNothing) {
  Graph graph;
  {
    const GraphScope building(graph);
    const DeviceScope device("/gpu:1");
    const Tensor x = placeholder(float32, {-1, 4}, "x");
    Variable w(random::normal({4, 1}), {.name = "w"});
    const Tensor loss = reduce_mean(square(matmul(x, w) * 2.0 - 1.0));
    optimizers::Optimizer adam = optimizers::Adam();
    graph.updates("train", [&] { adam.minimize(loss, {w}); });
    graph.initializer();
  }
  EXPECT_FALSE(DeviceManager::get().initialized());
  testing::use_gpus(2);  // not too late
}

TEST(Graph, PlaceholdersNeedAGraph) {
  EXPECT_THROW(placeholder(float32, {1}), FailedPreconditionError);
}

TEST(Graph, ReadingElementsOfItsTensorsThrows) {
  Graph graph;
  const GraphScope building(graph);
  EXPECT_THROW(constant({1.0}).to_vector<float>(), FailedPreconditionError);
}

TEST(Graph, VariablesAreNamedOperations) {
  Graph graph;
  const GraphScope building(graph);
  const NameScope layer("layer");
  const Variable v(constant({1.0, 2.0}), {.name = "v"});
  const Variable w(constant({1.0, 2.0}), {.name = "v"});
  const Variable unnamed(constant({1.0, 2.0}));
  EXPECT_EQ(v.name(), "layer/v");
  EXPECT_EQ(w.name(), "layer/v_1");
  EXPECT_EQ(unnamed.name(), "layer/Variable");
  EXPECT_EQ(graph.operation("layer/v").type(), "VarHandleOp");
  EXPECT_EQ(graph.operation("layer/v_1/Assign").type(), "AssignVariableOp");
}

TEST(Graph, AVariableOfAGraphHasNoElementsOutsideSessions) {
  Graph graph;
  Variable v;
  {
    const GraphScope building(graph);
    v = Variable(constant({1.0, 2.0}), {.name = "v"});
  }
  const std::string expected =
      "[Variable] 'v' is part of a graph: its elements belong to a session, whose run() fetches "
      "and changes them";
  EXPECT_EQ(error_of<FailedPreconditionError>([&] { v.value(); }), expected);
  EXPECT_EQ(error_of<FailedPreconditionError>([&] { v.assign(ones({2})); }), expected);
  Graph other;
  const GraphScope building(other);
  EXPECT_THROW(v.value(), InvalidArgumentError);
}

TEST(Graph, UpdatesWithoutUpdatesAreAnError) {
  Graph graph;
  EXPECT_THROW(graph.updates("nothing", [] { constant({1.0}); }), InvalidArgumentError);
}

}  // namespace
}  // namespace tandem::graph_test
