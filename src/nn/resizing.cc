// Layers that change the number of positions or pixels: pooling of sequences, upsampling, cropping
// and padding.
#include <cmath>

#include "nn/layer_base.h"
#include "tandem/array.h"
#include "tandem/convolution_layers.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::layers {
namespace {

constexpr const char* kPositionSequences = "(batch, positions, channels)";
using Sides = std::pair<std::int64_t, std::int64_t>;

class Pooling1DLayer final : public UnaryLayer {
 public:
  using Pool = Tensor (*)(const Tensor& x, const nn::Pool2DOptions& options);
  Pooling1DLayer(const char* kind, Pool pool, std::int64_t window, const Pooling1DOptions& options)
      : UnaryLayer(kind, options),
        pool_(pool),
        window_(window),
        stride_(options.strides.value_or(window)),
        padding_(nn::padding_from_name(options.padding)) {
    if (window <= 0 || stride_ <= 0)
      fail<InvalidArgumentError>("[{}] expected a positive window and stride, got {} and {}",
                                 label(), window, stride_);
  }

 private:
  // As images of one row.
  Tensor run(const Tensor& x, const CallOptions&) override {
    const nn::Pool2DOptions options{
        .window = {1, window_}, .strides = {1, stride_}, .padding = padding_};
    return squeeze(pool_(expand_dims(x, 1), options), {1});
  }
  Shape infer(const Shape& x) const override {
    expect_rank(x, 3, kPositionSequences);
    const std::int64_t positions = num_windows(x.word(1), window_, stride_, 1, padding_);
    if (positions == 0) reject(fmt::format("a sequence of at least {} positions", window_), x);
    return {x.word(0), positions, x.word(2)};
  }

  Pool pool_;
  std::int64_t window_, stride_;
  nn::Padding padding_;
};

// Repeats the elements along `axis`.
Tensor repeated(const Tensor& x, int axis, std::int64_t times) {
  if (times == 1) return x;
  Dims multiples, sizes;
  for (int i = 0; i < x.rank(); ++i) {
    multiples.push_back(1);
    sizes.push_back(i == axis ? x.size_word(i) * times : x.size_word(i));
    if (i == axis) multiples.push_back(times);
  }
  return reshape(tile(expand_dims(x, axis + 1), multiples), Shape(sizes));
}

// The matrix [size * times, size] that interpolates linearly between the centres of pixels.
Tensor interpolation(std::int64_t size, std::int64_t times, DType dtype) {
  std::vector<float> weights(static_cast<std::size_t>(size * times * size), 0.0f);
  for (std::int64_t row = 0; row < size * times; ++row) {
    const double centre = (static_cast<double>(row) + 0.5) / static_cast<double>(times) - 0.5;
    const double at = std::min(std::max(centre, 0.0), static_cast<double>(size - 1));
    const auto low = static_cast<std::int64_t>(std::floor(at));
    const double part = at - static_cast<double>(low);
    const auto weight = [&](std::int64_t column) -> float& {
      return weights[static_cast<std::size_t>(row * size + column)];
    };
    weight(low) += static_cast<float>(1.0 - part);
    if (part > 0.0) weight(low + 1) += static_cast<float>(part);
  }
  return constant(weights, {.dtype = dtype, .shape = {size * times, size}});
}

class UpSampling2DLayer final : public UnaryLayer {
 public:
  UpSampling2DLayer(nn::Pair size, const UpSampling2DOptions& options)
      : UnaryLayer("up_sampling2d", options),
        size_(size),
        bilinear_(options.interpolation == "bilinear") {
    if (size.height <= 0 || size.width <= 0)
      fail<InvalidArgumentError>("[{}] expected a positive size, got {} x {}", label(), size.height,
                                 size.width);
    if (!bilinear_ && options.interpolation != "nearest")
      fail<InvalidArgumentError>("[{}] expected interpolation 'nearest' or 'bilinear', got '{}'",
                                 label(), options.interpolation);
  }

 private:
  Tensor run(const Tensor& x, const CallOptions&) override {
    const std::int64_t height = x.size_word(1), width = x.size_word(2);
    if (height < 0 || width < 0) reject("a known height and width", x.shape());
    if (!bilinear_ || x.shape().word(1) == 0 || x.shape().word(2) == 0)
      return repeated(repeated(x, 1, size_.height), 2, size_.width);
    const std::int64_t channels = x.size_word(3);
    if (channels < 0) reject("a known number of channels", x.shape());
    const Tensor rows = matmul(interpolation(height, size_.height, x.dtype()),
                               reshape(x, {x.size_word(0), height, width * channels}));
    return matmul(interpolation(width, size_.width, x.dtype()),
                  reshape(rows, {x.size_word(0), height * size_.height, width, channels}));
  }
  Shape infer(const Shape& x) const override {
    expect_rank(x, 4, kImageAxes);
    const auto grown = [](std::int64_t size, std::int64_t by) { return size < 0 ? -1 : size * by; };
    return {x.word(0), grown(x.word(1), size_.height), grown(x.word(2), size_.width), x.word(3)};
  }

  nn::Pair size_;
  bool bilinear_;
};

class UpSampling1DLayer final : public UnaryLayer {
 public:
  UpSampling1DLayer(std::int64_t size, const SimpleOptions& options)
      : UnaryLayer("up_sampling1d", options), size_(size) {
    if (size <= 0)
      fail<InvalidArgumentError>("[{}] expected a positive size, got {}", label(), size);
  }

