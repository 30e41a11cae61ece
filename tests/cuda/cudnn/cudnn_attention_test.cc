// cuDNN descriptions of attention, and their execution on a fake of cuDNN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "cuda/cudnn/fake_cudnn.h"
#include "cuda/fake_cuda.h"
#include "device/cuda/module/cuda_device.h"
#include "device/cuda/module/cuda_gpus.h"
#include "device/discovery.h"
#include "ops/cuda/module/cudnn_attention_graph.h"
#include "tandem/errors.h"

namespace tandem::cuda {
namespace {

AttentionSizes sizes_of(std::int64_t batch, std::int64_t queries, std::int64_t keys,
                        std::int64_t heads, std::int64_t kv_heads, std::int64_t depth,
                        std::int64_t value_depth) {
  return {Shape{batch, queries, heads, depth}, Shape{batch, keys, kv_heads, depth},
          Shape{batch, keys, kv_heads, value_depth}};
}
const AttentionSizes kSizes = sizes_of(2, 5, 7, 4, 2, 16, 8);

TEST(CudnnAttentionDescription, HasHeadsBeforePositions) {
  const AttentionDescription description =
      describe({AttentionPass::kForward, bfloat16, kSizes, false});
  EXPECT_EQ(description.query.sizes, (CudnnSizes{2, 4, 5, 16}));
  EXPECT_EQ(description.query.strides, (CudnnSizes{5 * 4 * 16, 16, 4 * 16, 1}));
  EXPECT_EQ(description.key.sizes, (CudnnSizes{2, 2, 16, 7})) << "transposed";
  EXPECT_EQ(description.key.strides, (CudnnSizes{7 * 2 * 16, 16, 1, 2 * 16}));
  EXPECT_EQ(description.value.sizes, (CudnnSizes{2, 2, 7, 8}));
  EXPECT_EQ(description.value.strides, (CudnnSizes{7 * 2 * 8, 8, 2 * 8, 1}));
  EXPECT_EQ(description.result.sizes, (CudnnSizes{2, 4, 5, 8}));
  EXPECT_EQ(description.log_sums.sizes, (CudnnSizes{2, 4, 5, 1}));
  EXPECT_EQ(description.log_sums.strides, (CudnnSizes{4 * 5, 5, 1, 1}));
  EXPECT_EQ(description.query.type, CUDNN_DATA_BFLOAT16);
  EXPECT_EQ(description.log_sums.type, CUDNN_DATA_FLOAT);
}

TEST(CudnnAttentionDescription, OfGradientsHasValuesTransposed) {
  const AttentionDescription description =
      describe({AttentionPass::kBackward, float16, kSizes, false});
  EXPECT_EQ(description.value.sizes, (CudnnSizes{2, 2, 8, 7}));
  EXPECT_EQ(description.value.strides, (CudnnSizes{7 * 2 * 8, 8, 1, 2 * 8}));
  EXPECT_EQ(description.dvalue.sizes, (CudnnSizes{2, 2, 7, 8}));
  EXPECT_EQ(description.dkey.sizes, (CudnnSizes{2, 2, 7, 16}));
  EXPECT_EQ(description.dquery.strides, description.query.strides);
  EXPECT_EQ(description.dquery_sums.sizes, (CudnnSizes{2, 4, 5, 16}));
  EXPECT_EQ(description.dquery_sums.type, CUDNN_DATA_FLOAT);
}

// The definition, in float64.
struct Attended {
  std::vector<double> result, log_sums, dquery, dkey, dvalue;
};
Attended plain(const AttentionSizes& s, bool causal, double scale, const std::vector<Half>& query,
               const std::vector<Half>& key, const std::vector<Half>& value,
               const std::vector<Half>& dresult) {
  const auto at = [](std::int64_t b, std::int64_t i, std::int64_t is, std::int64_t h,
                     std::int64_t hs, std::int64_t d, std::int64_t ds) {
    return static_cast<std::size_t>(((b * is + i) * hs + h) * ds + d);
  };
  Attended made{std::vector<double>(dresult.size()),
                std::vector<double>(static_cast<std::size_t>(s.batch * s.heads * s.queries)),
                std::vector<double>(query.size()), std::vector<double>(key.size()),
                std::vector<double>(value.size())};
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h)
      for (std::int64_t i = 0; i < s.queries; ++i) {
        const std::int64_t g = h / s.group(), seen = causal ? std::min(i + 1, s.keys) : s.keys;
        std::vector<double> weights(static_cast<std::size_t>(seen)), slopes = weights;
        double sum = 0.0, product = 0.0;
        for (std::int64_t j = 0; j < seen; ++j) {
          double score = 0.0;
          for (std::int64_t d = 0; d < s.depth; ++d)
            score += static_cast<double>(query[at(b, i, s.queries, h, s.heads, d, s.depth)]) *
                     key[at(b, j, s.keys, g, s.kv_heads, d, s.depth)];
          sum += weights[static_cast<std::size_t>(j)] = std::exp(score * scale);
        }
        made.log_sums[static_cast<std::size_t>((b * s.heads + h) * s.queries + i)] = std::log(sum);
        for (std::int64_t j = 0; j < seen; ++j) {
          const auto n = static_cast<std::size_t>(j);
          weights[n] /= sum;
          for (std::int64_t d = 0; d < s.value_depth; ++d) {
            const std::size_t y = at(b, i, s.queries, h, s.heads, d, s.value_depth),
                              v = at(b, j, s.keys, g, s.kv_heads, d, s.value_depth);
            made.result[y] += weights[n] * value[v];
            made.dvalue[v] += weights[n] * dresult[y];
            slopes[n] += static_cast<double>(dresult[y]) * value[v];
          }
          product += weights[n] * slopes[n];
        }
        for (std::int64_t j = 0; j < seen; ++j) {
          const auto n = static_cast<std::size_t>(j);
          const double slope = weights[n] * (slopes[n] - product) * scale;
          for (std::int64_t d = 0; d < s.depth; ++d) {
            const std::size_t q = at(b, i, s.queries, h, s.heads, d, s.depth),
                              k = at(b, j, s.keys, g, s.kv_heads, d, s.depth);
            made.dquery[q] += slope * key[k];
            made.dkey[k] += slope * query[q];
          }
        }
      }
  return made;
}

std::vector<Half> numbers(std::int64_t count, int period) {
  std::vector<Half> made(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i] = Half(static_cast<float>(static_cast<int>(i * 7 % static_cast<std::size_t>(period)) -
                                      period / 2) /
                   static_cast<float>(period));
  return made;
}

template <class T>
void expect_near(const std::vector<T>& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 3e-3 * std::max(1.0, std::abs(expected[i]))) << i;
}

