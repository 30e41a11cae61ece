// Neural-network operations. Pictures are [batch, height, width, channels].
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tandem/tensor.h"

namespace tandem::nn {

// --- activations ---
enum class Activation {
  kLinear,
  kRelu,
  kRelu6,
  kLeakyRelu,
  kElu,
  kSelu,
  kGelu,
  kSwish,
  kSoftplus,
  kSigmoid,
  kTanh,
  kSoftmax
};
constexpr Activation last_value(Activation) { return Activation::kSoftmax; }
// "relu", "linear" (or ""), "swish" (or "silu"), ... Throws InvalidArgumentError naming them all.
Activation activation_from_name(std::string_view name);
Tensor activate(const Tensor& x, Activation activation);

Tensor relu(const Tensor& x);
Tensor relu6(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double alpha = 0.2);
Tensor elu(const Tensor& x, double alpha = 1.0);
Tensor selu(const Tensor& x);
Tensor gelu(const Tensor& x, bool approximate = false);
Tensor swish(const Tensor& x);
Tensor softplus(const Tensor& x);
Tensor softmax(const Tensor& logits, std::int64_t axis = -1);
Tensor log_softmax(const Tensor& logits, std::int64_t axis = -1);

// --- layers' arithmetic ---
// activation(x . weights + bias) over the last axis of x: [..., in] x [in, out] + [out]; bias may
// be undefined. kSoftmax and others that cannot be fused run behind.
Tensor dense(const Tensor& x, const Tensor& weights, const Tensor& bias = {},
             Activation activation = Activation::kLinear);
// x + bias over the last axis.
Tensor bias_add(const Tensor& x, const Tensor& bias);

enum class Padding { kValid, kSame };
constexpr Padding last_value(Padding) { return Padding::kSame; }
// "valid", "same" (any case). Throws InvalidArgumentError.
Padding padding_from_name(std::string_view name);

struct Pair {  // of height and width
  std::int64_t height = 1;
  std::int64_t width = 1;
  Pair() = default;
  Pair(std::int64_t both) : height(both), width(both) {}  // NOLINT: one number stands for both
  Pair(std::int64_t h, std::int64_t w) : height(h), width(w) {}
  friend bool operator==(const Pair&, const Pair&) = default;
};

struct Conv2DOptions {
  Pair strides = 1;
  Padding padding = Padding::kValid;  // as TensorFlow pads: kSame puts the odd pixel at the end
  Pair dilations = 1;
  std::int64_t groups = 1;
  Activation activation = Activation::kLinear;
};
// x [n, h, w, in], kernel [kh, kw, in / groups, out], bias [out] or undefined.
Tensor conv2d(const Tensor& x, const Tensor& kernel, const Tensor& bias = {},
              const Conv2DOptions& options = {});
// kernel [kh, kw, in, multiplier]; the result has in * multiplier channels.
Tensor depthwise_conv2d(const Tensor& x, const Tensor& kernel, const Tensor& bias = {},
                        const Conv2DOptions& options = {});

struct Pool2DOptions {
  Pair window = 2;
  std::optional<Pair> strides{};  // not given: the window
  Padding padding = Padding::kValid;
};
Tensor max_pool2d(const Tensor& x, const Pool2DOptions& options = {});
Tensor avg_pool2d(const Tensor& x, const Pool2DOptions& options = {});  // padding does not count
// The mean / maximum over height and width: [n, c], or [n, 1, 1, c] with keepdims.
Tensor global_avg_pool2d(const Tensor& x, bool keepdims = false);
Tensor global_max_pool2d(const Tensor& x, bool keepdims = false);

struct BatchNormResult {
  Tensor y{};
  Tensor mean{};      // of the batch, over all axes but the last
  Tensor variance{};  // population
};
// Normalises over all axes but the last by the batch's own moments. gamma, beta, mean, variance:
// [c].
BatchNormResult batch_norm_training(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                                    double epsilon = 1e-3);
// ... by moments given.
Tensor batch_norm_inference(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                            const Tensor& mean, const Tensor& variance, double epsilon = 1e-3);
// Normalises over the last axis; gamma, beta: [last].
Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon = 1e-3);

// Zeroes elements with probability `rate` and scales the others by 1 / (1 - rate). Elements are
// keyed by the seed, the draw, and their position in the GLOBAL batch: replicas drop what one
// device would.
Tensor dropout(const Tensor& x, double rate);

struct AttentionOptions {
  // Of a shape that broadcasts to [batch, heads, queries, keys]: bool, true where a query may see a
  // key, or of the query's dtype, added to the scores (its gradient, and second derivatives, are
  // computed with the whole matrix of scores). Undefined: none.
  Tensor mask{};
  // Query i sees keys 0 to i alone, besides what the mask says.
  bool causal = false;
  std::optional<double> scale{};  // of the scores; not given: 1 / sqrt(depth)
  // Weights are zeroed with this probability, the others scaled by 1 / (1 - rate): those that
  // nn::dropout would drop of a tensor [batch, heads, queries, keys].
  double dropout_rate = 0.0;
};
// softmax(scale * query . key^T + mask) . value for each head: query [batch, queries, heads,
// depth], key [batch, keys, kv_heads, depth], value [batch, keys, kv_heads, value_depth] give
// [batch, queries, heads, value_depth], of one floating dtype. Heads come behind positions, as in
// jax.nn.dot_product_attention: projections are reshaped, never transposed. Where kv_heads divides
// heads, head h reads key head h / (heads / kv_heads) (J. Ainslie et al., "GQA", 2023). The scores
// are never kept, only a number a row of them (T. Dao et al., "FlashAttention", 2022); sums of
// float16 and bfloat16 are kept in float32. A query that sees no key gives zeros, as in PyTorch.
Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                    const AttentionOptions& options = {});

// Rows of `table` [rows, width] at `indices`.
Tensor embedding_lookup(const Tensor& table, const Tensor& indices);

// --- losses an example ---
// labels: int [...], logits: [..., classes] -> [...]. A label out of range is an
// InvalidArgumentError that names it.
Tensor sparse_softmax_cross_entropy(const Tensor& labels, const Tensor& logits);
// labels: probabilities [..., classes].
Tensor softmax_cross_entropy(const Tensor& labels, const Tensor& logits);
// Element-wise; labels in [0, 1].
Tensor sigmoid_cross_entropy(const Tensor& labels, const Tensor& logits);

struct AverageLossOptions {
  // The number of examples in the global batch. Not given: the replica context's, else the replicas
  // in sync times the examples here.
  std::optional<std::int64_t> global_batch_size{};
  Tensor sample_weight{};  // undefined, or broadcastable to the loss
};
// sum(per_example_loss) / global batch size: summing it over the replicas gives the batch's mean.
Tensor compute_average_loss(const Tensor& per_example_loss, const AverageLossOptions& options = {});
// The sum of the losses divided by the number of replicas in sync.
Tensor scale_regularization_loss(const Tensor& regularization_loss);

}  // namespace tandem::nn
