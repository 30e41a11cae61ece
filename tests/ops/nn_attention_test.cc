#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "core/parallel.h"
#include "ops/nn_reference.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/nn.h"
#include "tandem/random.h"

namespace tandem::nn_attention_test {
namespace {

using namespace testing;

struct Sizes {
  std::int64_t batch, queries, keys, heads, kv_heads, depth, value_depth;

  Shape query() const { return {batch, queries, heads, depth}; }
  Shape key() const { return {batch, keys, kv_heads, depth}; }
  Shape value() const { return {batch, keys, kv_heads, value_depth}; }
  Shape result() const { return {batch, queries, heads, value_depth}; }
};

std::vector<Tensor> operands(const Sizes& s, DType dtype = float64) {
  return {random_tensor(s.query(), 1, -1, 1, dtype), random_tensor(s.key(), 2, -1, 1, dtype),
          random_tensor(s.value(), 3, -1, 1, dtype)};
}

Tensor attend(const std::vector<Tensor>& in, const nn::AttentionOptions& options = {}) {
  return nn::scaled_dot_product_attention(in[0], in[1], in[2], options);
}

testing::TensorFunction attending(const nn::AttentionOptions& options = {}) {
  return [options](const std::vector<Tensor>& in) { return attend(in, options); };
}

// The definition, element by element. `added(b, h, i, j)` is added to a score.
template <class Added>
std::vector<double> plain(const Sizes& s, const std::vector<Tensor>& in, double scale,
                          const Added& added) {
  const std::vector<double> q = values_of(in[0]), k = values_of(in[1]), v = values_of(in[2]);
  std::vector<double> result(static_cast<std::size_t>(s.result().num_elements()));
  const auto at = [](std::int64_t a, std::int64_t b, std::int64_t bs, std::int64_t c,
                     std::int64_t cs, std::int64_t d, std::int64_t ds) {
    return static_cast<std::size_t>(((a * bs + b) * cs + c) * ds + d);
  };
  std::vector<double> weights(static_cast<std::size_t>(s.keys));
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.queries; ++i) {
        const std::int64_t g = h / (s.heads / s.kv_heads);
        double largest = -std::numeric_limits<double>::infinity(), sum = 0.0;
        for (std::int64_t j = 0; j < s.keys; ++j) {
          double score = 0.0;
          for (std::int64_t d = 0; d < s.depth; ++d)
            score += q[at(b, i, s.queries, h, s.heads, d, s.depth)] *
                     k[at(b, j, s.keys, g, s.kv_heads, d, s.depth)];
          score = score * scale + added(b, h, i, j);
          weights[static_cast<std::size_t>(j)] = score;
          largest = std::fmax(largest, score);
        }
        if (std::isinf(largest)) continue;  // all keys are masked
        for (double& weight : weights) sum += weight = std::exp(weight - largest);
        for (std::int64_t j = 0; j < s.keys; ++j)
          for (std::int64_t d = 0; d < s.value_depth; ++d)
            result[at(b, i, s.queries, h, s.heads, d, s.value_depth)] +=
                weights[static_cast<std::size_t>(j)] / sum *
                v[at(b, j, s.keys, g, s.kv_heads, d, s.value_depth)];
      }
  return result;
}
double nothing(std::int64_t, std::int64_t, std::int64_t, std::int64_t) { return 0.0; }

constexpr double kNever = -std::numeric_limits<double>::infinity();

// Empty sizes, and sizes below and above that of a tile.
const Sizes kSizes[] = {{2, 3, 5, 2, 2, 4, 3},     {1, 1, 1, 1, 1, 1, 1},
                        {1, 37, 70, 2, 1, 9, 80},  {1, 130, 33, 1, 1, 65, 8},
                        {1, 5, 520, 2, 2, 16, 16}, {2, 20, 40, 6, 2, 8, 8}};

TEST(Attention, AgreesWithTheDefinitionInEveryDtype) {
  for (const Sizes& s : kSizes)
    for (const DType dtype : testing::kFloatingTypes) {
      SCOPED_TRACE(s.query().to_string() + s.value().to_string() + std::string(name_of(dtype)));
      const std::vector<Tensor> in = operands(s, dtype);
      const double units = dtype == float64 ? 1e3 : 8;
      expect_tensor(attend(in), dtype, s.result(),
                    plain(s, in, 1.0 / std::sqrt(static_cast<double>(s.depth)), nothing),
                    units * testing::epsilon_of(dtype));
    }
}

TEST(Attention, CausalQueriesAttendToEarlierKeys) {
  for (const Sizes& s : kSizes) {
    SCOPED_TRACE(s.query().to_string() + s.value().to_string());
    const std::vector<Tensor> in = operands(s);
    const auto added = [](std::int64_t, std::int64_t, std::int64_t i, std::int64_t j) {
      return j <= i ? 0.0 : kNever;
    };
    expect_tensor(attend(in, {.causal = true, .scale = 0.3}), float64, s.result(),
                  plain(s, in, 0.3, added), 1e-12);
  }
}

TEST(Attention, MasksOfEveryShapeAndKind) {
  const Sizes s{2, 3, 37, 4, 2, 4, 3};
  const std::vector<Tensor> in = operands(s);
  for (const Shape& shape :
       {Shape{2, 4, 3, 37}, Shape{2, 1, 1, 37}, Shape{1, 4, 3, 1}, Shape{3, 37}, Shape{37}, Shape{},
        Shape{2, 1, 3, 37}, Shape{4, 1, 37}}) {
    SCOPED_TRACE(shape.to_string());
    const Shape known = shape.known() ? shape : Shape::scalar();
    const Tensor mask = random_tensor(known, 5, -1, 1), allowed = greater(mask, -0.4);
    const std::vector<double> all = values_of(broadcast_to(mask, {2, 4, 3, 37}));
    const auto element = [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      return all[static_cast<std::size_t>(((b * 4 + h) * 3 + i) * 37 + j)];
    };
    expect_tensor(attend(in, {.mask = mask}), float64, s.result(), plain(s, in, 0.5, element),
                  1e-12);
    expect_tensor(attend(in, {.mask = allowed, .causal = true}), float64, s.result(),
                  plain(s, in, 0.5,
                        [&](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
                          return j <= i && element(b, h, i, j) > -0.4 ? 0.0 : kNever;
                        }),
                  1e-12);
  }
}

TEST(Attention, HasRightGradients) {
  const Sizes s{1, 3, 3, 2, 2, 2, 2}, grouped{2, 2, 3, 2, 1, 2, 1};
  const Tensor allowed = greater(random_tensor({1, 3, 3}, 7), -1.0);
  expect_gradients(attending(), operands(s));
  expect_gradients(attending({.mask = allowed, .scale = 0.7}), operands(s));
  expect_gradients(attending({.causal = true}), operands(grouped));
}

TEST(Attention, HasRightSecondDerivatives) {
  const Sizes s{1, 2, 3, 2, 1, 2, 2};
  expect_second_order(attending({.scale = 0.7}), operands(s));
  const Tensor allowed = greater(random_tensor({2, 3}, 7), -1.0);
  expect_second_order(attending({.mask = allowed, .causal = true}), operands(s));
}

TEST(Attention, AnAdditiveMaskHasAGradient) {
  const Sizes s{1, 2, 3, 2, 1, 2, 2};
  for (const Shape& shape : {Shape{1, 2, 2, 3}, Shape{2, 1, 3}}) {
    std::vector<Tensor> in = operands(s);
    in.push_back(random_tensor(shape, 9));
    expect_gradients(
        [](const std::vector<Tensor>& all) {
          return attend(all, {.mask = all[3], .causal = true});
        },
        in);
  }
}

// Several tiles of queries and keys. Central differences would take too long, so this compares with
// composed operations, whose gradients are checked above.
TEST(Attention, LargeGradientsAgreeWithComposedOperations) {
  for (const Sizes& s : {Sizes{1, 150, 70, 2, 1, 5, 36}, Sizes{1, 40, 300, 1, 1, 40, 3},
                         Sizes{2, 33, 65, 4, 2, 8, 8}})
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(s.query().to_string() + s.value().to_string());
      const std::vector<Tensor> in = operands(s);
      const Tensor mask = greater(random_tensor({s.batch, 1, 1, s.keys}, 8), -1.5);
      const nn::AttentionOptions options{.mask = mask, .causal = causal};
      const Tensor slope = random_tensor(s.result(), 11);
      GradientTape tape({.persistent = true});
      for (const Tensor& each : in) tape.watch(each);
      const Tensor y = attend(in, options);
      const std::vector<Tensor> recorded = tape.gradient(y, in, {.output_gradient = slope});
      GradientTape once;
      for (const Tensor& each : in) once.watch(each);
      const Tensor again = attend(in, options);
      const std::vector<Tensor> fused = once.gradient(again, in, {.output_gradient = slope});
      for (std::size_t i = 0; i < 3; ++i)
        expect_tensor(fused[i], float64, in[i].shape(), values_of(recorded[i]), 1e-11);
    }
}

