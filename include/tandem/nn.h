/// @file
/// Neural-network operations. As tf.nn. Images are channels-last: [batch, height, width, channels].
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/math.h"
#include "tandem/tensor.h"

/// Neural-network operations.
namespace tandem::nn {

// --- activations ---
/// Activation functions. As tf.keras.activations.
enum class Activation {
  kLinear,     ///< x
  kRelu,       ///< max(x, 0)
  kRelu6,      ///< min(max(x, 0), 6)
  kLeakyRelu,  ///< x if x > 0, else 0.2 * x
  kElu,        ///< x if x > 0, else exp(x) - 1
  kSelu,       ///< scaled exponential linear unit
  kGelu,       ///< x * Phi(x), exact
  kSwish,      ///< x * sigmoid(x)
  kSoftplus,   ///< log(1 + exp(x))
  kSigmoid,    ///< 1 / (1 + exp(-x))
  kTanh,       ///< tanh(x)
  kSoftmax,    ///< softmax over the last axis
  // Those of tandem/activations.h, with default arguments.
  kCelu,           ///< celu()
  kExponential,    ///< exp(x)
  kGlu,            ///< glu() over the last axis
  kHardShrink,     ///< hard_shrink()
  kHardSigmoid,    ///< hard_sigmoid()
  kHardSwish,      ///< hard_swish()
  kHardTanh,       ///< hard_tanh()
  kLogSigmoid,     ///< log_sigmoid()
  kLogSoftmax,     ///< log_softmax() over the last axis
  kMish,           ///< mish()
  kSoftShrink,     ///< soft_shrink()
  kSoftsign,       ///< softsign()
  kSparsePlus,     ///< sparse_plus()
  kSparseSigmoid,  ///< sparse_sigmoid()
  kSquareplus,     ///< squareplus()
  kTanhShrink      ///< tanh_shrink()
};
/// The last enumerator, for range checks.
constexpr Activation last_value(Activation) { return Activation::kTanhShrink; }
/// The activation of this name: "relu", "linear" (or ""), "swish" (or "silu"), ... Throws
/// InvalidArgumentError that lists the names.
Activation activation_from_name(std::string_view name);
/// Applies an activation with default parameters.
[[nodiscard]] Tensor activate(const Tensor& x, Activation activation);

[[nodiscard]] Tensor relu(const Tensor& x);   ///< max(x, 0)
[[nodiscard]] Tensor relu6(const Tensor& x);  ///< min(max(x, 0), 6)
[[nodiscard]] Tensor leaky_relu(const Tensor& x,
                                double alpha = 0.2);  ///< x if x > 0, else alpha * x
[[nodiscard]] Tensor elu(const Tensor& x,
                         double alpha = 1.0);  ///< x if x > 0, else alpha * (exp(x) - 1)
[[nodiscard]] Tensor selu(const Tensor& x);    ///< scaled exponential linear unit
[[nodiscard]] Tensor gelu(const Tensor& x,
                          bool approximate = false);  ///< x * Phi(x), or its tanh approximation
[[nodiscard]] Tensor swish(const Tensor& x);          ///< x * sigmoid(x)
[[nodiscard]] Tensor softplus(const Tensor& x);       ///< log(1 + exp(x))
/// Exp(x) / sum(exp(x)) along an axis.
[[nodiscard]] Tensor softmax(const Tensor& logits, std::int64_t axis = -1);
/// The same with the axis as an option.
[[nodiscard]] inline Tensor softmax(const Tensor& logits, const AxisOptions& options) {
  return softmax(logits, options.axis);
}
/// Log(softmax(x)), without overflow.
[[nodiscard]] Tensor log_softmax(const Tensor& logits, std::int64_t axis = -1);
/// The same with the axis as an option.
[[nodiscard]] inline Tensor log_softmax(const Tensor& logits, const AxisOptions& options) {
  return log_softmax(logits, options.axis);
}

// --- layers' arithmetic ---
/// activation(x . weights + bias) over the last axis of x, with shapes [..., in] x [in, out] +
/// [out]. `bias` may be undefined. Activations that cannot be fused, such as kSoftmax, run as a
/// separate operation.
[[nodiscard]] Tensor dense(const Tensor& x, const Tensor& weights, const Tensor& bias = {},
                           Activation activation = Activation::kLinear);
/// Adds a bias over the last axis. As tf.nn.bias_add.
[[nodiscard]] Tensor bias_add(const Tensor& x, const Tensor& bias);

/// How convolutions and pooling pad images. kValid and kSame as in TensorFlow.
enum class Padding {
  kValid,    ///< no padding
  kSame,     ///< output size is input size / stride, rounded up; an odd pixel goes to the end
  kExplicit  ///< the numbers of WindowPadding
};
/// The last enumerator, for range checks.
constexpr Padding last_value(Padding) { return Padding::kExplicit; }
/// "valid" or "same" (any case). Throws InvalidArgumentError for another name.
Padding padding_from_name(std::string_view name);

/// Two sizes, of height and width.
struct Pair {
  std::int64_t height = 1;  ///< size along the height
  std::int64_t width = 1;   ///< size along the width
  Pair() = default;
  /// The same size for both.
  Pair(std::int64_t both) : height(both), width(both) {}  // NOLINT: one number stands for both
  /// Height and width.
  Pair(std::int64_t h, std::int64_t w) : height(h), width(w) {}
  friend bool operator==(const Pair&, const Pair&) = default;
};

/// A size that may not be given; converts from a number or a list of two: {2, 2}.
class OptionalPair : public std::optional<Pair> {
 public:
  using std::optional<Pair>::optional;
  OptionalPair() = default;  ///< not given
  /// Height and width.
  OptionalPair(std::int64_t h, std::int64_t w) : std::optional<Pair>(std::in_place, h, w) {}
};

/// Padding of a convolution or of pooling: a Padding, its name in any case, or numbers of rows and
/// columns. `1` pads all four sides, `{1, 2}` top and bottom by 1, left and right by 2, as in
/// PyTorch; `{{0, 1}, {2, 3}}` is {top, bottom} and {left, right}, as in tf.nn.conv2d. The elements
/// count as zeros in a convolution, and are left out by pooling. With stride 2 or more, "same" is
/// not the padding of half a kernel that PyTorch's models have.
class WindowPadding {
 public:
  using Sides = std::pair<std::int64_t, std::int64_t>;  ///< before and after an axis
  WindowPadding() = default;                            ///< no padding
  /// kValid or kSame. Throws InvalidArgumentError for kExplicit, which needs numbers.
  WindowPadding(Padding kind);  // NOLINT: implicit
  /// @{
  /// "valid" or "same". Throws InvalidArgumentError for another name.
  WindowPadding(const char* name) : WindowPadding(padding_from_name(name)) {}         // NOLINT
  WindowPadding(const std::string& name) : WindowPadding(padding_from_name(name)) {}  // NOLINT
  /// @}
  /// All four sides. Throws InvalidArgumentError for negative numbers, as do those below.
  template <tandem::detail::Integer Size>
  WindowPadding(Size all) : WindowPadding(Pair(static_cast<std::int64_t>(all))) {}  // NOLINT
  /// Top and bottom, and left and right.
  WindowPadding(Pair both)  // NOLINT: implicit
      : WindowPadding(Sides{both.height, both.height}, Sides{both.width, both.width}) {}
  /// Top and bottom, and left and right.
  WindowPadding(std::int64_t height, std::int64_t width) : WindowPadding(Pair(height, width)) {}
  /// {top, bottom} and {left, right}.
  WindowPadding(Sides rows, Sides columns);

