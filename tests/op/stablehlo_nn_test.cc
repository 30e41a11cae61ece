// Lowerings of the operations of networks to StableHLO where the benchmark cases do not reach:
// unusual windows, masks, shapes, and the optimizers' updates.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "op/lowered_run.h"
#include "ops/nn/batch_norm.h"
#include "tandem/tandem.h"

namespace tandem::stablehlo_nn_test {
namespace {

using nn::Padding;
using testing::expect_lowered, testing::LoweredCase, testing::Tensors;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor data(const Shape& shape, DType dtype = float32) {
  return cast(random::normal(shape), dtype);
}

class LoweredNetworksSlow : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
    random::set_seed(17);
  }
};

// --- windows ---

TEST_F(LoweredNetworksSlow, Convolutions) {
  struct Window {
    std::int64_t height, width;
    nn::Pair kernel;
    nn::Conv2DOptions options;
  };
  const Window windows[] = {
      {11, 10, {3, 4}, {.strides = {2, 3}, .padding = Padding::kSame}},
      {11, 10, {2, 3}, {.strides = {3, 2}}},
      {13, 15, {3, 2}, {.strides = 2, .dilations = {2, 3}, .groups = 2}},
      {9, 8, {3, 3}, {.padding = Padding::kSame, .dilations = {3, 2}}},
      {9, 9, {2, 2}, {.strides = 4, .padding = Padding::kSame, .groups = 2}},  // leaves gaps
      {9, 9, {2, 2}, {.strides = {4, 5}, .groups = 4}},
      {2, 2, {5, 5}, {.padding = Padding::kSame}},  // more padding than image
      {1, 1, {3, 3}, {.strides = 2, .padding = Padding::kSame}},
      {5, 5, {5, 5}, {}},
      {7, 6, {3, 2}, {.strides = 2, .padding = {{0, 3}, {2, 1}}, .groups = 2}},
      {5, 5, {3, 3}, {.activation = nn::Activation::kElu}},
  };
  for (const DType dtype : {float32, bfloat16})
    for (const auto& [height, width, kernel, options] : windows) {
      // The gradient of ELU is y + 1, whose relative error depends on how often y was rounded:
      // twice by CPUs with instructions for bfloat16.
      if (dtype == bfloat16 && options.activation == nn::Activation::kElu) continue;
      for (const std::int64_t batch : {2, 0})
        expect_lowered(
            {{fmt::format("{} ({}, {}) of {} images", name_of(dtype), height, width, batch),
              {data({batch, height, width, 4}, dtype),
               data({kernel.height, kernel.width, 4 / options.groups, 8}, dtype), data({8}, dtype)},
              [options](const Tensors& in) { return nn::conv2d(in[0], in[1], in[2], options); }}});
    }
}

TEST_F(LoweredNetworksSlow, DepthwiseConvolutions) {
  expect_lowered(
      {{"two results per channel", {data({2, 7, 6, 3}), data({3, 3, 3, 2})}, [](const Tensors& in) {
          return nn::depthwise_conv2d(in[0], in[1], {}, {.strides = 2, .padding = Padding::kSame});
        }}});
}

// Images with equal pixels, and with some that are not finite: the gradient goes to the same pixel.
Tensors images_of(const Shape& shape) {
  const Tensor x = data(shape);
  const Tensor lowest = where(greater(x, 1.0), full({}, -kInfinity), x);
  return {x, round(x), where(less(x, -1.2), full({}, std::nan("")), lowest)};
}

TEST_F(LoweredNetworksSlow, Pools) {
  struct Window {
    std::int64_t height, width;
    nn::Pool2DOptions options;
  };
  const Window windows[] = {
      {7, 8, {.window = 3, .strides = nn::Pair(2), .padding = Padding::kSame}},
      {9, 10, {.window = 2, .strides = nn::Pair(3)}},  // leaves gaps
      {8, 9, {.window = {2, 3}, .strides = nn::Pair(3, 1), .padding = Padding::kSame}},
      {6, 7, {.window = {3, 2}, .strides = nn::Pair(1, 2)}},
      {3, 3, {.window = 5, .strides = nn::Pair(1), .padding = Padding::kSame}},
      {7, 7, {.window = 2, .strides = nn::Pair(3), .padding = Padding::kSame}},
      {7, 8, {.window = 3, .strides = nn::Pair(2), .padding = {{1, 0}, {2, 1}}}},
      {6, 8, {.window = 3, .strides = nn::Pair(2), .padding = 1, .ceil_mode = true}},
  };
  for (const auto& [height, width, options] : windows) {
    const std::string name = fmt::format("({}, {})", height, width);
    for (const Tensor& images : images_of({2, height, width, 3}))
      expect_lowered({{"maxima of " + name, {images}, [&options = options](const Tensors& in) {
                         return nn::max_pool2d(in[0], options);
                       }}});
    for (const std::int64_t batch : {2, 0})
      expect_lowered(
          {{"averages of " + name,
            {data({batch, height, width, 3}, bfloat16)},
            [&options = options](const Tensors& in) { return nn::avg_pool2d(in[0], options); }}});
  }
}

