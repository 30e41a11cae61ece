// Splitting a traced function, and running the parts: the same bits as the function itself.
#include "ps/split.h"

#include <gtest/gtest.h>

#include <functional>

#include "ps/in_process.h"
#include "support/tensors.h"

namespace tandem::ps::split_test {
namespace {

using tandem::testing::expect_error;
using testing::InProcess;
using testing::trace;
using MakeOptimizer = std::function<optimizers::Optimizer()>;

// A model with what a function may do: weights, batch normalisation's moving statistics, dropout.
struct Training : testing::TrainedModel {
  explicit Training(const MakeOptimizer& make) {
    optimizer = make();
    random::set_seed(5);
    model = Sequential({layers::Dense(8, {.activation = "tanh", .input_shape = {4}, .name = "a"}),
                        layers::BatchNormalization({.name = "norm"}), layers::Dropout(0.25),
                        layers::Dense(1, {.name = "b"})});
  }
};

std::vector<Tensor> batch(int number) {
  return testing::batch_of(static_cast<std::uint64_t>(number), 4);
}

class SplitOptimizers : public ::testing::TestWithParam<std::pair<const char*, MakeOptimizer>> {};

TEST_P(SplitOptimizers, TrainsWithTheBitsOfTheFunction) {
  const MakeOptimizer& make = GetParam().second;
  constexpr int kSteps = 5;

  Training whole(make);
  const auto function = tandem::function([&](const Tensor& x, const Tensor& y) {
    return whole.step({x, y})[0];
  });
  std::vector<float> losses;
  for (int i = 0; i < kSteps; ++i) {
    Generator generator({.seed = 7, .offset = static_cast<std::uint64_t>(i) << 32});
    const Scoped scope(context.generator, &generator);
    const std::vector<Tensor> inputs = batch(i);
    losses.push_back(function(inputs[0], inputs[1]).item<float>());
  }

  Training parts(make);
  parts.model.build({-1, 4});
  InProcess run(trace([&](const auto& inputs) { return parts.step(inputs); }, batch(0)));
  for (int i = 0; i < kSteps; ++i)
    EXPECT_EQ(run.run(batch(i), static_cast<std::uint64_t>(i))[0].item<float>(),
              losses[static_cast<std::size_t>(i)]);
  for (const Variable& variable : whole.model.variables())
    EXPECT_EQ(run.variable(variable.name()).to_vector<float>(), variable.value().to_vector<float>())
        << variable.name();
}

INSTANTIATE_TEST_SUITE_P(
    All, SplitOptimizers,
    ::testing::Values(
        std::pair<const char*, MakeOptimizer>{
            "sgd", [] { return optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}); }},
        std::pair<const char*, MakeOptimizer>{"adam", [] { return optimizers::Adam(0.01); }},
        std::pair<const char*, MakeOptimizer>{
            "scheduled",
            [] {
              return optimizers::SGD(
                  {.learning_rate = optimizers::schedules::exponential_decay(0.1, 2, 0.5)});
            }},
        std::pair<const char*, MakeOptimizer>{
            "clipped",
            [] { return optimizers::Adam({.learning_rate = 0.01, .global_clipnorm = 0.5}); }},
        std::pair<const char*, MakeOptimizer>{
            "adamw",
            [] { return optimizers::AdamW({.learning_rate = 0.01, .weight_decay = 0.1}); }}),
    [](const auto& info) { return info.param.first; });

TEST(Split, RepeatedClosuresUpdateOnce) {
  const MakeOptimizer sgd = [] { return optimizers::SGD(0.05); };
  Training once(sgd), often(sgd);
  for (Training* training : {&once, &often}) training->model.build({-1, 4});
  InProcess a(trace([&](const auto& inputs) { return once.step(inputs); }, batch(0)));
  InProcess b(trace([&](const auto& inputs) { return often.step(inputs); }, batch(0)));
  for (std::uint64_t closure = 0; closure < 3; ++closure) {
    a.run(batch(static_cast<int>(closure)), closure);
    b.run(batch(static_cast<int>(closure)), closure, 3);
  }
  EXPECT_EQ(a.repeated, 0);
  EXPECT_EQ(b.repeated, 2 * 3 * b.message().updates_size());
  for (const Variable& variable : once.model.variables())
    EXPECT_EQ(a.variable(variable.name()).to_vector<float>(),
              b.variable(variable.name()).to_vector<float>())
        << variable.name();
  EXPECT_EQ(b.stores[0].num_remembered(),
            3u * static_cast<std::size_t>(b.message().updates_size()));
}

