// Sequences whose positions are computed one after the other equal those computed at once.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "support/errors.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::key_value_cache_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::values_of;

constexpr std::int64_t kBatch = 2, kPositions = 9, kCapacity = 12, kWords = 31;

// A decoder of two blocks; large weights, so that the positions differ much.
Functional decoder(const DTypePolicy& policy = {}) {
  const auto add = [](const SymbolicInput& a, const SymbolicInput& b) {
    return layers::Add()({a, b});
  };
  const SymbolicInput words = Input({-1});
  SymbolicInput x = layers::Embedding(kWords, 16)(words);
  x = add(x, layers::PositionEmbedding(kCapacity)(x));
  for (int block = 0; block < 2; ++block) {
    const Layer attention = layers::MultiHeadAttention(
        2, 8, {.value_dim = 6, .use_causal_mask = true, .dtype = policy});
    x = add(x, attention(layers::LayerNormalization()(x)));
    x = add(x, layers::Dense(16, {.activation = "gelu"})(x));
  }
  const Functional model(words, layers::Dense(kWords)(x));
  std::uint32_t seed = 1;
  for (Variable variable : model.trainable_variables())
    variable.assign(random_tensor(variable.shape(), seed++, -0.6, 0.6, float32));
  return model;
}

Tensor words_of(std::int64_t batch = kBatch, std::int64_t positions = kPositions) {
  std::vector<std::int32_t> words;
  for (std::int64_t i = 0; i < batch * positions; ++i)
    words.push_back(static_cast<std::int32_t>((i * i + 3 * i) % kWords));
  return reshape(constant(words), {batch, positions});
}

// Positions from `begin` on, `count` of them.
Tensor part(const Tensor& x, std::int64_t begin, std::int64_t count) {
  return x.rank() == 2 ? slice(x, {0, begin}, {-1, count})
                       : slice(x, {0, begin, 0}, {-1, count, -1});
}

void expect_positions(const Tensor& got, const Tensor& all, std::int64_t begin,
                      double tolerance = 2e-5) {
  const Tensor expected = part(all, begin, got.shape()[1]);
  expect_tensor(got, expected.dtype(), expected.shape(), values_of(expected), tolerance);
}

TEST(KeyValueCache, OnePositionAfterTheOtherEqualsAllAtOnce) {
  const Functional model = decoder();
  const Tensor words = words_of(), all = model(words);
  const KeyValueCache cache(kCapacity);
  for (std::int64_t i = 0; i < kPositions; ++i)
    expect_positions(cache(model, part(words, i, 1)), all, i);
}

TEST(KeyValueCache, APromptAndThenPartsEqualAllAtOnce) {
  const Functional model = decoder();
  const Tensor words = words_of(), all = model(words);
  const KeyValueCache cache(kPositions);  // it becomes full
  std::int64_t begin = 0;
  for (const std::int64_t count : {4, 1, 3, 1}) {
    expect_positions(cache(model, part(words, begin, count)), all, begin);
    begin += count;
  }
}

TEST(KeyValueCache, ATracedCallIsOneTraceForAllPositions) {
  const Functional model = decoder();
  const Tensor words = words_of(), all = model(words);
  const KeyValueCache cache(kCapacity);
  const auto next = function([&](const Tensor& x) { return cache(model, x); });
  for (int text = 0; text < 2; ++text) {
    for (std::int64_t i = 0; i < kPositions; ++i) expect_positions(next(part(words, i, 1)), all, i);
    cache.reset();
  }
  EXPECT_EQ(next.num_traces(), 1u);
}

TEST(KeyValueCache, EagerCallsContinueTracedOnes) {
  const Functional model = decoder();
  const Tensor words = words_of(), all = model(words);
  const KeyValueCache cache(kCapacity);
  const auto next = function([&](const Tensor& x) { return cache(model, x); });
  expect_positions(next(part(words, 0, 3)), all, 0);
  expect_positions(cache(model, part(words, 3, 2)), all, 3);
  expect_positions(next(part(words, 5, 3)), all, 5);
}

TEST(KeyValueCache, CachesOfOneModelAreIndependent) {
  const Functional model = decoder();
  const Tensor words = words_of(), all = model(words);
  const KeyValueCache first(kCapacity), second(kPositions);
  expect_positions(first(model, part(words, 0, 5)), all, 0);
  expect_positions(second(model, part(words, 0, 2)), all, 0);
  expect_positions(first(model, part(words, 5, 1)), all, 5);
  expect_positions(second(model, part(words, 2, 1)), all, 2);
  expect_positions(model(words), all, 0, 0.0);  // which uses none
}