  Padding kind() const { return kind_; }             ///< how images are padded
  const Sides& rows() const { return rows_; }        ///< top and bottom, of kExplicit
  const Sides& columns() const { return columns_; }  ///< left and right, of kExplicit
  friend bool operator==(const WindowPadding&, const WindowPadding&) = default;

 private:
  Padding kind_ = Padding::kValid;
  Sides rows_{0, 0}, columns_{0, 0};
};

/// Options of conv2d() and depthwise_conv2d(). As the arguments of tf.nn.conv2d.
struct Conv2DOptions {
  Pair strides = 1;                             ///< strides
  WindowPadding padding{};                      ///< "valid", "same" or numbers
  Pair dilations = 1;                           ///< spacing of the kernel's elements
  std::int64_t groups = 1;                      ///< groups of channels; conv2d() only
  Activation activation = Activation::kLinear;  ///< applied to the result
};
/// 2D convolution. x: [n, h, w, in], kernel: [kh, kw, in / groups, out], bias: [out] or undefined.
/// As tf.nn.conv2d.
[[nodiscard]] Tensor conv2d(const Tensor& x, const Tensor& kernel, const Tensor& bias = {},
                            const Conv2DOptions& options = {});
/// Depthwise 2D convolution. kernel: [kh, kw, in, multiplier]; the result has in * multiplier
/// channels. As tf.nn.depthwise_conv2d.
[[nodiscard]] Tensor depthwise_conv2d(const Tensor& x, const Tensor& kernel,
                                      const Tensor& bias = {}, const Conv2DOptions& options = {});

/// Options of conv2d_transpose().
struct Conv2DTransposeOptions {
  Pair strides = 1;         ///< how many pixels of the result there are per pixel
  WindowPadding padding{};  ///< that of the convolution which it reverses: it makes results smaller
  /// Rows and columns that are added to the size of the result, less than the strides or the
  /// dilations. Default: 0 with numbers as padding; else a result of size * strides with "same",
  /// and of size * strides + max(reach of the kernel - strides, 0) with "valid".
  OptionalPair output_padding{};
  Pair dilations = 1;                           ///< spacing of the kernel's elements
  std::int64_t groups = 1;                      ///< groups of channels
  Activation activation = Activation::kLinear;  ///< applied to the result
};
/// Transposed 2D convolution: what the gradient of conv2d() with respect to its images computes,
/// so that images grow by the strides. x: [n, h, w, in], kernel: [kh, kw, out / groups, in], bias:
/// [out] or undefined. The result has (h - 1) * stride + reach - padding + output_padding rows,
/// where the kernel reaches over (kh - 1) * dilation + 1. Throws InvalidArgumentError for an
/// output_padding with which a convolution of the result has not the size of x. As
/// tf.nn.conv2d_transpose and torch.nn.functional.conv_transpose2d.
[[nodiscard]] Tensor conv2d_transpose(const Tensor& x, const Tensor& kernel,
                                      const Tensor& bias = {},
                                      const Conv2DTransposeOptions& options = {});

/// Options of pooling.
struct Pool2DOptions {
  Pair window = 2;          ///< size of the window
  OptionalPair strides{};   ///< default: the window
  WindowPadding padding{};  ///< "valid", "same" or numbers below the window's
  /// Whether windows that end beyond the image and its padding count, if they begin before. As
  /// torch.nn.MaxPool2d.
  bool ceil_mode = false;
};
/// Max pooling. As tf.nn.max_pool2d.
[[nodiscard]] Tensor max_pool2d(const Tensor& x, const Pool2DOptions& options = {});
/// Average pooling without padding elements. As tf.nn.avg_pool2d.
[[nodiscard]] Tensor avg_pool2d(const Tensor& x, const Pool2DOptions& options = {});
/// @{
/// Mean or maximum over height and width: [n, c], or [n, 1, 1, c] with keepdims.
[[nodiscard]] Tensor global_avg_pool2d(const Tensor& x, bool keepdims = false);
[[nodiscard]] Tensor global_max_pool2d(const Tensor& x, bool keepdims = false);
/// @}

/// Result of batch_norm_training().
struct BatchNormResult {
  Tensor y{};         ///< normalized x
  Tensor mean{};      ///< mean over all axes but the last
  Tensor variance{};  ///< population variance
};
/// Normalizes over all axes but the last with the batch's own moments. gamma, beta and the moments
/// have shape [c].
BatchNormResult batch_norm_training(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                                    double epsilon = 1e-3);
/// Normalizes with the given moments.
[[nodiscard]] Tensor batch_norm_inference(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                                          const Tensor& mean, const Tensor& variance,
                                          double epsilon = 1e-3);
/// Normalizes over the last axis; gamma, beta: [last].
[[nodiscard]] Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                                double epsilon = 1e-3);

