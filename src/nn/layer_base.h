// Base classes of the built-in layers.
#pragma once

#include <string>
#include <utility>

#include "core/status.h"
#include "tandem/layers.h"

namespace tandem {

// A layer with a kind ("dense") and the options that every factory takes.
class KindLayer : public LayerBase {
 public:
  // `options`: the layer's, which have the members of SimpleOptions, perhaps without input_shape.
  template <class Options>
  KindLayer(const char* kind, const Options& options) : LayerBase(options.name), kind_(kind) {
    if constexpr (requires { options.input_shape; }) declare_input_shape(options.input_shape);
    if (options.dtype.defined()) set_dtype_policy(options.dtype);
  }
  std::string kind() const final { return kind_; }
  // Whether call() runs a user's function. The errors of other layers leave out the names of
  // operations, which their users did not call.
  virtual bool runs_user_code() const { return false; }
  // Whether results are of any size and sign, as logits are: a product without an activation.
  virtual bool makes_logits() const { return false; }

 protected:
  // Throws "[<layer>] expected <expected>, got <shape>".
  [[noreturn]] void reject(const std::string& expected, const Shape& got) const {
    fail<InvalidArgumentError>("[{}] expected {}, got {}", label(), expected, got.to_string());
  }

 private:
  const char* kind_;
};

// A layer of one input.
class UnaryLayer : public KindLayer {
 public:
  using KindLayer::KindLayer;

  void build(std::span<const Shape> input_shapes) final { make_weights(only(input_shapes)); }
  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) final {
    const Tensor& x = only(inputs);
    check(x.shape());
    return run(x, options);
  }
  Shape output_shape(std::span<const Shape> input_shapes) const final {
    return infer(only(input_shapes));
  }

 protected:
  // Creates the variables; most layers have none. `x` is the input's shape, with batch size -1.
  virtual void make_weights(const Shape& x) { static_cast<void>(infer(x)); }
  virtual Tensor run(const Tensor& x, const CallOptions& options) = 0;
  // The result's shape. Throws InvalidArgumentError for an invalid input shape.
  virtual Shape infer(const Shape& x) const = 0;
  // Checks the input of each call, so that errors name the layer. Costs a few nanoseconds.
  virtual void check(const Shape& x) const { static_cast<void>(infer(x)); }

  // The size of an axis that must be known (not -1) to build the layer.
  std::int64_t known_size(const Shape& x, int axis, const char* what) const {
    if (x.word(axis) < 0) reject(std::string("a known number of ") + what, x);
    return x.word(axis);
  }
  void expect_rank(const Shape& x, int rank, const char* axes) const {
    if (x.rank() != rank) reject(std::string("an input of shape ") + axes, x);
  }

 private:
  template <class T>
  const T& only(std::span<const T> items) const {
    if (items.size() != 1)
      fail<InvalidArgumentError>("[{}] expected one input, got {}", label(), items.size());
    return items.front();
  }
};

// Advice for images of shape `got` if they must be channels-first: a layer of `channels` got them.
inline std::string channels_first_advice(const Shape& got, std::int64_t channels) {
  if (got.rank() != 4 || channels < 0 || got.word(1) != channels || got.word(3) == channels ||
      got.word(3) < 0)
    return {};
  return "; the images look channels-first, and layers take (batch, height, width, channels): "
         "td::transpose(x, {0, 2, 3, 1})";
}

inline constexpr const char* kImageAxes = "(batch, height, width, channels)";

// The output size of a convolution or pooling along one axis: the number of windows. Returns -1 if
// `size` is -1, and 0 if no window fits. `sides`: the numbers of Padding::kExplicit.
inline std::int64_t num_windows(std::int64_t size, std::int64_t window, std::int64_t stride,
                                std::int64_t dilation, nn::Padding padding,
                                const nn::WindowPadding::Sides& sides = {0, 0}) {
  if (size < 0) return -1;
  if (padding == nn::Padding::kSame) return (size + stride - 1) / stride;
  const std::int64_t reach = (window - 1) * dilation + 1;
  const std::int64_t padded = size == 0 ? 0 : size + sides.first + sides.second;
  return padded < reach ? 0 : (padded - reach) / stride + 1;
}

}  // namespace tandem