TEST(Attention, OtherDtypesAreLikeFloat64) {
  const Sizes s{2, 20, 45, 4, 2, 16, 16};
  testing::expect_other_dtypes_like_float64(attending(), operands(s));
  testing::expect_other_dtypes_like_float64(attending({.causal = true}), operands(s));
}

TEST(Attention, DropsTheSameWeightsAsDropout) {
  const Sizes s{2, 7, 45, 2, 2, 4, 3};
  const auto with_seed = [](auto f) {
    return [f](const std::vector<Tensor>& in) {
      random::set_seed(31);
      return f(in);
    };
  };
  const auto composed = with_seed([](const std::vector<Tensor>& in) {
    const auto heads = [](const Tensor& x) { return transpose(x, {0, 2, 1, 3}); };
    const Tensor scores = matmul(heads(in[0]), heads(in[1]), {.transpose_b = true}) * 0.5;
    return transpose(matmul(nn::dropout(nn::softmax(scores), 0.3), heads(in[2])), {0, 2, 1, 3});
  });
  const auto fused = with_seed(attending({.dropout_rate = 0.3}));
  const std::vector<Tensor> in = operands(s);
  expect_tensor(fused(in), float64, s.result(), values_of(composed(in)), 1e-12);
  const Tensor slope = random_tensor(s.result(), 12);
  const auto gradients = [&](const testing::TensorFunction& f) {
    GradientTape tape;
    for (const Tensor& each : in) tape.watch(each);
    const Tensor y = f(in);
    return tape.gradient(y, in, {.output_gradient = slope});
  };
  const std::vector<Tensor> expected = gradients(composed), actual = gradients(fused);
  for (std::size_t i = 0; i < 3; ++i)
    expect_tensor(actual[i], float64, in[i].shape(), values_of(expected[i]), 1e-12);
  const Sizes small{1, 2, 3, 2, 2, 2, 2};
  expect_gradients(with_seed(attending({.causal = true, .dropout_rate = 0.4})), operands(small));
  expect_second_order(with_seed(attending({.dropout_rate = 0.4})), operands(small));
}

