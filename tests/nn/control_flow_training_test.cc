// Training inside the bodies of loops and branches.
#include <gtest/gtest.h>

#include <cmath>

#include "support/gpus.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::control_flow_training_test {
namespace {

using testing::expect_error;

using Tensors = std::vector<Tensor>;

struct Trained {
  std::vector<float> values;  // weights, slots, step counts, generator offset
};

void expect_same(const Trained& traced, const Trained& eager) {
  ASSERT_EQ(traced.values.size(), eager.values.size());
  for (std::size_t i = 0; i < eager.values.size(); ++i)
    EXPECT_NEAR(traced.values[i], eager.values[i],
                1e-6f * std::max(0.1f, std::abs(eager.values[i])))
        << i;
}

Trained values_of_training(const Sequential& model, const optimizers::Optimizer& optimizer) {
  Trained trained;
  for (const Variable& variable : model.variables())
    for (float value : variable.value().to_vector<float>()) trained.values.push_back(value);
  for (const Variable& variable : optimizer.variables())
    if (variable.dtype() == float32)
      for (float value : variable.value().to_vector<float>()) trained.values.push_back(value);
  trained.values.push_back(static_cast<float>(optimizer.iterations()));
  trained.values.push_back(static_cast<float>(random::get_state().offset));
  return trained;
}

Sequential make_model() {
  random::set_seed(3);
  return Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {8}}),
                     layers::Dropout(0.25), layers::BatchNormalization(), layers::Dense(4)});
}

data::Dataset make_data(std::int64_t count, std::int64_t batch) {
  DeviceScope cpu("/cpu:0");
  random::set_seed(5);
  const Tensor x = random::normal({count, 8});
  return data::Dataset::from_tensor_slices({x, random::uniform_int({count}, 0, 4)})
      .shuffle(count, {.seed = 2})
      .batch(batch);
}

using MakeOptimizer = std::function<optimizers::Optimizer()>;

Trained train_over_dataset(bool traced, const data::Dataset& data, const MakeOptimizer& make) {
  Sequential model = make_model();
  optimizers::Optimizer optimizer = make();
  Variable total(zeros({}), {.trainable = false});
  const auto epoch = [&] {
    total.assign(zeros({}));
    for_each(data, [&](const data::Example& batch) {
      GradientTape tape;
      const Tensor logits = model(batch[0], {.training = true});
      const Tensor loss = reduce_mean(nn::sparse_softmax_cross_entropy(batch[1], logits));
      optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                                model.trainable_variables());
      total.assign_add(loss);
    });
    return total.value();
  };
  const auto replayed = function(epoch);
  random::set_seed(4);
  Trained trained;
  std::vector<float> losses;
  for (int i = 0; i < 4; ++i) losses.push_back((traced ? replayed() : epoch()).item<float>());
  trained = values_of_training(model, optimizer);
  trained.values.insert(trained.values.end(), losses.begin(), losses.end());
  return trained;
}

TEST(ControlFlowTraining, ATracedLoopOverADatasetEqualsTheEagerLoop) {
  const MakeOptimizer sgd = [] {
    return optimizers::SGD(
        {.learning_rate = optimizers::schedules::exponential_decay(0.1, 5, 0.5), .momentum = 0.9});
  };
  const MakeOptimizer adam = [] { return optimizers::Adam(); };
  expect_same(train_over_dataset(true, make_data(24, 8), sgd),
              train_over_dataset(false, make_data(24, 8), sgd));
  expect_same(train_over_dataset(true, make_data(24, 8), adam),
              train_over_dataset(false, make_data(24, 8), adam));
}

TEST(ControlFlowTraining, OneTraceServesBatchesOfSeveralSizes) {
  const MakeOptimizer sgd = [] { return optimizers::SGD({.learning_rate = 0.1}); };
  expect_same(train_over_dataset(true, make_data(27, 8), sgd),
              train_over_dataset(false, make_data(27, 8), sgd));
}

