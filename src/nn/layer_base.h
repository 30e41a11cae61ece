// What the built-in layers share.
#pragma once

#include <string>
#include <utility>

#include "core/status.h"
#include "tandem/layers.h"

namespace tandem {

// A layer of one kind, with the options that every factory takes.
class KindLayer : public LayerBase {
 public:
  KindLayer(const char* kind, std::string name, const Shape& input_shape)
      : LayerBase(std::move(name)), kind_(kind) {
    declare_input_shape(input_shape);
  }
  std::string kind() const final { return kind_; }
  // Whether call() runs a function of the user's. Operations are not named in other layers' errors.
  virtual bool runs_user_code() const { return false; }

 protected:
  // "expected <what>, got <shape>", naming the layer.
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
  // Most layers have no variables. `x`: the input's shape, whose batch axis is -1.
  virtual void make_weights(const Shape& x) { static_cast<void>(infer(x)); }
  virtual Tensor run(const Tensor& x, const CallOptions& options) = 0;
  // The result's shape. Throws InvalidArgumentError for shapes that the layer does not take.
  virtual Shape infer(const Shape& x) const = 0;
  // Each call's input is checked here, so that errors name the layer; a few nanoseconds.
  virtual void check(const Shape& x) const { static_cast<void>(infer(x)); }

  // Sizes that the layer needs to know: not -1.
  std::int64_t known_size(const Shape& x, int axis, const char* what) const {
    if (x[axis] < 0) reject(std::string("a known number of ") + what, x);
    return x[axis];
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

inline constexpr const char* kPictureAxes = "(batch, height, width, channels)";

// The size that `window` (dilated by `dilation`) leaves of `size` when it moves by `stride`; -1 for
// -1. Without room for one window: 0 or less.
inline std::int64_t windows(std::int64_t size, std::int64_t window, std::int64_t stride,
                            std::int64_t dilation, nn::Padding padding) {
  if (size < 0) return -1;
  if (padding == nn::Padding::kSame) return (size + stride - 1) / stride;
  const std::int64_t reach = (window - 1) * dilation + 1;
  return size < reach ? 0 : (size - reach) / stride + 1;
}

}  // namespace tandem