TEST(KeyValueCache, KeepsThePrecisionOfTheLayer) {
  const Functional model = decoder("mixed_bfloat16");
  const Tensor words = words_of(), all = model(words);
  const KeyValueCache cache(kCapacity);
  for (std::int64_t i = 0; i < kPositions; ++i)
    expect_positions(cache(model, part(words, i, 1)), all, i, 0.1);
}

// A function that the model calls has a trace for calls with the cache.
TEST(KeyValueCache, AFunctionInTheModelIsTracedForEachCache) {
  const Layer attention = layers::MultiHeadAttention(2, 4, {.use_causal_mask = true});
  const auto traced = function([&](const Tensor& x) { return attention(x); });
  class Outer final : public layers::Layer {
   public:
    explicit Outer(std::function<Tensor(const Tensor&)> inner) : inner_(std::move(inner)) {}
    Tensor call(const Tensor& x) override { return inner_(x); }

   private:
    std::function<Tensor(const Tensor&)> inner_;
  };
  const NoGradScope no_grad;
  const Tensor x = random_tensor({1, 4, 6}, 3, -1.0, 1.0, float32), all = attention(x);
  const Layer model = Outer([&](const Tensor& y) { return traced(y); });
  model(x);
  for (int i = 0; i < 2; ++i) {
    const KeyValueCache cache(4);
    expect_positions(cache(model, part(x, 0, 2)), all, 0);
    expect_positions(cache(model, part(x, 2, 2)), all, 2);
    expect_positions(model(x), all, 0);
  }
}

TEST(KeyValueCache, WritesTheNewPositionsInPlace) {
  const Functional model = decoder();
  const KeyValueCache cache(kCapacity);
  cache(model, words_of(kBatch, 1));
  profiler::start({});
  values_of(cache(model, words_of(kBatch, 1)));  // waits for the device
  std::map<std::string, std::int64_t> calls;
  for (const profiler::OperationTotal& total : profiler::stop().totals)
    calls[total.name] = total.calls;
  EXPECT_EQ(calls["AssignSlice"], 4);  // keys and values of two layers
  EXPECT_EQ(calls["SelectV2"], 0);
}

TEST(KeyValueCache, ACacheFilledInAStrategysScopeServesAllItsDevices) {
  config::set_logical_cpus(2);
  const distribute::MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  const auto scope = strategy.scope();
  const Functional model = decoder();
  const Tensor words = words_of(), all = model(words);
  const KeyValueCache cache(kCapacity);
  for (std::int64_t i = 0; i < kPositions; i += 3)
    expect_positions(cache(model, part(words, i, 3)), all, i);
  expect_error<UnimplementedError>([&] { strategy.run([&] { return cache(model, words); }); },
                                   "a replica of a strategy cannot keep positions");
}

TEST(KeyValueCache, ErrorsNameTheLayerAndTheLimit) {
  expect_error<InvalidArgumentError>([] { KeyValueCache(0); },
                                     "[KeyValueCache] expected a positive capacity, got 0");
  const DeviceScope cpu("/cpu:0");  // GPUs report the values of positions later
  const Functional model = decoder();
  const Tensor words = words_of();
  const KeyValueCache cache(4);
  expect_error<InvalidArgumentError>([&] { cache(model, words); }, "position_embedding");
  cache.reset();
  cache(model, part(words, 0, 4));
  expect_error<InvalidArgumentError>([&] { cache(model, part(words, 4, 1)); }, "4");
  cache.reset();
  expect_error<InvalidArgumentError>([&] { cache(model, words_of(3, 1)); },
                                     "[multi_head_attention] expected keys and "
                                     "values of shape (2, 4, 2, 8) and dtype float32, as in the "
                                     "first call, got (3, 4, 2, 8) and float32");
}

TEST(KeyValueCache, RefusesAttentionToLaterPositions) {
  const Layer layer = layers::MultiHeadAttention(2, 4);
  const Tensor x = ones({1, 3, 6});
  const KeyValueCache cache(8);
  expect_error<FailedPreconditionError>([&] { cache(layer, x); }, "which was not built");
  layer(x);
  expect_error<InvalidArgumentError>(
      [&] { cache(layer, x); },
      "[multi_head_attention] expected one input and use_causal_mask in a call with a "
      "KeyValueCache, got 1 input, without use_causal_mask");
  const Graph graph;
  const GraphScope building(graph);
  expect_error<UnimplementedError>(
      [&] {
        cache(layer, placeholder(float32, {1, 3, 6}));
      },
      "would not change the cache");
}

}  // namespace
}  // namespace tandem::key_value_cache_test