TEST(Split, EachUpdateIsOneOperationOnItsVariableAndSlots) {
  Variable w(constant({1.0f, 2.0f}), {.name = "w"});
  auto adam = optimizers::Adam(0.1);
  InProcess run(trace(
      [&](const auto& inputs) {
        adam.minimize(reduce_sum(w * inputs[0]), {w});
        return std::vector<Tensor>();
      },
      {ones({2})}));
  ASSERT_EQ(run.message().updates_size(), 1);
  EXPECT_EQ(run.message().results(), 0u);
  EXPECT_EQ(run.message().updates(0).part().variables_size(), 3);  // w, m, v
  EXPECT_EQ(run.message().updates(0).inputs_size(), 1);
  EXPECT_EQ(run.message().worker().variables_size(), 0);  // the gradient does not depend on w
  run.run({ones({2})}, 0);
  EXPECT_NEAR(run.variable("w").to_vector<float>()[0], 0.9f, 1e-5);
}

TEST(Split, ValueComputedFromTheVariableIsComputedOnTheServer) {
  Variable v(constant({1.0f, 2.0f}), {.name = "v"});
  InProcess run(trace(
      [&](const auto& inputs) {
        const Tensor before = v.value();
        v.assign_add(inputs[0]);
        v.assign(v * 2.0 - inputs[0]);  // reads what the first update wrote
        return std::vector<Tensor>{before};
      },
      {ones({2})}));
  ASSERT_EQ(run.message().updates_size(), 2);
  for (const proto::Update& update : run.message().updates()) EXPECT_EQ(update.inputs_size(), 1);
  EXPECT_EQ(run.run({ones({2})}, 0)[0].to_vector<float>(), (std::vector<float>{1, 2}));
  EXPECT_EQ(run.variable("v").to_vector<float>(), (std::vector<float>{3, 5}));
}

TEST(Split, GradientStepWrittenByHandReadsTheWeightsOnTheWorker) {
  Variable w(ones({2, 1}), {.name = "w"});
  InProcess run(trace(
      [&](const auto& inputs) {
        GradientTape tape;
        const Tensor loss = reduce_sum(square(matmul(inputs[0], w)));
        w.assign_sub(tape.gradient(loss, w) * 0.1);
        return std::vector<Tensor>{loss};
      },
      {ones({1, 2})}));
  ASSERT_EQ(run.message().worker().variables_size(), 1);
  EXPECT_EQ(run.run({ones({1, 2})}, 0)[0].item<float>(), 4);
  for (const float element : run.variable("w").to_vector<float>())
    EXPECT_NEAR(element, 1.0 - 0.1 * 4, 1e-6);
}

TEST(Split, ReadAfterAnUpdateIsRefused) {
  Variable v(constant(1.0f), {.name = "v"});
  const auto traced = trace(
      [&](const auto&) {
        v.assign(constant(1.0f));
        return std::vector<Tensor>{v * 2.0};
      },
      {});
  expect_error<UnimplementedError>(
      [&] { InProcess run(traced); },
      "[step] variable 'v' is read after operation 'AssignVariableOp'");
}

TEST(Split, UpdateInABranchIsRefused) {
  Variable v(constant(1.0f), {.name = "v"});
  const auto traced = trace(
      [&](const auto& inputs) {
        cond(
            inputs[0], [&] { v.assign(constant(2.0f)); }, [] {});
        return std::vector<Tensor>();
      },
      {constant(true)});
  expect_error<UnimplementedError>([&] { InProcess run(traced); },
                                   "writes variables in a branch or loop");
}

TEST(Split, CapturedIteratorIsRefused) {
  data::Iterator numbers = data::Dataset::from_tensor_slices(constant({1.0f, 2.0f})).iterate();
  const auto traced =
      trace([&](const auto&) { return std::vector<Tensor>{numbers.next()[0]}; }, {});
  expect_error<UnimplementedError>([&] { InProcess run(traced); }, "an iterator was captured");
}

TEST(Split, InputsAreChecked) {
  const auto traced =
      trace([](const auto& inputs) { return std::vector<Tensor>{inputs[0] * 2.0}; }, {ones({2})});
  InProcess run(traced);
  EXPECT_EQ(run.run({ones({2})}, 0)[0].to_vector<float>(), (std::vector<float>{2, 2}));
  expect_error<InvalidArgumentError>([&] { run.run({}, 1); }, "[step] expected 1 arguments, got 0");
  expect_error<InvalidArgumentError>([&] { run.run({ones({3})}, 1); },
                                     "expected input 0 of shape (2,) and dtype float32, got (3,)");
}

TEST(Split, ElementsOfIteratorsAreInputs) {
  data::Iterator numbers = data::Dataset::from_tensor_slices(constant({1.0f, 2.0f})).iterate();
  detail::FunctionTraces traces({.name = "step"});
  detail::FunctionCall call;
  call.inputs = {ones({2})};
  call.passes = {numbers.pass()};
  InProcess run(traces.trace(call, [&](const std::vector<Tensor>& inputs) {
    const Tensor first = numbers.next()[0];
    return std::vector<Tensor>{inputs[0] * numbers.next()[0] - first};
  }));
  run.worker->add_iterator(4, data::Dataset::from_tensor_slices(constant({5.0f, 7.0f})).iterate());
  ASSERT_EQ(run.message().elements_size(), 2);
  EXPECT_EQ(run.message().elements(0).iterator(), 0u);
  EXPECT_EQ(run.message().elements(0).tensors(), 1u);
  EXPECT_EQ(run.message().arguments(), 1u);
  EXPECT_EQ(run.run({ones({2})}, 0, 1, {4})[0].to_vector<float>(), (std::vector<float>{2, 2}));
}