/// Zeroes elements with probability `rate` and scales the others by 1 / (1 - rate). The choice
/// depends on the seed, the number of the call and the element's position in the GLOBAL batch, so
/// that it is the same for any number of replicas. As tf.nn.dropout.
[[nodiscard]] Tensor dropout(const Tensor& x, double rate);

/// Options of scaled_dot_product_attention().
struct AttentionOptions {
  /// A mask that broadcasts to [batch, heads, queries, keys]. bool: true if the query attends to
  /// the key. The query's dtype: added to the scores (its gradient, and second derivatives,
  /// materialize the matrix of scores). Undefined: no mask.
  Tensor mask{};
  /// Query i attends to keys 0 to i only, in addition to the mask.
  bool causal = false;
  std::optional<double> scale{};  ///< scale of the scores; default: 1 / sqrt(depth)
  /// Dropout rate of the attention weights, with the choice of nn::dropout() for a tensor [batch,
  /// heads, queries, keys].
  double dropout_rate = 0.0;
};
/// softmax(scale * query . key^T + mask) . value per head. Shapes: query [batch, queries, heads,
/// depth], key [batch, keys, kv_heads, depth], value [batch, keys, kv_heads, value_depth], result
/// [batch, queries, heads, value_depth], of one floating-point dtype. The heads are the third axis,
/// as in jax.nn.dot_product_attention, so that projections need no transpose.
///
/// If kv_heads divides heads, head h uses key head h / (heads / kv_heads) (Ainslie et al., "GQA",
/// 2023). The scores are not stored, only one number per row (Dao et al., "FlashAttention", 2022).
/// float16 and bfloat16 accumulate in float32. A query without keys gives zeros, as in PyTorch.
[[nodiscard]] Tensor scaled_dot_product_attention(const Tensor& query, const Tensor& key,
                                                  const Tensor& value,
                                                  const AttentionOptions& options = {});