TEST(ControlFlowTraining, SpecsOfMappedElementsAreFoundByTheFirstElement) {
  const auto data = data::Dataset::from_tensor_slices({constant({1.0f, 2.0f, 3.0f, 4.0f, 5.0f})})
                        .batch(2)
                        .map([](const data::Example& e) { return data::Example(e[0] * 2.0); });
  int traced = 0;
  Variable sum(zeros({}));
  const auto run = function([&] {
    for_each(data, [&](const data::Example& element) {
      ++traced;
      sum.assign_add(reduce_sum(element[0]));
    });
  });
  run();
  EXPECT_EQ(sum.value().item<float>(), 30.0f);
  run();
  EXPECT_EQ(sum.value().item<float>(), 60.0f);
  EXPECT_EQ(traced, 1);
}

TEST(ControlFlowTraining, EachRunIsANewEpoch) {
  const auto make = [] {
    return data::Dataset::from_tensor_slices({range(10)}).shuffle(10, {.seed = 3}).batch(1);
  };
  Variable order(zeros({}, {.dtype = int64}));
  const auto epoch = [&](const data::Dataset& data) {
    order.assign(zeros({}, {.dtype = int64}));
    for_each(data, [&](const data::Example& e) {
      order.assign(order * full({}, 10, {.dtype = int64}) + reduce_sum(e[0].to(int64)));
    });
    return order.value();
  };
  const data::Dataset eager = make(), looped = make();
  const auto replayed = function([&] { return epoch(looped); });
  std::vector<std::int64_t> orders;
  for (int i = 0; i < 3; ++i) {
    orders.push_back(epoch(eager).item<std::int64_t>());
    EXPECT_EQ(replayed().item<std::int64_t>(), orders.back());
  }
  EXPECT_NE(orders[0], orders[1]);
}

TEST(ControlFlowTraining, BodiesOfALoopOverADatasetMayUseSeveralDevices) {
  testing::use_gpus(2, 64);
  Variable sum;
  {
    const DeviceScope gpu("/gpu:1");
    sum = Variable(zeros({}));
  }
  const auto data = data::Dataset::from_tensor_slices({range(1.0, 21.0)}).batch(8);
  const auto run = [&] {
    const DeviceScope gpu("/gpu:0");
    for_each(data, [&](const data::Example& batch) {
      const Tensor mean = reduce_mean(batch[0]);
      cond(
          greater(mean, -10.0), [&] { sum.assign_add(mean); }, [] {});
    });
  };
  run();
  const float once = sum.value().item<float>();
  function(run)();
  EXPECT_NEAR(sum.value().item<float>(), 2 * once, 1e-6f);
}

TEST(ControlFlowTraining, ElementsMayBeOnAnyDevice) {
  testing::use_gpus(2, 64);
  constexpr int kElements = 7;
  int made = 0;
  const auto data = data::Dataset::from_generator([&] {
    return [&, i = 0]() mutable -> std::optional<data::Example> {
      if (++i > kElements) return std::nullopt;
      ++made;
      const std::string device = std::vector<std::string>{"/cpu:0", "/gpu:0", "/gpu:1"}[i % 3];
      const auto there = [&](const char* name, double value) {
        const DeviceScope scope(name);
        return full({4}, value);
      };
      return data::Example({there(device.c_str(), i), there("/gpu:1", 10 * i)});
    };
  });
  const DeviceScope gpu("/gpu:0");
  Variable sum(zeros({4}));
  const auto run = function([&] {
    for_each(data, [&](const data::Example& e) { sum.assign(sum * 2.0 + e[0] + e[1]); });
  });
  run();
  made = 0;
  run();
  EXPECT_EQ(made, kElements);
  double expected = 0.0;
  for (int again = 0; again < 2; ++again)
    for (int i = 1; i <= kElements; ++i) expected = expected * 2 + 11 * i;
  EXPECT_EQ(testing::values_of(sum.value()), std::vector<double>(4, expected));
}

