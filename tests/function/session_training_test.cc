// The same training eagerly, in a session, and traced.
#include <gtest/gtest.h>

#include "support/gpus.h"
#include "support/training.h"
#include "tandem/tandem.h"

namespace tandem::session_training_test {
namespace {

using testing::expect_same;
using testing::Trained;

constexpr int kSteps = 50;

struct Task {
  Task() {
    random::set_seed(11);
    x = random::normal({12, 8});
    y = random::uniform_int({12}, 0, 4);
    random::set_seed(3);
  }
  Tensor x, y;
};

Sequential make_model() {
  return Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {8}}),
                     layers::Dropout(0.25), layers::BatchNormalization(), layers::Dense(4)});
}

Tensor loss_of(Sequential& model, const Tensor& x, const Tensor& y) {
  return reduce_mean(nn::sparse_softmax_cross_entropy(y, model(x, {.training = true})));
}

Trained train_outside(bool traced, optimizers::Optimizer optimizer) {
  const Task task;
  Sequential model = make_model();
  const auto step = [&](const Tensor& x, const Tensor& y) {
    const Tensor loss = loss_of(model, x, y);
    optimizer.minimize(loss, model.trainable_variables());
    return loss;
  };
  const auto replayed = function(step);
  Trained result;
  for (int i = 0; i < kSteps; ++i)
    result.losses.push_back(
        (traced ? replayed(task.x, task.y) : step(task.x, task.y)).item<float>());
  for (const Variable& variable : model.variables())
    result.weights.push_back(variable.value().to_vector<float>());
  return result;
}

Trained train_in_session(optimizers::Optimizer optimizer) {
  const Task task;
  Graph graph;
  Tensor x, y, loss;
  Graph::Operation train, init;
  std::vector<Variable> variables;
  {
    const GraphScope building(graph);
    Sequential model = make_model();
    variables = model.variables();
    x = placeholder(float32, {-1, 8}, "x");
    y = placeholder(task.y.dtype(), {-1}, "y");
    train = graph.updates("train", [&] {
      loss = loss_of(model, x, y);
      optimizer.minimize(loss, model.trainable_variables());
    });
    init = graph.initializer();
  }
  Session session(graph);
  session.run(init);
  Trained result;
  for (int i = 0; i < kSteps; ++i)
    result.losses.push_back(
        session.run({{x, task.x}, {y, task.y}}, {loss, train}).front().item<float>());
  for (const Variable& variable : variables)
    result.weights.push_back(session.run(variable).to_vector<float>());
  EXPECT_EQ(session.run("iterations:0").item<std::int64_t>(), kSteps);
  return result;
}

template <class Make>
void expect_all_agree(const Make& make) {
  const Trained eager = train_outside(false, make());
  expect_same(eager, train_outside(true, make()));
  expect_same(eager, train_in_session(make()));
}

TEST(SessionTraining, AgreesWithMomentumAndASchedule) {
  expect_all_agree([] {
    return optimizers::SGD(
        {.learning_rate = optimizers::schedules::exponential_decay(0.1, 10, 0.5), .momentum = 0.9});
  });
}

TEST(SessionTraining, AgreesWithAdam) {
  expect_all_agree([] { return optimizers::Adam({.learning_rate = 1e-2}); });
}

TEST(SessionTraining, AgreesOnAnEmulatedGpu) {
  testing::use_gpus(1);
  expect_all_agree([] { return optimizers::Adam({.learning_rate = 1e-2}); });
}

TEST(SessionTraining, TheLearningRateMayChangeBetweenRuns) {
  Graph graph;
  Variable w;
  Graph::Operation train;
  optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 1.0});
  {
    const GraphScope building(graph);
    w = Variable(constant({8.0}), {.name = "w"});
    train = graph.updates("train", [&] { sgd.minimize(reduce_sum(w), {w}); });
  }
  Session session(graph, {.initialize_variables = true});
  session.run(train);
  EXPECT_EQ(session.run(w).item<float>(), 7.0f);
  sgd.set_learning_rate(3.0);
  session.run(train);
  EXPECT_EQ(session.run(w).item<float>(), 4.0f);
  EXPECT_THROW(sgd.iterations(), FailedPreconditionError);
}

TEST(SessionTraining, SessionsCountTheirOwnSteps) {
  Graph graph;
  Variable w;
  Graph::Operation train;
  optimizers::Optimizer adam = optimizers::Adam({.learning_rate = 0.1});
  {
    const GraphScope building(graph);
    w = Variable(constant({1.0}), {.name = "w"});
    train = graph.updates("train", [&] { adam.minimize(reduce_sum(square(w)), {w}); });
  }
  Session first(graph, {.initialize_variables = true});
  for (int i = 0; i < 5; ++i) first.run(train);
  Session second(graph, {.initialize_variables = true});
  for (int i = 0; i < 5; ++i) second.run(train);
  EXPECT_EQ(first.run(w).item<float>(), second.run(w).item<float>());
  // Two steps in one run count as two.
  Graph::Operation twice;
  {
    const GraphScope building(graph);
    twice = graph.updates("twice", [&] {
      for (int i = 0; i < 2; ++i) adam.minimize(reduce_sum(square(w)), {w});
    });
  }
  first.run(train);
  first.run(train);
  second.run(twice);
  EXPECT_EQ(second.run("iterations:0").item<std::int64_t>(), 7);
  EXPECT_EQ(first.run(w).item<float>(), second.run(w).item<float>());
}

TEST(SessionTraining, TrainsCapturedVariables) {
  Variable w(constant({1.0, 2.0}));
  Variable expected(constant({1.0, 2.0}));
  optimizers::Optimizer adam = optimizers::Adam({.learning_rate = 0.1});
  optimizers::Optimizer reference = optimizers::Adam({.learning_rate = 0.1});
  Graph graph;
  Graph::Operation train;
  {
    const GraphScope building(graph);
    train = graph.updates("train", [&] { adam.minimize(reduce_sum(square(w)), {w}); });
  }
  Session session(graph);
  for (int i = 0; i < 3; ++i) {
    session.run(train);
    reference.minimize(reduce_sum(square(expected)), {expected});
  }
  EXPECT_EQ(w.value().to_vector<float>(), expected.value().to_vector<float>());
  EXPECT_EQ(adam.iterations(), 3);
}

}  // namespace
}  // namespace tandem::session_training_test