// A device on a fake GPU, and a kernel's context on it, with the tensors of an attention.
class CudnnAttentions : public ::testing::Test {
 protected:
  CudnnAttentions() {
    fake_cuda::set_gpus({{}});
    device_ = find_gpus()[0]->make_device(
        {.name = local_device_name("GPU", 0), .memory_limit = std::int64_t{64} << 20});
    context_.workspace = device_.get();
    context_.native_stream = device_->stream().native_handle();
  }

  bool run(const CudnnAttention& attention, const AttentionMemory& memory, double scale = 0.4) {
    const bool done = cudnn_attention(context_, attention, scale, memory);
    device_->stream().synchronize();
    context_.end_call();
    return done;
  }
  // Computes into memory that is large enough for `sizes`.
  bool forward(const AttentionSizes& sizes, DType dtype = float16, std::size_t shift = 0) {
    return run({AttentionPass::kForward, dtype, sizes, true}, memory_of(shift));
  }
  AttentionMemory memory_of(std::size_t shift = 0) {
    return {.query = some_.data() + shift,
            .key = some_.data(),
            .value = some_.data(),
            .result = other_.data(),
            .log_sums = sums_.data(),
            .dresult = some_.data(),
            .dquery = other_.data(),
            .dkey = other_.data() + 4096,
            .dvalue = other_.data() + 8192};
  }
  void expect_definition(const AttentionSizes& s, bool causal);

  std::unique_ptr<DeviceImpl> device_;
  KernelContext context_;
  std::vector<Half> some_ = numbers(4096, 13), other_ = std::vector<Half>(12288);
  std::vector<float> sums_ = std::vector<float>(4096);
};

