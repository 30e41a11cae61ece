// Conv1D, and transposed and separable 2D convolutions.
#include "tandem/convolution_layers.h"
#include "nn/layer_base.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem::layers {
namespace {

constexpr const char* kChannelSequences = "(batch, positions, channels)";

// The common part of the layers: filters, an activation and a bias.
template <class Options>
class FiltersLayer : public UnaryLayer {
 public:
  FiltersLayer(const char* kind, std::int64_t filters, const Options& options)
      : UnaryLayer(kind, options),
        filters_(filters),
        options_(options),
        activation_(nn::activation_from_name(options.activation)) {
    if (filters <= 0)
      fail<InvalidArgumentError>("[{}] expected a positive number of filters, got {}", label(),
                                 filters);
  }

 protected:
  void make_bias() {
    if (!options_.use_bias) return;
    bias_ = add_weight("bias", {filters_}, options_.bias_initializer);
    regularize(bias_, options_.bias_regularizer);
  }
  Tensor bias() const { return options_.use_bias ? bias_.value() : Tensor(); }
  void expect_channels(const Shape& x) const {
    const std::int64_t channels = x.word(x.rank() - 1);
    if (channels_ >= 0 && channels >= 0 && channels != channels_)
      fail<InvalidArgumentError>("[{}] expected an input of {} channels, got {}{}", label(),
                                 channels_, x.to_string(), channels_first_advice(x, channels_));
  }
  void expect_positive(nn::Pair pair, const char* what) const {
    if (pair.height <= 0 || pair.width <= 0)
      fail<InvalidArgumentError>("[{}] expected a positive {}, got {} x {}", label(), what,
                                 pair.height, pair.width);
  }

  std::int64_t filters_;
  Options options_;
  nn::Activation activation_;
  std::int64_t channels_ = -1;

 private:
  Variable bias_;
};

class Conv1DLayer final : public FiltersLayer<Conv1DOptions> {
 public:
  Conv1DLayer(std::int64_t filters, std::int64_t kernel_size, const Conv1DOptions& options)
      : FiltersLayer("conv1d", filters, options),
        kernel_size_(kernel_size),
        causal_(options.padding == "causal"),
        padding_(causal_ ? nn::Padding::kValid : nn::padding_from_name(options.padding)) {
    expect_positive(kernel_size, "kernel size");
    expect_positive(options.strides, "stride");
    expect_positive(options.dilation_rate, "dilation rate");
    if (options.groups <= 0 || filters % options.groups != 0)
      fail<InvalidArgumentError>("[{}] expected filters divisible by groups, got {} and {}",
                                 label(), filters, options.groups);
  }

 private:
  void make_weights(const Shape& x) override {
    static_cast<void>(infer(x));
    channels_ = known_size(x, 2, "channels");
    kernel_ = add_weight("kernel", {kernel_size_, channels_ / options_.groups, filters_},
                         options_.kernel_initializer);
    regularize(kernel_, options_.kernel_regularizer);
    make_bias();
  }

  // As images of one row.
  Tensor run(const Tensor& x, const CallOptions&) override {
    const Tensor sequence = causal_ ? pad(x, Paddings{{0, 0}, {reach() - 1, 0}, {0, 0}}) : x;
    const Tensor y = nn::conv2d(expand_dims(sequence, 1), expand_dims(kernel_.value(), 0), bias(),
                                {.strides = {1, options_.strides},
                                 .padding = padding_,
                                 .dilations = {1, options_.dilation_rate},
                                 .groups = options_.groups,
                                 .activation = activation_});
    return squeeze(y, {1});
  }

  Shape infer(const Shape& x) const override {
    expect_rank(x, 3, kChannelSequences);
    expect_channels(x);
    if (x.word(2) >= 0 && x.word(2) % options_.groups != 0)
      reject(fmt::format("a number of channels divisible by {} groups", options_.groups), x);
    const std::int64_t size = causal_ && x.word(1) >= 0 ? x.word(1) + reach() - 1 : x.word(1);
    const std::int64_t positions =
        num_windows(size, kernel_size_, options_.strides, options_.dilation_rate, padding_);
    if (positions == 0) reject(fmt::format("a sequence of at least {} positions", reach()), x);
    return {x.word(0), positions, filters_};
  }

  // The positions that a kernel covers.
  std::int64_t reach() const { return (kernel_size_ - 1) * options_.dilation_rate + 1; }

  using Paddings = std::vector<std::pair<std::int64_t, std::int64_t>>;
  std::int64_t kernel_size_;
  bool causal_;
  nn::Padding padding_;
  Variable kernel_;
};

class Conv2DTransposeLayer final : public FiltersLayer<Conv2DTransposeOptions> {
 public:
  Conv2DTransposeLayer(std::int64_t filters, nn::Pair kernel_size,
                       const Conv2DTransposeOptions& options)
      : FiltersLayer("conv2d_transpose", filters, options), kernel_size_(kernel_size) {
    expect_positive(kernel_size, "kernel size");
    expect_positive(options.strides, "stride");
    if (!options.output_padding) return;
    const nn::Pair more = *options.output_padding;
    if (more.height < 0 || more.width < 0 || more.height >= options.strides.height ||
        more.width >= options.strides.width)
      fail<InvalidArgumentError>(
          "[{}] expected an output_padding of 0 or more and less than the strides {} x {}, got {} "
          "x {}",
          label(), options.strides.height, options.strides.width, more.height, more.width);
  }