TEST(ControlFlowTraining, SessionsLoopOverDatasets) {
  const auto data = make_data(20, 8);
  const auto train = [&](const Variable& w, optimizers::Optimizer& optimizer) {
    for_each(data, [&](const data::Example& batch) {
      optimizer.minimize(reduce_mean(square(reduce_sum(batch[0] * w, {.axis = Dims{1}}) - 1.0)),
                         {w});
    });
  };
  Variable w(ones({8}));
  optimizers::Optimizer optimizer = optimizers::Adam();
  Graph graph;
  Variable in_graph;
  Graph::Operation epoch;
  {
    const GraphScope scope(graph);
    in_graph = Variable(ones({8}), {.name = "w"});
    optimizers::Optimizer its_optimizer = optimizers::Adam();
    its_optimizer.build({in_graph});
    epoch = graph.updates("epoch", [&] { train(in_graph, its_optimizer); });
  }
  Session session(graph, {.initialize_variables = true});
  session.run({epoch});  // epoch 0 of the dataset
  session.run({epoch});  // epoch 1
  const auto again = make_data(20, 8);
  for (int i = 0; i < 2; ++i)
    for (const data::Example& batch : again)
      optimizer.minimize(reduce_mean(square(reduce_sum(batch[0] * w, {.axis = Dims{1}}) - 1.0)),
                         {w});
  testing::expect_tensor(session.run(in_graph), float32, {8}, testing::values_of(w.value()), 1e-5);
}

TEST(ControlFlowTraining, AnElementOfAnotherSpecIsAnError) {
  const auto data = data::Dataset::from_generator([] {
    return [i = 0]() mutable -> std::optional<data::Example> {
      if (++i > 3) return std::nullopt;
      return data::Example(i < 3 ? zeros({2, 3}) : zeros({2, 4}));
    };
  });
  const auto run = function([&] { for_each(data, [](const data::Example&) {}); });
  expect_error<InvalidArgumentError>([&] { run(); },
                                     "expected shape (?, 3) and dtype float32, as the loop was "
                                     "traced for, got (2, 4) and float32");
}

// Steps before, in and after a loop. Adam's updates depend on the steps' numbers.
Trained train_in_loops(bool traced) {
  Sequential model = make_model();
  optimizers::Optimizer optimizer = optimizers::Adam({.learning_rate = 0.01});
  random::set_seed(6);
  const Tensor x = random::normal({12, 8}), y = random::uniform_int({12}, 0, 4);
  const auto step = [&](const Tensor& scale) {
    GradientTape tape;
    const Tensor logits = model(x, {.training = true});
    const Tensor loss = reduce_mean(nn::sparse_softmax_cross_entropy(y, logits)) * scale;
    optimizer.apply_gradients(tape.gradient(loss, model.trainable_variables()),
                              model.trainable_variables());
    return loss.detach();
  };
  const auto run = [&](const Tensor& n) {
    const Tensor first = step(ones({}));
    const Tensors last = while_loop([&](const Tensors& v) { return less(v[0], n); },
                                    [&](const Tensors& v) {
                                      const Tensor once = step(ones({}));
                                      cond(
                                          less(v[0], 2.0), [&] { step(once); }, [] {});
                                      return Tensors{v[0] + 1.0, v[1] + once};
                                    },
                                    {zeros({}), first});
    return last[1] + step(ones({}));
  };
  const auto replayed = function(run);
  std::vector<float> losses;
  for (float n : {2.0f, 0.0f, 4.0f, 1.0f})
    losses.push_back((traced ? replayed(constant(n)) : run(constant(n))).item<float>());
  Trained trained = values_of_training(model, optimizer);
  trained.values.insert(trained.values.end(), losses.begin(), losses.end());
  return trained;
}

TEST(ControlFlowTraining, StepsInLoopsAndBranchesCount) {
  expect_same(train_in_loops(true), train_in_loops(false));
}

}  // namespace
}  // namespace tandem::control_flow_training_test