TEST(Split, AttributesOfARunMayChangeNumbersOnly) {
  Variable w(constant({1.0f, 2.0f}), {.name = "w"});
  auto adam = optimizers::Adam(0.1);
  const auto traced = trace(
      [&](const auto& inputs) {
        adam.minimize(reduce_sum(w * inputs[0]), {w});
        return std::vector<Tensor>();
      },
      {ones({2})});
  ParameterStore store;
  const SplitFunction function = split(*traced, [&](const Resource& variable) {
    const VariableId id = store.num_variables();
    store.create(id, variable.name(), const_cast<Resource&>(variable).value());
    return one_shard(id, variable.spec().shape);
  });
  store.add_update(0, 0, function.message.updates(0).part());
  ASSERT_TRUE(function.update_attributes[0]);
  proto::RunAttributes attributes = attributes_of_run(*function.update_attributes[0]);
  const Tensor gradient = ones({2});
  store.apply(0, 0, 0, {&gradient, 1}, {&attributes, 1});
  expect_error<InvalidArgumentError>(
      [&] {
        store.apply(0, 0, 1, {&gradient, 1}, {});
      },
      "expected the attributes of 1 nodes, got 0");
  attributes.mutable_fields(0)->set_name("other");
  expect_error<InvalidArgumentError>(
      [&] {
        store.apply(0, 0, 1, {&gradient, 1}, {&attributes, 1});
      },
      "differ from the function's in more than real numbers and the step");
}

// Every corruption of a message is an error, not a crash.
TEST(Split, CorruptPartsAreRefused) {
  Variable w(constant({1.0f, 2.0f}), {.name = "w"});
  const auto traced = trace(
      [&](const auto& inputs) {
        w.assign_add(inputs[0]);
        return std::vector<Tensor>{inputs[0] * 2.0};
      },
      {ones({2})});
  const SplitFunction function =
      split(*traced, [](const Resource& variable) { return one_shard(0, variable.spec().shape); });
  ParameterStore store;
  store.create(0, "w", zeros({2}));
  const proto::Part& good = function.message.updates(0).part();
  const auto refused = [&](const std::function<void(proto::Part&)>& change) {
    proto::Part part = good;
    change(part);
    EXPECT_THROW(store.add_update(1, 0, part), Error);
  };
  refused([](proto::Part& part) {
    std::string& graph = *part.mutable_function()->mutable_graph();
    graph.resize(graph.size() / 2);
  });
  refused([](proto::Part& part) { part.mutable_function()->set_feeds(0, 99); });
  refused(
      [](proto::Part& part) { part.mutable_function()->set_feeds(0, part.variables(0).node()); });
  refused([](proto::Part& part) { part.add_attributes(99); });
  refused([](proto::Part& part) { part.mutable_variables(0)->set_node(99); });
  refused([](proto::Part& part) { part.mutable_variables(0)->mutable_shards(0)->set_id(5); });
  refused([](proto::Part& part) { part.mutable_variables(0)->mutable_shards(0)->set_rows(1); });
  refused([](proto::Part& part) { part.mutable_variables(0)->clear_shards(); });
  refused([](proto::Part& part) {
    part.mutable_variables(0)->mutable_shards(0)->set_rows(1);
    part.mutable_variables(0)->add_shards()->set_rows(1);
  });
  refused([](proto::Part& part) { part.clear_variables(); });
  refused([](proto::Part& part) { part.mutable_function()->add_fetches()->set_output(4); });
  store.add_update(1, 0, good);
  const Tensor value = ones({2});
  store.apply(1, 0, 0, {&value, 1}, {});
  EXPECT_EQ(store.read(0).value.to_vector<float>(), (std::vector<float>{1, 1}));
}

// Each operation uses its input twice, so that there are 2^64 paths.
TEST(Split, AnAssignedChainOfManyOperationsIsSplit) {
  Variable v(ones({2}), {.name = "v"});
  InProcess run(trace(
      [&](const auto& inputs) {
        Tensor h = v.value() + inputs[0];
        for (int i = 0; i < 64; ++i) h = h * (h * 0.5 + 0.5);
        v.assign(h);
        return std::vector<Tensor>{inputs[0] + 0.0};
      },
      {zeros({2})}));
  run.run({zeros({2})}, 0);
  EXPECT_EQ(run.variable("v").to_vector<float>(), (std::vector<float>{1, 1}));
}

}  // namespace
}  // namespace tandem::ps::split_test