void CudnnAttentions::expect_definition(const AttentionSizes& s, bool causal) {
  const std::int64_t queries = s.batch * s.queries * s.heads, keys = s.batch * s.keys * s.kv_heads;
  std::vector<Half> query = numbers(queries * s.depth, 17), key = numbers(keys * s.depth, 13),
                    value = numbers(keys * s.value_depth, 11),
                    dresult = numbers(queries * s.value_depth, 19), result(dresult.size()),
                    dquery(query.size()), dkey(key.size()), dvalue(value.size());
  std::vector<float> log_sums(static_cast<std::size_t>(queries));
  const AttentionMemory memory = {.query = query.data(),
                                  .key = key.data(),
                                  .value = value.data(),
                                  .result = result.data(),
                                  .log_sums = log_sums.data(),
                                  .dresult = dresult.data(),
                                  .dquery = dquery.data(),
                                  .dkey = dkey.data(),
                                  .dvalue = dvalue.data()};
  const Attended expected = plain(s, causal, 0.4, query, key, value, dresult);
  ASSERT_TRUE(run({AttentionPass::kForward, float16, s, causal}, memory));
  expect_near(result, expected.result);
  expect_near(log_sums, expected.log_sums);
  ASSERT_TRUE(run({AttentionPass::kBackward, float16, s, causal}, memory));
  expect_near(dquery, expected.dquery);
  expect_near(dkey, expected.dkey);
  expect_near(dvalue, expected.dvalue);
}

TEST_F(CudnnAttentions, AreTheDefinition) {
  for (const bool causal : {false, true}) {
    expect_definition(kSizes, causal);
    expect_definition(sizes_of(1, 9, 4, 3, 3, 8, 24), causal);
  }
}

TEST_F(CudnnAttentions, AreTheDefinitionWhereRunsMayDiffer) {
  ::setenv("TANDEM_DETERMINISTIC_OPS", "0", 1);
  for (const bool causal : {false, true}) expect_definition(kSizes, causal);
}

TEST_F(CudnnAttentions, ArePlannedOnce) {
  EXPECT_TRUE(forward(kSizes));
  EXPECT_TRUE(forward(kSizes));
  EXPECT_EQ(fake_cudnn::calls().heuristics.size(), 1u);
  EXPECT_TRUE(forward(sizes_of(2, 5, 8, 4, 2, 16, 8)));
  EXPECT_TRUE(forward(kSizes, bfloat16));
  EXPECT_TRUE(run({AttentionPass::kForward, float16, kSizes, false}, memory_of()));
  EXPECT_TRUE(run({AttentionPass::kBackward, float16, kSizes, true}, memory_of()));
  EXPECT_EQ(fake_cudnn::calls().heuristics.size(), 5u);
  EXPECT_EQ(fake_cudnn::calls().runs.size(), 6u);
}

TEST_F(CudnnAttentions, AreLeftToOthersWhereNoEngineTakesThem) {
  EXPECT_FALSE(forward(kSizes, float32));
  EXPECT_FALSE(forward(kSizes, float64));
  EXPECT_FALSE(forward(sizes_of(2, 5, 7, 4, 2, 12, 8))) << "a depth";
  EXPECT_FALSE(forward(sizes_of(2, 5, 7, 4, 2, 16, 4))) << "a depth of values";
  EXPECT_FALSE(forward(sizes_of(1, 2, 2, 1, 1, 136, 8)));
  EXPECT_FALSE(forward(sizes_of(2, 5, 0, 4, 2, 16, 8)));
  EXPECT_FALSE(forward(kSizes, float16, 1)) << "where memory begins";
  const AttentionSizes one = sizes_of(1, 1, 1, 2, 2, 8, 8);
  EXPECT_FALSE(run({AttentionPass::kBackward, float16, one, false}, memory_of()));
  EXPECT_TRUE(forward(one));
  EXPECT_EQ(fake_cudnn::calls().heuristics.size(), 1u) << "and cuDNN was not asked";
}

TEST_F(CudnnAttentions, AreLeftToOthersByAnOldLibrary) {
  fake_cudnn::set_version(91599);
  EXPECT_FALSE(forward(kSizes));
  EXPECT_EQ(fake_cudnn::calls().handles, 0);
}

