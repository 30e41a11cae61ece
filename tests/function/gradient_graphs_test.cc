// Gradient operations in deserialised graphs.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "function/serialize.h"
#include "graph/graph.h"
#include "graph/structural_ops.h"
#include "op/op.h"
#include "ops/array/index.h"
#include "ops/nn/norm_attrs.h"
#include "ops/nn/update.h"
#include "support/errors.h"
#include "support/run_graph.h"
#include "tandem/tandem.h"

namespace tandem::gradient_graphs_test {
namespace {

using testing::error_of;

// A graph with the operation on placeholders of these specs.
void add_node(std::string_view op, AttrsRef attrs, const std::vector<TensorType>& inputs) {
  const RefPtr<GraphImpl> graph = make_ref<GraphImpl>();
  std::vector<Node::Input> from;
  for (const TensorType& spec : inputs)
    from.push_back({&graph->add(kPlaceholder, SpecAttrs{spec.dtype, spec.shape}, {}), 0});
  graph->add(*find_op(op), attrs, from);
}

TEST(GradientGraphs, GradientsOfGatherHaveTheShapeOfItsInput) {
  const auto add = [](const Shape& gradient, const Shape& params) {
    add_node("GatherGrad", GatherGradAttrs{0, params}, {{float32, gradient}, {int32, Shape{1000}}});
  };
  add({1000, 2}, {5, 2});
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              add({1}, {5, 2});
            }),
            "[GatherGrad] expected a gradient of shape (1000, 2), as indices of shape (1000,) take "
            "from shape (5, 2), got (1,)");
  EXPECT_THROW(add({1000, 3}, {5, 2}), InvalidArgumentError);
  EXPECT_THROW(add({}, {}), InvalidArgumentError);
  EXPECT_THROW(add({1000, 2}, {-5, 2}), InvalidArgumentError);
}

TEST(GradientGraphs, GradientsOfBatchNormalisationRequireChannels) {
  const auto add = [](const Shape& x) {
    const Shape channels{x.dim(-1)};
    add_node("FusedBatchNormGradV3", NormAttrs{1e-3},
             {{float32, x},
              {float32, x},
              {float32, channels},
              {float32, channels},
              {float32, channels}});
  };
  add({4, 2});
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              add({4, 0});
            }),
            "[FusedBatchNormGradV3] expected data to take moments of, got shape (4, 0)");
  add({0, 2});
}

TEST(GradientGraphs, UpdatesHaveTheirSlots) {
  const TensorType spec{float32, Shape{4}};
  add_node("ApplyAdam", update::Adam(), {spec, spec, spec, spec});
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              add_node("ApplyAdam", update::Adam(), {spec, spec});
            }),
            "[ApplyAdam] expected 4 inputs, got 2");
}

// All operations with a gradient operation, and their gradients.
std::string graph_with_gradients() {
  Graph graph;
  const GraphScope building(graph);
  const Tensor x = placeholder(float32, {-1, 6, 6, 2}, "x"),
               rows = placeholder(float32, {-1, 4}, "rows"),
               other = placeholder(float32, {-1, 4}, "other");
  const Tensor ids = placeholder(int32, {3}, "ids"), labels = placeholder(int32, {-1}, "labels");
  const Tensor kernel = placeholder(float32, {3, 3, 2, 4}, "kernel"),
               weights = placeholder(float32, {4, 4}, "weights"),
               bias = placeholder(float32, {4}, "bias");
  const Tensor h = nn::conv2d(x, kernel, bias,
                              {.padding = nn::Padding::kSame, .activation = nn::Activation::kRelu});
  const Tensor normal = nn::batch_norm_training(h, bias, bias).y;
  const Tensor pooled = nn::max_pool2d(normal) + nn::avg_pool2d(h);
  const Tensor flat = reshape(pooled, {-1, 36});
  const Tensor logits = nn::dense(rows, weights, bias);
  const Tensor taken = gather(weights, ids);
  const Tensor heads = reshape(nn::layer_norm(logits, bias, bias), {-1, 1, 2, 2});
  const Tensor attended = nn::scaled_dot_product_attention(heads, heads, heads);
  const Tensor loss =
      reduce_sum(nn::sparse_softmax_cross_entropy(labels, logits)) +
      reduce_mean(nn::softmax_cross_entropy(nn::softmax(other), logits)) + reduce_sum(taken) +
      reduce_sum(sigmoid(flat)) + reduce_sum(nn::log_softmax(rows * bias)) +
      reduce_max(tile(pad(nn::gelu(logits), {{1, 0}, {0, 1}}), {2, 1})) +
      reduce_sum(square(attended)) + reduce_sum(nn::elu(rows - other) * cumsum(logits, 1)) +
      reduce_sum(concat({rows, other}, 0));
  gradients(loss, std::vector<Tensor>{x, rows, other, kernel, weights, bias});
  return serialize_nodes(graph.impl());
}

TEST(GradientGraphs, AreReadAndRun) {
  const auto graph = deserialize_nodes(graph_with_gradients());
  EXPECT_GT(testing::run_all(*graph), 150);
}

// With up to two changed bytes, graphs run or are rejected.
TEST(GradientGraphs, ThatWereTamperedWithRunOrAreRejected) {
  const std::string bytes = graph_with_gradients();
  std::mt19937 random(7);
  int ran = 0;
  for (int i = 0; i < 300; ++i) {
    std::string changed = bytes;
    for (int k = 0; k < 2; ++k)
      changed[random() % changed.size()] = static_cast<char>(random() % 256);
    try {
      ran += testing::run_all(*deserialize_nodes(changed)) > 0 ? 1 : 0;
    } catch (const InvalidArgumentError&) {
    } catch (const DataLossError&) {
    }
  }
  EXPECT_GT(ran, 0);
}

}  // namespace
}  // namespace tandem::gradient_graphs_test
