// Variables that are divided into shards on several servers, compared with one device.
#include "ps/shards.h"

#include <gtest/gtest.h>

#include <functional>

#include "ps/in_process.h"
#include "support/tensors.h"

namespace tandem::ps::shards_test {
namespace {

using tandem::testing::expect_error;
using testing::InProcess;
using testing::trace;
using MakeOptimizer = std::function<optimizers::Optimizer()>;

struct Case {
  const char* name;
  MakeOptimizer make;
};

struct Training : testing::TrainedModel {
  explicit Training(const MakeOptimizer& make) {
    optimizer = make();
    random::set_seed(5);
    model = Sequential({layers::Dense(7, {.activation = "tanh", .input_shape = {5}, .name = "a"}),
                        layers::Dense(1, {.name = "b"})});
    model.build({-1, 5});
  }
};

std::vector<Tensor> batch(std::uint64_t number) { return testing::batch_of(number, 5); }

class ShardedTraining : public ::testing::TestWithParam<std::tuple<Case, std::int64_t>> {};

TEST_P(ShardedTraining, GivesTheBitsOfTheFunction) {
  const MakeOptimizer& make = std::get<0>(GetParam()).make;
  const std::int64_t shards = std::get<1>(GetParam());
  Training whole(make), parts(make);
  const auto function = tandem::function([&](const Tensor& x, const Tensor& y) {
    return whole.step({x, y})[0];
  });
  InProcess run(trace([&](const auto& inputs) { return parts.step(inputs); }, batch(0)), 2, shards);
  for (std::uint64_t i = 0; i < 5; ++i) {
    const std::vector<Tensor> inputs = batch(i);
    EXPECT_EQ(run.run(inputs, i)[0].item<float>(), function(inputs[0], inputs[1]).item<float>());
  }
  for (const Variable& variable : whole.model.variables())
    EXPECT_EQ(run.variable(variable.name()).to_vector<float>(), variable.value().to_vector<float>())
        << variable.name();
}

const Case kCases[] = {
    {"sgd", [] { return optimizers::SGD(0.05); }},
    {"momentum",
     [] { return optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9, .nesterov = true}); }},
    {"adam", [] { return optimizers::Adam(0.01); }},
    {"adagrad", [] { return optimizers::Adagrad({.learning_rate = 0.1}); }},
    {"rmsprop",
     [] {
       return optimizers::RMSprop({.learning_rate = 0.01, .momentum = 0.5, .centered = true});
     }},
    {"clipped", [] {
       return optimizers::AdamW(
           {.learning_rate = 0.01, .weight_decay = 0.1, .global_clipnorm = 0.5});
     }}};

INSTANTIATE_TEST_SUITE_P(All, ShardedTraining,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values<std::int64_t>(2, 3)),
                         [](const auto& info) {
                           return fmt::format("{}_{}_shards", std::get<0>(info.param).name,
                                              std::get<1>(info.param));
                         });

TEST(Shards, FirstShardsHaveOneRowMoreAndUpdatesGoToTheirServers) {
  Variable w(reshape(range(0.0, 26.0, 1.0), {13, 2}), {.name = "w"});
  auto sgd = optimizers::SGD(1.0);
  InProcess run(trace(
                    [&](const auto& inputs) {
                      sgd.minimize(reduce_sum(w * inputs[0]), {w});
                      return std::vector<Tensor>();
                    },
                    {ones({13, 2})}),
                2, 5);
  ASSERT_EQ(run.message().updates_size(), 5);
  std::int64_t row = 0;
  for (int i = 0; i < 5; ++i) {
    const proto::Update& update = run.message().updates(i);
    EXPECT_EQ(server_of(update), static_cast<std::uint32_t>(i % 2));
    EXPECT_EQ(update.inputs(0).rows().first(), row);
    EXPECT_EQ(update.inputs(0).rows().count(), i < 3 ? 3 : 2);
    EXPECT_EQ(update.inputs(0).fetch(), 0u);  // one gradient
    row += update.inputs(0).rows().count();
  }
  const Tensor gradient = reshape(range(0.0, 26.0, 1.0), {13, 2});
  run.run({gradient}, 0);
  EXPECT_EQ(run.variable("w").to_vector<float>(), std::vector<float>(26, 0));
  // Each server gets its rows and little else.
  for (const auto& server : run.servers)
    EXPECT_LT(server.by_method.at(kApply).sent, 8u * 2 * sizeof(float) + 3 * 150);
}