TEST_F(CudnnAttentions, AreLeftToOthersWhereTheGraphIsRefused) {
  fake_cudnn::set_fusion(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
  EXPECT_FALSE(forward(kSizes));
  fake_cudnn::set_fusion(CUDNN_STATUS_SUCCESS);
  EXPECT_FALSE(forward(kSizes)) << "that is remembered";
  EXPECT_TRUE(run({AttentionPass::kBackward, float16, kSizes, true}, memory_of()));
}

TEST_F(CudnnAttentions, AreLeftToOthersWhereWorkspaceIsShort) {
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK})
    fake_cudnn::set_engines(mode, {{.workspace = std::int64_t{2} << 30}});
  EXPECT_FALSE(forward(kSizes));
  fake_cudnn::set_engines(CUDNN_HEUR_MODE_A, {{.workspace = 512}});
  EXPECT_TRUE(run({AttentionPass::kForward, float16, kSizes, false}, memory_of()));
  EXPECT_EQ(fake_cudnn::calls().runs, (std::vector<std::int64_t>{512}));
}

TEST_F(CudnnAttentions, ThatFailAreErrors) {
  fake_cudnn::set_engines(CUDNN_HEUR_MODE_A, {{.run = CUDNN_STATUS_EXECUTION_FAILED}});
  EXPECT_THROW(forward(kSizes), UnavailableError);
}

// The fake refuses invalid graphs, so the tests above are meaningful.
TEST(FakeCudnn, RefusesWhatDoesNotFit) {
  const auto finish = [](const auto& build) {
    GraphMaker graph(*cudnn(), 16, CUDNN_DATA_FLOAT);
    build(graph);
    graph.finish({});
  };
  const CudnnSizes sizes = {1, 2, 3, 4}, longer = {1, 2, 3, 5}, wide = {1, 2, 4, 4};
  const auto in_memory = [](std::int64_t id, const CudnnSizes& of) -> TensorDescription {
    return {.id = id, .type = CUDNN_DATA_FLOAT, .sizes = of, .strides = packed_strides(of)};
  };
  constexpr auto kFloat = CUDNN_DATA_FLOAT;
  EXPECT_NO_THROW(finish([&](GraphMaker& graph) {
    graph.matmul(graph.tensor(in_memory(1, sizes)), graph.tensor(in_memory(2, wide)),
                 graph.tensor(in_memory(3, sizes)));
  }));
  EXPECT_THROW(finish([&](GraphMaker& graph) {
                 graph.matmul(graph.tensor(in_memory(1, longer)), graph.tensor(in_memory(2, wide)),
                              graph.tensor(in_memory(3, sizes)));
               }),
               InternalError)
      << "other sizes";
  EXPECT_THROW(finish([&](GraphMaker& graph) {
                 graph.pointwise({CUDNN_POINTWISE_EXP}, {graph.between(kFloat, sizes)},
                                 graph.tensor(in_memory(1, sizes)));
               }),
               InternalError)
      << "nothing makes the operand";
  EXPECT_THROW(finish([&](GraphMaker& graph) {
                 const auto x = graph.tensor(in_memory(1, sizes));
                 graph.pointwise({CUDNN_POINTWISE_EXP}, {x}, graph.tensor(in_memory(1, longer)));
               }),
               InternalError)
      << "two of one name";
  EXPECT_THROW(finish([&](GraphMaker& graph) {
                 const auto x = graph.tensor(in_memory(1, sizes));
                 graph.pointwise({CUDNN_POINTWISE_ADD}, {x}, graph.tensor(in_memory(2, sizes)));
               }),
               InternalError)
      << "one operand too few";
  EXPECT_THROW(finish([&](GraphMaker& graph) {
                 const auto x = graph.tensor(in_memory(1, sizes));
                 graph.pointwise({.mode = CUDNN_POINTWISE_CMP_GE}, {x, x},
                                 graph.tensor(in_memory(2, sizes)));
               }),
               InternalError)
      << "a comparison that gives no booleans";
}

}  // namespace
}  // namespace tandem::cuda
