// Conv2D and DepthwiseConv2D.
#include "nn/layer_base.h"

namespace tandem::layers {
namespace {

// The common part of both layers: the window's geometry, kernel and bias.
class ConvolutionLayer : public UnaryLayer {
 public:
  template <class Options>
  ConvolutionLayer(const char* kind, nn::Pair kernel_size, const Options& options)
      : UnaryLayer(kind, options),
        kernel_size_(kernel_size),
        attributes_{.strides = options.strides,
                    .padding = options.padding,
                    .dilations = options.dilation_rate,
                    .activation = nn::activation_from_name(options.activation)},
        use_bias_(options.use_bias),
        kernel_initializer_(options.kernel_initializer),
        bias_initializer_(options.bias_initializer),
        bias_regularizer_(options.bias_regularizer) {
    if constexpr (requires { options.kernel_regularizer; })
      kernel_regularizer_ = options.kernel_regularizer;
    else
      kernel_regularizer_ = options.depthwise_regularizer;
    expect_positive(kernel_size, "kernel size");
    expect_positive(options.strides, "stride");
    expect_positive(options.dilation_rate, "dilation rate");
  }

 protected:
  virtual Shape kernel_shape(std::int64_t channels) const = 0;
  virtual std::int64_t output_channels(const Shape& x) const = 0;

  void make_weights(const Shape& x) final {
    const std::int64_t outputs = infer(x)[3];
    channels_ = known_size(x, 3, "channels");
    kernel_ = add_weight("kernel", kernel_shape(channels_), kernel_initializer_);
    regularize(kernel_, kernel_regularizer_);
    if (!use_bias_) return;
    bias_ = add_weight("bias", {outputs}, bias_initializer_);
    regularize(bias_, bias_regularizer_);
  }

  Shape infer(const Shape& x) const final {
    expect_rank(x, 4, kImageAxes);
    if (channels_ >= 0 && x.word(3) >= 0 && x.word(3) != channels_)
      fail<InvalidArgumentError>("[{}] expected an input of {} channels, got {}{}", label(),
                                 channels_, x.to_string(), channels_first_advice(x, channels_));
    const auto& a = attributes_;
    const nn::Padding kind = a.padding.kind();
    const std::int64_t height = num_windows(x.word(1), kernel_size_.height, a.strides.height,
                                            a.dilations.height, kind, a.padding.rows());
    const std::int64_t width = num_windows(x.word(2), kernel_size_.width, a.strides.width,
                                           a.dilations.width, kind, a.padding.columns());
    if (height == 0 || width == 0)
      reject(fmt::format("an image of at least {} x {}{}",
                         (kernel_size_.height - 1) * a.dilations.height + 1,
                         (kernel_size_.width - 1) * a.dilations.width + 1,
                         kind == nn::Padding::kExplicit ? " with its padding" : ""),
             x);
    return {x.word(0), height, width, output_channels(x)};
  }

  Tensor bias() const { return use_bias_ ? bias_.value() : Tensor(); }
  void expect_positive(nn::Pair pair, const char* what) const {
    if (pair.height <= 0 || pair.width <= 0)
      fail<InvalidArgumentError>("[{}] expected a positive {}, got {} x {}", label(), what,
                                 pair.height, pair.width);
  }

  nn::Pair kernel_size_;
  nn::Conv2DOptions attributes_;
  Variable kernel_;

 private:
  bool use_bias_;
  Initializer kernel_initializer_;
  Initializer bias_initializer_;
  Regularizer kernel_regularizer_;
  Regularizer bias_regularizer_;
  std::int64_t channels_ = -1;
  Variable bias_;
};

class Conv2DLayer final : public ConvolutionLayer {
 public:
  Conv2DLayer(std::int64_t filters, nn::Pair kernel_size, const Conv2DOptions& options)
      : ConvolutionLayer("conv2d", kernel_size, options), filters_(filters) {
    attributes_.groups = options.groups;
    if (options.groups <= 0 || filters <= 0 || filters % options.groups != 0)
      fail<InvalidArgumentError>("[conv2d] expected filters divisible by groups, got {} and {}",
                                 filters, options.groups);
  }

 private:
  Shape kernel_shape(std::int64_t channels) const override {
    return {kernel_size_.height, kernel_size_.width, channels / attributes_.groups, filters_};
  }
  std::int64_t output_channels(const Shape& x) const override {
    if (x.word(3) >= 0 && x.word(3) % attributes_.groups != 0)
      reject(fmt::format("a number of channels divisible by {} groups", attributes_.groups), x);
    return filters_;
  }
  Tensor run(const Tensor& x, const CallOptions&) override {
    return nn::conv2d(x, kernel_, bias(), attributes_);
  }

  std::int64_t filters_;
};

class DepthwiseConv2DLayer final : public ConvolutionLayer {
 public:
  DepthwiseConv2DLayer(nn::Pair kernel_size, const DepthwiseConv2DOptions& options)
      : ConvolutionLayer("depthwise_conv2d", kernel_size, options),
        multiplier_(options.depth_multiplier) {
    if (multiplier_ <= 0)
      fail<InvalidArgumentError>("[depthwise_conv2d] expected a positive depth multiplier, got {}",
                                 multiplier_);
  }

 private:
  Shape kernel_shape(std::int64_t channels) const override {
    return {kernel_size_.height, kernel_size_.width, channels, multiplier_};
  }
  std::int64_t output_channels(const Shape& x) const override {
    return x.word(3) < 0 ? -1 : x.word(3) * multiplier_;
  }
  Tensor run(const Tensor& x, const CallOptions&) override {
    return nn::depthwise_conv2d(x, kernel_, bias(), attributes_);
  }

  std::int64_t multiplier_;
};

}  // namespace

Conv2D::Conv2D(std::int64_t filters, nn::Pair kernel_size, const Conv2DOptions& options)
    : tandem::Layer(std::make_shared<Conv2DLayer>(filters, kernel_size, options)) {}

DepthwiseConv2D::DepthwiseConv2D(nn::Pair kernel_size, const DepthwiseConv2DOptions& options)
    : tandem::Layer(std::make_shared<DepthwiseConv2DLayer>(kernel_size, options)) {}

}  // namespace tandem::layers
