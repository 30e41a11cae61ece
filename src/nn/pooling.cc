// Pooling over windows and over whole images.
#include "nn/layer_base.h"
#include "tandem/math.h"

namespace tandem::layers {
namespace {

using Pool = Tensor (*)(const Tensor& x, const nn::Pool2DOptions& options);
using GlobalPool = Tensor (*)(const Tensor& x, bool keepdims);

class PoolingLayer final : public UnaryLayer {
 public:
  PoolingLayer(const char* kind, Pool pool, nn::Pair window, const Pooling2DOptions& options)
      : UnaryLayer(kind, options),
        pool_(pool),
        attributes_{.window = window, .strides = options.strides, .padding = options.padding} {
    const nn::Pair strides = options.strides.value_or(window);
    if (window.height <= 0 || window.width <= 0 || strides.height <= 0 || strides.width <= 0)
      fail<InvalidArgumentError>(
          "[{}] expected a positive window and strides, got {} x {} and {} x {}", label(),
          window.height, window.width, strides.height, strides.width);
    const auto& [rows, columns] = std::pair(options.padding.rows(), options.padding.columns());
    if (std::max(rows.first, rows.second) >= window.height ||
        std::max(columns.first, columns.second) >= window.width)
      fail<InvalidArgumentError>(
          "[{}] expected a padding below the window {} x {}, got {}, {}, {} and {}", label(),
          window.height, window.width, rows.first, rows.second, columns.first, columns.second);
    if (options.pool_size.value_or(window) != window)
      fail<InvalidArgumentError>(
          "[{}] expected one size of windows, got the argument {} x {} and the option {} x {}",
          label(), window.height, window.width, options.pool_size->height,
          options.pool_size->width);
  }

 private:
  Tensor run(const Tensor& x, const CallOptions&) override { return pool_(x, attributes_); }

  Shape infer(const Shape& x) const override {
    expect_rank(x, 4, kImageAxes);
    const nn::Pair window = attributes_.window, strides = attributes_.strides.value_or(window);
    const nn::WindowPadding& padding = attributes_.padding;
    const std::int64_t height =
        num_windows(x.word(1), window.height, strides.height, 1, padding.kind(), padding.rows());
    const std::int64_t width =
        num_windows(x.word(2), window.width, strides.width, 1, padding.kind(), padding.columns());
    if (height == 0 || width == 0)
      reject(fmt::format("an image of at least {} x {}{}", window.height, window.width,
                         padding.kind() == nn::Padding::kExplicit ? " with its padding" : ""),
             x);
    return {x.word(0), height, width, x.word(3)};
  }

  Pool pool_;
  nn::Pool2DOptions attributes_;
};

class GlobalPoolingLayer final : public UnaryLayer {
 public:
  GlobalPoolingLayer(const char* kind, GlobalPool pool, const GlobalPooling2DOptions& options)
      : UnaryLayer(kind, options), pool_(pool), keepdims_(options.keepdims) {}

 private:
  Tensor run(const Tensor& x, const CallOptions&) override { return pool_(x, keepdims_); }

  Shape infer(const Shape& x) const override {
    expect_rank(x, 4, kImageAxes);
    return keepdims_ ? Shape{x.word(0), 1, 1, x.word(3)} : Shape{x.word(0), x.word(3)};
  }

  GlobalPool pool_;
  bool keepdims_;
};

Tensor mean_of_positions(const Tensor& x, bool keepdims) { return reduce_mean(x, 1, keepdims); }
Tensor max_of_positions(const Tensor& x, bool keepdims) { return reduce_max(x, 1, keepdims); }

class GlobalPooling1DLayer final : public UnaryLayer {
 public:
  GlobalPooling1DLayer(const char* kind, GlobalPool reduce, const GlobalPooling2DOptions& options)
      : UnaryLayer(kind, options), reduce_(reduce), keepdims_(options.keepdims) {}

 private:
  Tensor run(const Tensor& x, const CallOptions&) override { return reduce_(x, keepdims_); }

  Shape infer(const Shape& x) const override {
    expect_rank(x, 3, "(batch, positions, features)");
    return keepdims_ ? Shape{x[0], 1, x[2]} : Shape{x[0], x[2]};
  }

  GlobalPool reduce_;
  bool keepdims_;
};

}  // namespace

MaxPooling2D::MaxPooling2D(nn::Pair pool_size, const Pooling2DOptions& options)
    : tandem::Layer(
          std::make_shared<PoolingLayer>("max_pooling2d", nn::max_pool2d, pool_size, options)) {}

AveragePooling2D::AveragePooling2D(nn::Pair pool_size, const Pooling2DOptions& options)
    : tandem::Layer(std::make_shared<PoolingLayer>("average_pooling2d", nn::avg_pool2d, pool_size,
                                                   options)) {}

GlobalAveragePooling2D::GlobalAveragePooling2D(const GlobalPooling2DOptions& options)
    : tandem::Layer(std::make_shared<GlobalPoolingLayer>("global_average_pooling2d",
                                                         nn::global_avg_pool2d, options)) {}

GlobalMaxPooling2D::GlobalMaxPooling2D(const GlobalPooling2DOptions& options)
    : tandem::Layer(std::make_shared<GlobalPoolingLayer>("global_max_pooling2d",
                                                         nn::global_max_pool2d, options)) {}

GlobalAveragePooling1D::GlobalAveragePooling1D(const GlobalPooling2DOptions& options)
    : tandem::Layer(std::make_shared<GlobalPooling1DLayer>("global_average_pooling1d",
                                                           mean_of_positions, options)) {}

GlobalMaxPooling1D::GlobalMaxPooling1D(const GlobalPooling2DOptions& options)
    : tandem::Layer(std::make_shared<GlobalPooling1DLayer>("global_max_pooling1d", max_of_positions,
                                                           options)) {}

}  // namespace tandem::layers