/// Result of moments().
struct Moments {
  Tensor mean{};      ///< mean
  Tensor variance{};  ///< population variance
};
/// Mean and population variance over the given axes. As tf.nn.moments.
Moments moments(const Tensor& x, const Axes& axes, bool keepdims = false);

/// Rows of `table` [rows, width] at `indices`. As tf.nn.embedding_lookup.
[[nodiscard]] Tensor embedding_lookup(const Tensor& table, const Tensor& indices);

// --- per-example losses ---
/// Crossentropy of class indices: labels int [...], logits [..., classes], result [...]. Throws
/// InvalidArgumentError for a label out of range and names it. As
/// tf.nn.sparse_softmax_cross_entropy_with_logits.
[[nodiscard]] Tensor sparse_softmax_cross_entropy(const Tensor& labels, const Tensor& logits);
/// Crossentropy of probabilities: labels [..., classes]. As
/// tf.nn.softmax_cross_entropy_with_logits.
[[nodiscard]] Tensor softmax_cross_entropy(const Tensor& labels, const Tensor& logits);
/// Element-wise; labels in [0, 1]. As tf.nn.sigmoid_cross_entropy_with_logits.
[[nodiscard]] Tensor sigmoid_cross_entropy(const Tensor& labels, const Tensor& logits);

/// Options of compute_average_loss().
struct AverageLossOptions {
  Tensor sample_weight{};  ///< undefined, or broadcastable to the loss
  /// Number of examples in the global batch. Default: that of the replica context, else the number
  /// of replicas in sync times the number of losses.
  std::optional<std::int64_t> global_batch_size{};
};
/// sum(per_example_loss) / global batch size: the sum of it over the replicas is the batch's mean.
/// As tf.nn.compute_average_loss.
[[nodiscard]] Tensor compute_average_loss(const Tensor& per_example_loss,
                                          const AverageLossOptions& options = {});
/// The sum of the losses divided by the number of replicas in sync. As
/// tf.nn.scale_regularization_loss.
[[nodiscard]] Tensor scale_regularization_loss(const Tensor& regularization_loss);

}  // namespace tandem::nn