// --- attention ---

struct Masked {
  const char* name;
  std::function<Tensor()> mask;
  bool causal = false;
  double rate = 0.0;
};

// Queries [2, 5, 4, 8] and 7 keys.
const Masked kMasks[] = {
    {"all", [] { return Tensor(); }},
    {"causal", [] { return Tensor(); }, true},
    {"keys", [] { return less(range(7), 3.0); }},
    {"keys, causal", [] { return less(range(7), 3.0); }, true},
    {"no keys of some queries", [] { return expand_dims(less(range(5), 3.0), 1); }},
    {"heads",
     [] {
       return reshape(less(range(4), 2.0), {4, 1, 1});
     }},
    {"dropout", [] { return Tensor(); }, true, 0.3},
};

TEST_F(LoweredNetworksSlow, Attention) {
  for (const DType dtype : {float32, bfloat16})
    for (const Masked& masked : kMasks)
      for (const std::int64_t kv_heads : {4, 2}) {
        const auto call = [masked](const Tensors& in) {
          return nn::scaled_dot_product_attention(
              in[0], in[1], in[2],
              {.mask = masked.mask(), .causal = masked.causal, .dropout_rate = masked.rate});
        };
        expect_lowered({{fmt::format("{} {} {}", name_of(dtype), masked.name, kv_heads),
                         {data({2, 5, 4, 8}, dtype), data({2, 7, kv_heads, 8}, dtype),
                          data({2, 7, kv_heads, 6}, dtype)},
                         call}});
      }
}

TEST_F(LoweredNetworksSlow, AttentionWithAMaskThatIsAdded) {
  for (const DType dtype : {float32, bfloat16})
    expect_lowered({{std::string(name_of(dtype)),
                     {data({2, 5, 4, 8}, dtype), data({2, 7, 4, 8}, dtype),
                      data({2, 7, 4, 6}, dtype), data({4, 5, 7}, dtype)},
                     [](const Tensors& in) {
                       return nn::scaled_dot_product_attention(in[0], in[1], in[2],
                                                               {.mask = in[3], .scale = 0.3});
                     }}});
}

TEST_F(LoweredNetworksSlow, AttentionOfNothing) {
  for (const std::int64_t batch : {2, 0})
    expect_lowered({{fmt::format("{} examples without keys", batch),
                     {data({batch, 3, 2, 4}), data({batch, 0, 2, 4}), data({batch, 0, 2, 4})},
                     [](const Tensors& in) {
                       return nn::scaled_dot_product_attention(in[0], in[1], in[2]);
                     }}});
}

// --- layers and losses ---

std::vector<LoweredCase> layer_cases(DType dtype) {
  const auto named = [dtype](const char* name) {
    return fmt::format("{} {}", name_of(dtype), name);
  };
  const Tensor x = data({4, 5}, dtype), weights = data({5, 3}, dtype), bias = data({3}, dtype);
  std::vector<LoweredCase> cases;
  for (const nn::Activation each : {nn::Activation::kTanh, nn::Activation::kSigmoid,
                                    nn::Activation::kRelu6, nn::Activation::kSelu})
    cases.push_back({named("dense"), {x, weights, bias}, [each](const Tensors& in) {
                       return nn::dense(in[0], in[1], in[2], each);
                     }});
  cases.push_back({named("dense of three axes"),
                   {data({2, 4, 5}, dtype), weights},
                   [](const Tensors& in) { return nn::dense(in[0], in[1]); }});
  cases.push_back({named("product of batches"),
                   {data({2, 1, 4, 5}, dtype), data({3, 5, 2}, dtype)},
                   [](const Tensors& in) { return matmul(in[0], in[1]); }});
  cases.push_back({named("product of transposed"),
                   {data({2, 5, 4}, dtype), data({3, 5}, dtype)},
                   [](const Tensors& in) {
                     return matmul(in[0], in[1], {.transpose_a = true, .transpose_b = true});
                   }});
  cases.push_back({named("moments"), {data({4, 6, 3}, dtype)}, [](const Tensors& in) {
                     return batch_moments(in[0]).variance;
                   }});
  cases.push_back({named("moments of nothing"), {data({0, 3}, dtype)}, [](const Tensors& in) {
                     return batch_moments(in[0]).mean;
                   }});
  const Tensor numbers = cast(constant({0.5, 1.0, 1.5, 2.0, 2.5}), dtype);
  cases.push_back(
      {named("batch_norm by given moments"), {x, numbers, numbers}, [numbers](const Tensors& in) {
         return nn::batch_norm_inference(in[0], in[1], in[2], numbers, numbers);
       }});
  cases.push_back({named("layer_norm of nothing"),
                   {data({0, 3}, dtype), bias, bias},
                   [](const Tensors& in) { return nn::layer_norm(in[0], in[1], in[2]); }});
  cases.push_back({named("cross entropy of probabilities"),
                   {x, nn::softmax(data({4, 5}, dtype))},
                   [](const Tensors& in) { return nn::softmax_cross_entropy(in[1], in[0]); }});
  return cases;
}

