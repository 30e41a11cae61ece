// Iterators in traced functions: next() takes an element in every run.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "support/gpus.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::iterator_in_function_test {
namespace {

using data::Dataset;
using data::Example;
using data::Iterator;
using testing::expect_error;

Dataset numbers(int count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i);
  return Dataset::from_tensor_slices(constant(values));
}

Dataset doubled(const Dataset& dataset) {
  return dataset.map([](const Example& example) { return Example(example[0] * 2.0); });
}

TEST(IteratorInFunction, ArgumentGivesTheNextElementInEveryRun) {
  const auto square_of = function([](Iterator& elements) { return square(elements.next()[0]); });
  Iterator first = numbers(5).iterate(), second = numbers(5).skip(3).iterate();
  EXPECT_EQ(square_of(first).item<float>(), 0);
  EXPECT_EQ(square_of(first).item<float>(), 1);
  EXPECT_EQ(square_of(second).item<float>(), 9);
  EXPECT_EQ(square_of(first).item<float>(), 4);
  EXPECT_EQ(square_of(second).item<float>(), 16);
  EXPECT_EQ(square_of.num_traces(), 1u);
  EXPECT_EQ(first.position().skip, 3);
}

TEST(IteratorInFunction, CapturedIteratorGivesTheNextElementInEveryRun) {
  Iterator elements = numbers(4).iterate();
  const auto next = function([elements]() mutable { return elements.next()[0] + 1.0; });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(next().item<float>(), static_cast<float>(i + 1));
  EXPECT_EQ(next.num_traces(), 1u);
}

TEST(IteratorInFunction, ElementsAreTakenInTheOrderOfTheCalls) {
  const auto step = function([](Iterator& a, Iterator& b) {
    const auto first = a.next();
    const auto other = b.next();
    const auto second = a.next();
    return first[0] * 100.0 + other[0] * 10.0 + second[0];
  });
  Iterator a = numbers(9).iterate(), b = numbers(9).skip(5).iterate();
  EXPECT_EQ(step(a, b).item<float>(), 51);
  EXPECT_EQ(step(a, b).item<float>(), 263);
}

TEST(IteratorInFunction, OneTraceServesBatchesOfAnySize) {
  const auto sum = function([](Iterator& batches) { return reduce_sum(batches.next()[0]); });
  Iterator batches = numbers(7).batch(3).iterate();
  EXPECT_EQ(sum(batches).item<float>(), 3);
  EXPECT_EQ(sum(batches).item<float>(), 12);
  EXPECT_EQ(sum(batches).item<float>(), 6);
  EXPECT_EQ(sum.num_traces(), 1u);
}

TEST(IteratorInFunction, AnotherElementSpecIsAnotherTrace) {
  const auto sum = function([](Iterator& batches) { return reduce_sum(batches.next()[0]); });
  Iterator scalars = numbers(3).iterate(), batches = numbers(3).batch(2).iterate();
  EXPECT_EQ(sum(scalars).item<float>(), 0);
  EXPECT_EQ(sum(batches).item<float>(), 1);
  EXPECT_EQ(sum(scalars).item<float>(), 1);
  EXPECT_EQ(sum.num_traces(), 2u);
}

TEST(IteratorInFunction, EndOfTheSequenceIsAnError) {
  const auto next =
      function([](Iterator& elements) { return elements.next()[0]; }, {.name = "take one"});
  Iterator elements = numbers(1).iterate();
  next(elements);
  for (int i = 0; i < 2; ++i)
    expect_error<OutOfRangeError>([&] { next(elements); }, "[take one] End of sequence");
  Iterator others = numbers(1).iterate();
  EXPECT_EQ(next(others).item<float>(), 0);
}

TEST(IteratorInFunction, ElementWithAnotherShapeOrDtypeIsAnError) {
  const auto next = function([](Iterator& elements) { return elements.next()[0]; });
  const auto generated = [](const std::vector<Tensor>& tensors) {
    return Dataset::from_generator([tensors] {
      return [tensors, i = std::size_t{0}]() mutable -> std::optional<Example> {
        if (i == tensors.size()) return std::nullopt;
        return Example(tensors[i++]);
      };
    });
  };
  Iterator shapes = generated({zeros({2, 3}), zeros({4, 3}), zeros({2, 5})}).iterate();
  next(shapes);
  EXPECT_EQ(next(shapes).dim(0), 4);
  expect_error<InvalidArgumentError>([&] { next(shapes); },
                                     "component 0 of an element differs from what was traced");
  Iterator dtypes = generated({zeros({2, 3}), zeros({2, 3}, {.dtype = int32})}).iterate();
  next(dtypes);
  expect_error<InvalidArgumentError>([&] { next(dtypes); }, "dtype float32, got (2, 3) and int32");
}

TEST(IteratorInFunction, SpecOfAMapComesFromTheNextElementWhichIsNotLost) {
  Iterator elements = doubled(numbers(3)).batch(2).iterate();
  ASSERT_EQ(elements.element_spec().size(), 1u);
  EXPECT_EQ(elements.element_spec()[0].dtype, float32);
  EXPECT_EQ(elements.element_spec()[0].shape, Shape({-1}));
  EXPECT_EQ(elements.position().skip, 0);
  const auto sum = function([](Iterator& batches) { return reduce_sum(batches.next()[0]); });
  EXPECT_EQ(sum(elements).item<float>(), 2);
  EXPECT_EQ(elements.position().skip, 1);
  EXPECT_EQ(sum(elements).item<float>(), 4);
  EXPECT_FALSE(elements.next());
  Iterator empty = doubled(numbers(0)).iterate();
  expect_error<FailedPreconditionError>([&] { empty.element_spec(); }, "element_spec()");
  Iterator undefined;
  expect_error<FailedPreconditionError>([&] { sum(undefined); }, "an iterator of no dataset");
}