TEST(Attention, EachCallDropsOtherWeights) {
  const std::vector<Tensor> in = operands({1, 20, 20, 1, 1, 4, 4});
  random::set_seed(1);
  const std::vector<double> first = values_of(attend(in, {.dropout_rate = 0.5}));
  EXPECT_NE(values_of(attend(in, {.dropout_rate = 0.5})), first);
  random::set_seed(1);
  EXPECT_EQ(values_of(attend(in, {.dropout_rate = 0.5})), first);
}

// If there are fewer heads than threads, queries and keys are distributed instead.
TEST(Attention, TheSameBitsOnAnyNumberOfThreads) {
  for (const DType dtype : {float32, bfloat16}) {
    const std::vector<Tensor> in = operands({1, 300, 280, 4, 2, 24, 8}, dtype);
    std::vector<std::vector<double>> expected;
    for (const int threads : {1, 2, 5}) {
      ThreadBudget budget(threads);
      random::set_seed(3);
      GradientTape tape;
      for (const Tensor& each : in) tape.watch(each);
      const Tensor y = attend(in, {.causal = true, .dropout_rate = 0.1});
      std::vector<Tensor> results = tape.gradient(y, in);
      results.push_back(y);
      std::vector<std::vector<double>> values;
      for (const Tensor& each : results) values.push_back(values_of(each));
      if (expected.empty()) expected = values;
      EXPECT_TRUE(values == expected) << threads << " threads, " << name_of(dtype);
    }
  }
}

