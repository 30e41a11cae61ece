#include <gtest/gtest.h>

#include "tandem/tandem.h"

namespace tandem::gradients_test {
namespace {

using Floats = std::vector<float>;

TEST(Gradients, OfPlaceholdersConstantsAndResults) {
  Graph graph;
  Tensor x, a, h, y;
  std::vector<Tensor> gradient;
  {
    const GraphScope building(graph);
    x = placeholder(float32, {2}, "x");
    a = constant({3.0, 4.0});
    h = x * a;
    y = reduce_sum(square(h));
    gradient = gradients(y, std::vector<Tensor>{x, a, h});
  }
  Session session(graph);
  const auto results =
      session.run({{x, constant({1.0, 2.0})}}, {gradient[0], gradient[1], gradient[2]});
  EXPECT_EQ(results[0].to_vector<float>(), (Floats{18, 64}));
  EXPECT_EQ(results[1].to_vector<float>(), (Floats{6, 32}));
  EXPECT_EQ(results[2].to_vector<float>(), (Floats{6, 16}));
}

TEST(Gradients, OfVariablesOverAllTheirReads) {
  Graph graph;
  Variable v;
  Tensor gradient;
  {
    const GraphScope building(graph);
    v = Variable(constant({1.0, 2.0}), {.name = "v"});
    const Tensor y = reduce_sum(square(v.value())) + reduce_sum(v.value() * 3.0);
    gradient = gradients(y, std::vector<Variable>{v})[0];
  }
  Session session(graph, {.initialize_variables = true});
  EXPECT_EQ(session.run(gradient).to_vector<float>(), (Floats{5, 7}));
}

TEST(Gradients, OfHigherOrder) {
  Graph graph;
  Tensor x, second;
  {
    const GraphScope building(graph);
    x = placeholder(float32, {}, "x");
    const Tensor first = gradients(x * x * x, std::vector<Tensor>{x})[0];
    second = gradients(first, std::vector<Tensor>{x})[0];
  }
  EXPECT_EQ(Session(graph).run({{x, constant(2.0)}}, second).item<float>(), 12.0f);
}

TEST(Gradients, OfUnconnectedTensors) {
  Graph graph;
  Tensor zero;
  {
    const GraphScope building(graph);
    const Tensor x = constant({1.0, 2.0}), y = constant(1.0) * 2.0;
    EXPECT_FALSE(gradients(y, std::vector<Tensor>{x})[0].defined());
    zero = gradients(y, std::vector<Tensor>{x},
                     {.unconnected_gradients = UnconnectedGradients::kZero})[0];
  }
  EXPECT_EQ(Session(graph).run(zero).to_vector<float>(), (Floats{0, 0}));
}

TEST(Gradients, UseTheOutputGradient) {
  Graph graph;
  Tensor gradient;
  {
    const GraphScope building(graph);
    const Tensor x = constant({1.0, 2.0});
    const std::vector<Tensor> sources = {x};
    gradient = gradients(x * 2.0, sources, {.output_gradient = constant({10.0, 100.0})})[0];
    EXPECT_THROW(gradients(x * 2.0, sources, {.output_gradient = constant({1.0})}),
                 InvalidArgumentError);
    EXPECT_THROW(gradients(constant({1}), sources), InvalidArgumentError);
    EXPECT_THROW(gradients(x, std::vector<Tensor>{constant({1})}), InvalidArgumentError);
  }
  EXPECT_EQ(Session(graph).run(gradient).to_vector<float>(), (Floats{20, 200}));
  EXPECT_THROW(gradients(gradient, std::vector<Tensor>{gradient}), FailedPreconditionError);
}

TEST(Gradients, TapesWorkWhileAGraphIsBuilt) {
  Graph graph;
  Tensor gradient;
  {
    const GraphScope building(graph);
    const Tensor x = constant({1.0, 2.0});
    GradientTape tape;
    tape.watch(x);
    gradient = tape.gradient(reduce_sum(square(x)), x);
  }
  EXPECT_EQ(Session(graph).run(gradient).to_vector<float>(), (Floats{2, 4}));
}

}  // namespace
}  // namespace tandem::gradients_test