// Trains a linear model and returns its weights.
std::vector<float> train(bool traced) {
  random::set_seed(3);
  const Tensor x = random::normal({40, 3}), y = reduce_sum(x, {.axis = {1}, .keepdims = true});
  Dataset dataset =
      Dataset::from_tensor_slices({x, y}).shuffle(40, {.seed = 1}).repeat(3).batch(16);
  Variable w(zeros({3, 1}));
  auto optimizer = optimizers::Adam({.learning_rate = 0.1});
  const auto step = [&](Iterator& batches) {
    const auto batch = batches.next();
    GradientTape tape;
    const Tensor loss = reduce_mean(square(matmul(batch[0], w) - batch[1]));
    optimizer.apply_gradients({tape.gradient(loss, w)}, {w});
    return loss;
  };
  Iterator batches = dataset.iterate();
  if (traced) {
    const auto program = function(step);
    for (int i = 0; i < 8; ++i) program(batches);
    EXPECT_EQ(program.num_traces(), 1u);
  } else {
    for (int i = 0; i < 8; ++i) step(batches);
  }
  EXPECT_FALSE(batches.next());
  return w.value().to_vector<float>();
}

TEST(IteratorInFunction, TrainingGivesTheBitsOfAnEagerLoop) {
  EXPECT_EQ(train(true), train(false));
}

TEST(IteratorInFunction, GradientsOfACallReadItsElement) {
  Variable w(constant(2.0f));
  const auto loss = function([&](Iterator& elements) { return square(w * elements.next()[0]); });
  Iterator elements = numbers(5).skip(3).iterate();
  for (const float x : {3.0f, 4.0f}) {
    GradientTape tape;
    const Tensor value = loss(elements);
    EXPECT_EQ(tape.gradient(value, w).item<float>(), 2 * 2 * x * x);
  }
}

TEST(IteratorInFunction, CallsThatRunEagerlyTakeOneElementEach) {
  Variable w(constant(2.0f));
  const auto step = function([&](Iterator& elements) {  // recorded control flow is not replayed
    const Tensor x = elements.next()[0];
    return cond(
        reduce_any(x > 1.0f), [&] { return w * x; }, [&] { return w - x; });
  });
  Iterator elements = numbers(4).iterate();
  for (const float expected : {2.0f, 1.0f, 4.0f, 6.0f})
    EXPECT_EQ(step(elements).item<float>(), expected);
}

TEST(IteratorInFunction, FunctionInAFunctionTakesElementsToo) {
  const auto inner = function([](Iterator& elements) { return elements.next()[0]; });
  const auto outer = function([&](Iterator& elements) {
    const Tensor first = inner(elements);
    return first - inner(elements);
  });
  Iterator elements = numbers(4).iterate();
  EXPECT_EQ(outer(elements).item<float>(), -1);
  EXPECT_EQ(outer(elements).item<float>(), -1);
  EXPECT_EQ(inner.num_traces(), 0u);
}

TEST(IteratorInFunction, PipelineMayCallTheFunction) {
  Iterator inner = numbers(8).iterate();
  const auto next = function([](Iterator& elements) { return elements.next()[0] + 1.0; });
  Iterator outer =
      numbers(8).map([&](const Example&) { return Example(next(inner)); }).prefetch(2).iterate();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(next(outer).item<float>(), static_cast<float>(i + 2));
}

TEST(IteratorInFunction, IteratorOfTheTraceIsReadDuringTheTrace) {
  const Dataset dataset = numbers(3);
  const auto sum = function([&](const Tensor& x) {
    Tensor total = x;
    Iterator elements = dataset.iterate();
    for (const Example& element : elements) total = total + element[0];
    return total;
  });
  EXPECT_EQ(sum(constant(1.0f)).item<float>(), 4);
  EXPECT_EQ(sum(constant(2.0f)).item<float>(), 5);
}

TEST(IteratorInFunction, LoopsAndBranchesAreRefused) {
  Iterator elements = numbers(8).iterate();
  const auto loop = function([&] {
    Tensor total = constant(0.0f);
    for (const Example& element : elements) total = total + element[0];
    return total;
  });
  expect_error<FailedPreconditionError>([&] { loop(); }, "would not end: use for_each");
  const auto branch = function([&](const Tensor& condition) {
    return cond(
        condition, [&] { return elements.next()[0]; }, [] { return constant(0.0f); });
  });
  expect_error<UnimplementedError>([&] { branch(constant(true)); },
                                   "next() was called in a branch or in the body of a loop");
  Graph graph;
  const GraphScope scope(graph);
  expect_error<UnimplementedError>([&] { elements.next(); }, "the graph of a session");
}

TEST(IteratorInFunction, ElementsMayBeOnADevice) {
  testing::use_gpus(1, 64);
  const auto sum = function([](Iterator& batches) { return reduce_sum(batches.next()[0]); });
  Iterator batches = numbers(6).batch(3).prefetch_to_device("/gpu:0").iterate();
  EXPECT_EQ(sum(batches).item<float>(), 3);
  EXPECT_EQ(sum(batches).item<float>(), 12);
}

TEST(IteratorInFunction, EveryReplicaTakesAnElement) {
  config::set_logical_cpus(2);
  const distribute::MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  Iterator elements = numbers(8).iterate();
  const auto step = function([&] {
    return strategy.reduce(ReduceOp::kSum, strategy.run([&] { return elements.next()[0]; }));
  });
  EXPECT_EQ(step().item<float>(), 0 + 1);
  EXPECT_EQ(step().item<float>(), 2 + 3);
}

}  // namespace
}  // namespace tandem::iterator_in_function_test