 private:
  Tensor run(const Tensor& x, const CallOptions&) override {
    if (x.size_word(1) < 0) reject("a known number of positions", x.shape());
    return repeated(x, 1, size_);
  }
  Shape infer(const Shape& x) const override {
    expect_rank(x, 3, kPositionSequences);
    return {x.word(0), x.word(1) < 0 ? -1 : x.word(1) * size_, x.word(2)};
  }

  std::int64_t size_;
};

// Adds (or, with `crops`, removes) elements on both sides of the axes after the batch.
class SidesLayer final : public UnaryLayer {
 public:
  SidesLayer(const char* kind, bool crops, std::vector<Sides> sides, const SimpleOptions& options)
      : UnaryLayer(kind, options), crops_(crops), sides_(std::move(sides)) {
    for (const auto& [before, after] : sides_)
      if (before < 0 || after < 0)
        fail<InvalidArgumentError>("[{}] expected numbers of 0 or more, got {} and {}", label(),
                                   before, after);
  }

 private:
  Tensor run(const Tensor& x, const CallOptions&) override {
    std::vector<Sides> paddings(static_cast<std::size_t>(x.rank()), {0, 0});
    Dims begin{0}, size{-1};
    for (std::size_t i = 0; i < sides_.size(); ++i) {
      const auto [before, after] = sides_[i];
      const std::int64_t all = x.size_word(static_cast<int>(i) + 1);
      if (crops_ && all < 0) reject("known sizes of the axes to crop", x.shape());
      begin.push_back(before);
      size.push_back(all - before - after);
      paddings[i + 1] = {before, after};
    }
    begin.push_back(0);
    size.push_back(-1);
    return crops_ ? slice(x, begin, size) : pad(x, paddings);
  }

  Shape infer(const Shape& x) const override {
    expect_rank(x, static_cast<int>(sides_.size()) + 2,
                sides_.size() == 1 ? kPositionSequences : kImageAxes);
    Shape result = x;
    for (std::size_t i = 0; i < sides_.size(); ++i) {
      const int axis = static_cast<int>(i) + 1;
      if (x.word(axis) < 0) {
        result.set(axis, -1);
        continue;
      }
      const std::int64_t both = sides_[i].first + sides_[i].second;
      if (crops_ && both >= x.word(axis))
        reject(fmt::format("more than {} elements along axis {}", both, axis), x);
      result.set(axis, crops_ ? x.word(axis) - both : x.word(axis) + both);
    }
    return result;
  }

  bool crops_;
  std::vector<Sides> sides_;
};

}  // namespace

MaxPooling1D::MaxPooling1D(std::int64_t pool_size, const Pooling1DOptions& options)
    : tandem::Layer(
          std::make_shared<Pooling1DLayer>("max_pooling1d", nn::max_pool2d, pool_size, options)) {}

AveragePooling1D::AveragePooling1D(std::int64_t pool_size, const Pooling1DOptions& options)
    : tandem::Layer(std::make_shared<Pooling1DLayer>("average_pooling1d", nn::avg_pool2d, pool_size,
                                                     options)) {}

UpSampling2D::UpSampling2D(nn::Pair size, const UpSampling2DOptions& options)
    : tandem::Layer(std::make_shared<UpSampling2DLayer>(size, options)) {}

UpSampling1D::UpSampling1D(std::int64_t size, const SimpleOptions& options)
    : tandem::Layer(std::make_shared<UpSampling1DLayer>(size, options)) {}

Cropping2D::Cropping2D(nn::Pair cropping, const SimpleOptions& options)
    : Cropping2D({cropping.height, cropping.height}, {cropping.width, cropping.width}, options) {}

Cropping2D::Cropping2D(std::pair<std::int64_t, std::int64_t> rows,
                       std::pair<std::int64_t, std::int64_t> columns, const SimpleOptions& options)
    : tandem::Layer(std::make_shared<SidesLayer>("cropping2d", true,
                                                 std::vector<Sides>{rows, columns}, options)) {}

Cropping1D::Cropping1D(std::int64_t cropping, const SimpleOptions& options)
    : Cropping1D({cropping, cropping}, options) {}

Cropping1D::Cropping1D(std::pair<std::int64_t, std::int64_t> cropping, const SimpleOptions& options)
    : tandem::Layer(std::make_shared<SidesLayer>("cropping1d", true, std::vector<Sides>{cropping},
                                                 options)) {}

ZeroPadding2D::ZeroPadding2D(nn::Pair padding, const SimpleOptions& options)
    : ZeroPadding2D({padding.height, padding.height}, {padding.width, padding.width}, options) {}

ZeroPadding2D::ZeroPadding2D(std::pair<std::int64_t, std::int64_t> rows,
                             std::pair<std::int64_t, std::int64_t> columns,
                             const SimpleOptions& options)
    : tandem::Layer(std::make_shared<SidesLayer>("zero_padding2d", false,
                                                 std::vector<Sides>{rows, columns}, options)) {}

ZeroPadding1D::ZeroPadding1D(std::int64_t padding, const SimpleOptions& options)
    : ZeroPadding1D({padding, padding}, options) {}

ZeroPadding1D::ZeroPadding1D(std::pair<std::int64_t, std::int64_t> padding,
                             const SimpleOptions& options)
    : tandem::Layer(std::make_shared<SidesLayer>("zero_padding1d", false,
                                                 std::vector<Sides>{padding}, options)) {}

}  // namespace tandem::layers