TEST(Attention, AFullyMaskedQueryGivesZeros) {
  const Sizes s{1, 2, 3, 1, 1, 2, 2};
  const std::vector<Tensor> in = operands(s);
  const Tensor allowed = constant({{true, true, false}, {false, false, false}});
  const Tensor added =
      where(allowed, zeros({}, {.dtype = float64}), full({}, kNever, {.dtype = float64}));
  for (const Tensor& mask : {allowed, added}) {
    const std::vector<double> y = values_of(attend(in, {.mask = mask}));
    EXPECT_NE(y[0], 0.0);
    EXPECT_EQ(y[2], 0.0);
    EXPECT_EQ(y[3], 0.0);
    expect_gradients(attending({.mask = mask}), in);
    expect_second_order(attending({.mask = mask}), in);
  }
}

TEST(Attention, KeepsNaN) {
  const double nan = std::nan("");
  std::vector<Tensor> in = operands({1, 2, 3, 1, 1, 2, 2});
  in[0] = constant({nan, 0.0, 1.0, 1.0}, {.dtype = float64, .shape = {1, 2, 1, 2}});
  const std::vector<double> y = values_of(attend(in));
  EXPECT_TRUE(std::isnan(y[0]) && std::isnan(y[1]));
  EXPECT_FALSE(std::isnan(y[2]) || std::isnan(y[3]));
}

TEST(Attention, HandlesEmptyTensors) {
  for (const Sizes& s :
       {Sizes{0, 2, 3, 1, 1, 2, 2}, Sizes{1, 0, 3, 1, 1, 2, 2}, Sizes{1, 2, 0, 1, 1, 2, 2}}) {
    const std::vector<Tensor> in = operands(s, float32);
    GradientTape tape;
    for (const Tensor& each : in) tape.watch(each);
    const Tensor y = attend(in, {.causal = true});
    const auto zeros_of = [](const Shape& shape) {
      return std::vector<double>(static_cast<std::size_t>(shape.num_elements()));
    };
    expect_tensor(y, float32, s.result(), zeros_of(s.result()));
    const std::vector<Tensor> gradients = tape.gradient(y, in);
    for (std::size_t i = 0; i < 3; ++i)
      expect_tensor(gradients[i], float32, in[i].shape(), zeros_of(in[i].shape()));
  }
}

TEST(Attention, ExplainsBadInput) {
  const auto refused = [](const Shape& query, const Shape& key, const Shape& value,
                          const std::string& text, const nn::AttentionOptions& options = {}) {
    expect_error<InvalidArgumentError>(
        [&] { nn::scaled_dot_product_attention(ones(query), ones(key), ones(value), options); },
        text);
  };
  refused({2, 3, 4}, {2, 3, 1, 4}, {2, 3, 1, 4},
          "[ScaledDotProductAttention] expected query, key and value of shape (batch, positions, "
          "heads, depth), got (2, 3, 4), (2, 3, 1, 4) and (2, 3, 1, 4)");
  refused({2, 3, 1, 4}, {1, 3, 1, 4}, {2, 3, 1, 4}, "expected one batch size");
  refused({2, 3, 1, 4}, {2, 3, 1, 4}, {2, 5, 1, 4},
          "expected key and value with the same positions and heads");
  refused({2, 3, 1, 4}, {2, 3, 1, 5}, {2, 3, 1, 4},
          "expected query and key of the same nonzero depth");
  refused({2, 3, 3, 4}, {2, 3, 2, 4}, {2, 3, 2, 4},
          "expected a number of query heads that the key heads divide, got 3 and 2");
  const Shape fine{2, 3, 1, 4};
  refused(fine, fine, fine, "expected a mask that broadcasts to (2, 1, 3, 3), got shape (2, 3)",
          {.mask = ones({2, 3})});
  refused(fine, fine, fine, "expected a mask of dtype bool or float32, got int32",
          {.mask = ones({3, 3}, {.dtype = int32})});
  refused(fine, fine, fine, "expected a dropout rate in [0, 1), got 1", {.dropout_rate = 1.0});
  refused(fine, fine, fine, "expected a finite scale, got inf",
          {.scale = std::numeric_limits<double>::infinity()});
  expect_error<InvalidArgumentError>(
      [&] {
        nn::scaled_dot_product_attention(ones(fine), ones(fine), ones(fine, {.dtype = float64}));
      },
      "expected query, key and value of one dtype, got float32, float32 and float64");
}

}  // namespace
}  // namespace tandem::nn_attention_test