TEST_F(LoweredNetworksSlow, LayersAndLosses) {
  for (const DType dtype : {float32, bfloat16}) expect_lowered(layer_cases(dtype));
}

// The results and gradients of a normalisation.
Tensors normalised(const Tensors& in, bool by_row) {
  GradientTape tape;
  for (const Tensor& input : in) tape.watch(input);
  Tensors results = {by_row ? nn::layer_norm(in[0], in[1], in[2])
                            : nn::batch_norm_training(in[0], in[1], in[2]).y};
  for (Tensor& gradient : testing::gradients_of(tape, results[0], in))
    results.push_back(std::move(gradient));
  return results;
}

double largest(const Tensor& x) { return reduce_max(abs(x)).item<double>(); }

// Compared with float64, because the kernels of float32 round the mean.
TEST_F(LoweredNetworksSlow, NormalisationsOfNumbersFarFromZero) {
  const Tensors inputs = {data({512, 512}) + 1000.0, data({512}), data({512})};
  Tensors wide;
  for (const Tensor& input : inputs) wide.push_back(cast(input, float64));
  for (const bool by_row : {true, false}) {
    const testing::Step step = [by_row](const Tensors& in) { return normalised(in, by_row); };
    const Tensors results = testing::run_lowered("normalised", step, inputs), expected = step(wide);
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t i = 0; i < results.size(); ++i)
      EXPECT_LE(largest(cast(results[i], float64) - expected[i]),
                16.0 * 0x1p-23 * largest(expected[i]))
          << (by_row ? "layer_norm" : "batch_norm") << ", result " << i;
  }
}

// --- optimizers ---

struct Named {
  const char* name;
  optimizers::Optimizer optimizer;
};
std::vector<Named> make_optimizers() {
  using namespace optimizers;
  return {
      {"SGD", SGD(0.1)},
      {"SGD with decay", SGD(SGDOptions{.learning_rate = 0.1, .weight_decay = 0.01})},
      {"momentum", SGD(SGDOptions{.learning_rate = 0.1, .momentum = 0.9})},
      {"Nesterov", SGD(SGDOptions{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true})},
      {"Adam", Adam(0.1)},
      {"Adam with a schedule", Adam(schedules::exponential_decay(0.1, 2, 0.5))},
      {"Adam with clipping", Adam(AdamOptions{.learning_rate = 0.1, .global_clipnorm = 0.5})},
      {"AMSGrad", Adam(AdamOptions{.learning_rate = 0.1, .amsgrad = true})},
      {"AdamW", AdamW(0.1)},
      {"RMSprop", RMSprop(0.1)},
      {"RMSprop with momentum", RMSprop(RMSpropOptions{.learning_rate = 0.1, .momentum = 0.5})},
      {"centred RMSprop", RMSprop(RMSpropOptions{.learning_rate = 0.1, .centered = true})},
      {"centred RMSprop with momentum",
       RMSprop(RMSpropOptions{.learning_rate = 0.1, .momentum = 0.5, .centered = true})},
      {"Adagrad", Adagrad(0.1)},
      {"LAMB", LAMB(LAMBOptions{.learning_rate = 0.1, .weight_decay = 0.01})},
      {"SGD with loss scaling", LossScaleOptimizer(SGD(0.1))},
      {"damped momentum",
       apex::optimizers::FusedSGD(
           {.learning_rate = 0.1, .momentum = 0.9, .dampening = 0.1, .weight_decay = 0.01})},
      {"damped Nesterov momentum", apex::optimizers::FusedSGD({.learning_rate = 0.1,
                                                               .momentum = 0.9,
                                                               .weight_decay = 0.01,
                                                               .nesterov = true,
                                                               .wd_after_momentum = true})},
  };
}

// Four runs of one trace: the learning rate and the number of the step change.
TEST_F(LoweredNetworksSlow, Optimizers) {
  for (const DType dtype : {float32, bfloat16, float64})
    for (auto& [name, optimizer] : make_optimizers()) {
      const Variable weights(data({5, 3}, dtype)), bias(zeros({3}, {.dtype = dtype}));
      const testing::Step step = [&](const Tensors& in) {
        const Tensor loss = reduce_mean(square(matmul(in[0], weights) + bias - in[1]));
        optimizer.minimize(loss, {weights, bias});
        return Tensors{loss};
      };
      expect_lowered(fmt::format("{} {}", name_of(dtype), name), step,
                     {data({4, 5}, dtype), data({4, 3}, dtype)}, {.sums = 64.0, .runs = 4});
    }
}

// --- caches ---

TEST_F(LoweredNetworksSlow, KeyValueCaches) {
  const NoGradScope no_grad;
  const Layer layer = layers::MultiHeadAttention(2, 4, {.use_causal_mask = true});
  layer(data({2, 1, 6}));
  const KeyValueCache cache(7);
  const Tensor x = data({2, 2, 6});
  cache(layer, x);  // creates its variables
  expect_lowered("two positions of seven",
                 [&](const Tensors& in) { return Tensors{cache(layer, in[0])}; }, {x}, {.runs = 2});
}

}  // namespace
}  // namespace tandem::stablehlo_nn_test