 private:
  void make_weights(const Shape& x) override {
    static_cast<void>(infer(x));
    channels_ = known_size(x, 3, "channels");
    kernel_ = add_weight("kernel", {kernel_size_.height, kernel_size_.width, filters_, channels_},
                         options_.kernel_initializer);
    regularize(kernel_, options_.kernel_regularizer);
    make_bias();
  }

  Tensor run(const Tensor& x, const CallOptions&) override {
    return nn::conv2d_transpose(x, kernel_, bias(),
                                {.strides = options_.strides,
                                 .padding = options_.padding,
                                 .output_padding = options_.output_padding,
                                 .activation = activation_});
  }

  Shape infer(const Shape& x) const override {
    expect_rank(x, 4, kImageAxes);
    expect_channels(x);
    const auto& more = options_.output_padding;
    const nn::Padding kind = options_.padding.kind();
    const bool given = kind == nn::Padding::kExplicit, same = kind == nn::Padding::kSame;
    const auto size = [&](int axis, std::int64_t kernel, std::int64_t stride,
                          const nn::WindowPadding::Sides& sides,
                          std::optional<std::int64_t> padding) -> std::int64_t {
      const std::int64_t n = x.word(axis);
      if (n < 0) return -1;
      const std::int64_t removed = given ? sides.first + sides.second : same ? 2 * (kernel / 2) : 0;
      const std::int64_t grown =
          !padding && !given ? n * stride + (same ? 0 : std::max<std::int64_t>(kernel - stride, 0))
                             : (n - 1) * stride + kernel - removed + padding.value_or(0);
      if (grown <= 0) reject("an image that is larger than the padding", x);
      if (num_windows(grown, kernel, stride, 1, kind, sides) != n)
        reject("an output_padding with which a convolution has the input's size", x);
      return grown;
    };
    return {x.word(0),
            size(1, kernel_size_.height, options_.strides.height, options_.padding.rows(),
                 more ? std::optional(more->height) : std::nullopt),
            size(2, kernel_size_.width, options_.strides.width, options_.padding.columns(),
                 more ? std::optional(more->width) : std::nullopt),
            filters_};
  }

  nn::Pair kernel_size_;
  Variable kernel_;
};

class SeparableConv2DLayer final : public FiltersLayer<SeparableConv2DOptions> {
 public:
  SeparableConv2DLayer(std::int64_t filters, nn::Pair kernel_size,
                       const SeparableConv2DOptions& options)
      : FiltersLayer("separable_conv2d", filters, options), kernel_size_(kernel_size) {
    expect_positive(kernel_size, "kernel size");
    expect_positive(options.strides, "stride");
    expect_positive(options.dilation_rate, "dilation rate");
    expect_positive(options.depth_multiplier, "depth multiplier");
  }

 private:
  void make_weights(const Shape& x) override {
    static_cast<void>(infer(x));
    channels_ = known_size(x, 3, "channels");
    depthwise_ =
        add_weight("depthwise_kernel",
                   {kernel_size_.height, kernel_size_.width, channels_, options_.depth_multiplier},
                   options_.depthwise_initializer);
    regularize(depthwise_, options_.depthwise_regularizer);
    pointwise_ =
        add_weight("pointwise_kernel", {1, 1, channels_ * options_.depth_multiplier, filters_},
                   options_.pointwise_initializer);
    regularize(pointwise_, options_.pointwise_regularizer);
    make_bias();
  }

  Tensor run(const Tensor& x, const CallOptions&) override {
    const Tensor each = nn::depthwise_conv2d(x, depthwise_, {},
                                             {.strides = options_.strides,
                                              .padding = options_.padding,
                                              .dilations = options_.dilation_rate});
    return nn::conv2d(each, pointwise_, bias(), {.activation = activation_});
  }

  Shape infer(const Shape& x) const override {
    expect_rank(x, 4, kImageAxes);
    expect_channels(x);
    const nn::WindowPadding& padding = options_.padding;
    const std::int64_t height =
        num_windows(x.word(1), kernel_size_.height, options_.strides.height,
                    options_.dilation_rate.height, padding.kind(), padding.rows());
    const std::int64_t width =
        num_windows(x.word(2), kernel_size_.width, options_.strides.width,
                    options_.dilation_rate.width, padding.kind(), padding.columns());
    if (height == 0 || width == 0) reject("an image that is not smaller than the kernel", x);
    return {x.word(0), height, width, filters_};
  }

  nn::Pair kernel_size_;
  Variable depthwise_, pointwise_;
};

}  // namespace

Conv1D::Conv1D(std::int64_t filters, std::int64_t kernel_size, const Conv1DOptions& options)
    : tandem::Layer(std::make_shared<Conv1DLayer>(filters, kernel_size, options)) {}

Conv2DTranspose::Conv2DTranspose(std::int64_t filters, nn::Pair kernel_size,
                                 const Conv2DTransposeOptions& options)
    : tandem::Layer(std::make_shared<Conv2DTransposeLayer>(filters, kernel_size, options)) {}

SeparableConv2D::SeparableConv2D(std::int64_t filters, nn::Pair kernel_size,
                                 const SeparableConv2DOptions& options)
    : tandem::Layer(std::make_shared<SeparableConv2DLayer>(filters, kernel_size, options)) {}

}  // namespace tandem::layers