TEST(Shards, ScalarsAndShortVariablesAreWhole) {
  Variable a(constant(2.0f), {.name = "a"}), b(constant({1.0f, 2.0f}), {.name = "b"});
  InProcess run(trace(
                    [&](const auto& inputs) {
                      const Tensor before = a * b;
                      a.assign_add(inputs[0]);
                      b.assign(b * inputs[0]);
                      return std::vector<Tensor>{before};
                    },
                    {constant(3.0f)}),
                2, 3);
  EXPECT_EQ(run.message().updates_size(), 2);
  EXPECT_EQ(run.run({constant(3.0f)}, 0)[0].to_vector<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(run.variable("a").item<float>(), 5);
  EXPECT_EQ(run.variable("b").to_vector<float>(), (std::vector<float>{3, 6}));
}

// Operands that are broadcast along the rows are sent whole to each shard, others in parts.
TEST(Shards, AssignedFormulasTakeTheirRows) {
  const Tensor start = reshape(range(0.0, 12.0, 1.0), {4, 3});
  Variable v(start, {.name = "v"}), w(start * 2.0, {.name = "w"});
  const std::vector<Tensor> arguments = {constant({1.0f, 2.0f, 3.0f}),
                                         constant({{1.0f}, {2.0f}, {3.0f}, {4.0f}}),
                                         constant({{5.0f, 6.0f, 7.0f}}), constant(0.5f)};
  const auto next = [&](const Tensor& value, const Tensor& other, const auto& inputs) {
    return maximum(value * inputs[0] - inputs[1], inputs[2]) * inputs[3] + other;
  };
  InProcess run(trace(
                    [&](const auto& inputs) {
                      v.assign(next(v, w, inputs));
                      return std::vector<Tensor>();
                    },
                    arguments),
                3, 3);
  ASSERT_EQ(run.message().updates_size(), 3);
  const Tensor expected = next(start, start * 2.0, arguments);
  run.run(arguments, 0);
  EXPECT_EQ(run.variable("v").to_vector<float>(), expected.to_vector<float>());
}

TEST(Shards, RepeatedClosuresUpdateEachShardOnce) {
  Variable v(zeros({5, 2}), {.name = "v"});
  InProcess run(trace(
                    [&](const auto& inputs) {
                      v.assign_add(inputs[0]);
                      return std::vector<Tensor>();
                    },
                    {ones({5, 2})}),
                2, 3);
  run.run({ones({5, 2})}, 0, 4);
  EXPECT_EQ(run.repeated, 3 * 3);
  EXPECT_EQ(run.variable("v").to_vector<float>(), std::vector<float>(10, 1));
}

TEST(Shards, UpdateOfTheWholeVariableIsRefused) {
  Variable w(ones({4, 2}), {.name = "w"});
  auto lamb = optimizers::LAMB({.learning_rate = 0.1});
  const auto traced = trace(
      [&](const auto& inputs) {
        lamb.minimize(reduce_sum(w * inputs[0]), {w});
        return std::vector<Tensor>();
      },
      {ones({4, 2})});
  InProcess whole(traced, 2, 1);
  whole.run({ones({4, 2})}, 0);
  expect_error<UnimplementedError>(
      [&] { InProcess run(traced, 2, 2); },
      "[step] operation 'ApplyLamb' (ApplyLamb) updates variable 'w', which has 2 shards, as a "
      "whole: give it one shard (ParameterServerOptions::variable_partitioner) or use another "
      "optimizer");
}

TEST(Shards, UpdateOfVariablesOfSeveralServersIsRefused) {
  Variable w(ones({4, 2}), {.name = "w"});
  auto momentum = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
  const auto traced = trace(
      [&](const auto& inputs) {
        momentum.minimize(reduce_sum(w * inputs[0]), {w});
        return std::vector<Tensor>();
      },
      {ones({4, 2})});
  const auto refused = [&](const std::function<std::vector<Shard>(std::uint32_t)>& make) {
    expect_error<UnimplementedError>(
        [&] {
          split(*traced,
                [&](const Resource& variable) { return make(variable.name() == "w" ? 0 : 1); });
        },
        "updates variables 'w' and 'sgd/w/momentum', which are not on the same server, or not "
        "divided alike");
  };
  refused([](std::uint32_t i) { return one_shard(variable_id(i, 0), Shape({4, 2})); });
  refused([](std::uint32_t i) {
    const std::int64_t first = i == 0 ? 1 : 2;
    return std::vector<Shard>{{.id = i, .rows = first},
                              {.id = i + 2, .first_row = first, .rows = 4 - first}};
  });
}

}  // namespace
}  // namespace tandem::ps::shards_test
