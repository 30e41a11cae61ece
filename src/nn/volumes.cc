// Convolution and pooling of volumes, made of those of images.
#include "tandem/volumes.h"

#include <algorithm>
#include <array>

#include "core/dim.h"
#include "core/status.h"
#include "nn/layer_base.h"
#include "ops/math/of_size.h"
#include "ops/nn/window.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace nn {

VolumePadding::VolumePadding(Triple numbers) : kind_(Padding::kExplicit), numbers_(numbers) {
  if (std::min({numbers.depth, numbers.height, numbers.width}) < 0)
    fail<InvalidArgumentError>("[padding] expected numbers of 0 or more, got {}, {} and {}",
                               numbers.depth, numbers.height, numbers.width);
}

namespace {

constexpr const char* kVolumes = "volumes [n, d, h, w, c]";

// The padding of the two axes of images; of explicit padding the given numbers.
WindowPadding plane_of(const VolumePadding& padding, std::int64_t rows, std::int64_t columns) {
  if (padding.kind() != Padding::kExplicit) return padding.kind();
  return {rows, columns};
}

using Pool = Tensor (*)(const Tensor& x, const Pool2DOptions& options);

// Over height and width of each slice, and then over the depth: the first of equal maxima in
// row-major order stays the first, and numbers of elements are products.
Tensor pool_volumes(const char* what, Pool pool, const Tensor& x, const Pool3DOptions& options) {
  if (x.rank() != 5)
    fail<ShapeError>("[{}] expected {}, got shape {}", what, kVolumes, x.shape().to_string());
  const Triple window = options.window, strides = options.strides.value_or(window);
  const Triple& numbers = options.padding.numbers();
  const Tensor slices = pool(reshape(x, {x.dim(0) * x.dim(1), x.dim(2), x.dim(3), x.dim(4)}),
                             {.window = {window.height, window.width},
                              .strides = {strides.height, strides.width},
                              .padding = plane_of(options.padding, numbers.height, numbers.width),
                              .ceil_mode = options.ceil_mode});
  const Dim height = slices.dim(1), width = slices.dim(2);
  const Tensor deep = pool(reshape(slices, {x.dim(0), x.dim(1), height * width, x.dim(4)}),
                           {.window = {window.depth, 1},
                            .strides = {strides.depth, 1},
                            .padding = plane_of(options.padding, numbers.depth, 0),
                            .ceil_mode = options.ceil_mode});
  return reshape(deep, {x.dim(0), deep.dim(1), height, width, x.dim(4)});
}

// The slices that each of `count` windows along the depth meets, as channels: those of a group from
// its first slice, then from its second...
Tensor slices_as_channels(const Tensor& x, const Dim& taps, const Dim& count, std::int64_t stride,
                          std::int64_t dilation, std::int64_t groups) {
  const Dim each = x.dim(4) / groups;
  const auto positions = [](const Dim& number, std::int64_t step) {
    return range(number, {.dtype = int64}) * static_cast<double>(step);
  };
  if (!taps.known()) {
    const Tensor windows =
        gather(x, expand_dims(positions(count, stride), 1) + positions(taps, dilation), 1);
    return transpose(reshape(windows, {x.dim(0), count, taps, x.dim(2), x.dim(3), groups, each}),
                     {0, 1, 3, 4, 5, 2, 6});
  }
  std::vector<Tensor> parts;
  for (std::int64_t tap = 0; tap < std::int64_t(taps); ++tap)
    parts.push_back(
        stride == 1 ? slice(x, {0, tap * dilation, 0, 0, 0}, {-1, count, -1, -1, -1})
                    : gather(x, positions(count, stride) + static_cast<double>(tap * dilation), 1));
  if (parts.size() == 1) return parts[0];
  if (groups == 1) return concat(parts, 4);
  for (Tensor& part : parts)
    part = reshape(part, {x.dim(0) * count, x.dim(2) * x.dim(3), groups, 1, each});
  return concat(parts, 3);
}

}  // namespace

Tensor max_pool3d(const Tensor& x, const Pool3DOptions& options) {
  return pool_volumes("max_pool3d", max_pool2d, x, options);
}
Tensor avg_pool3d(const Tensor& x, const Pool3DOptions& options) {
  return pool_volumes("avg_pool3d", avg_pool2d, x, options);
}

Tensor conv3d(const Tensor& x, const Tensor& kernel, const Tensor& bias,
              const Conv3DOptions& options) {
  if (x.rank() != 5 || kernel.rank() != 5)
    fail<ShapeError>(
        "[conv3d] expected {} and a kernel [kd, kh, kw, in / groups, out], got shapes {} and {}",
        kVolumes, x.shape().to_string(), kernel.shape().to_string());
  const std::int64_t taps = kernel.shape().word(0);
  if (const char* expected = expected_of_windows(
          {options.strides.depth, options.dilations.depth, options.groups, taps}))
    fail<InvalidArgumentError>(
        "[conv3d] expected strides, dilations, groups and a kernel's depth {}, got {}, {}, {} and "
        "{}",
        expected, options.strides.depth, options.dilations.depth, options.groups, Dim(taps));
  if (!dim::may_equal(x.shape().word(4), dim::product(kernel.shape().word(3), options.groups)))
    fail<ShapeError>(
        "[conv3d] expected a kernel of the input channels divided by {} groups for volumes of "
        "shape {}, got shape {}",
        options.groups, x.shape().to_string(), kernel.shape().to_string());
  const std::int64_t number = options.padding.numbers().depth;
  const WindowAxis depth =
      place_windows(x.shape().word(1), taps, options.strides.depth, options.dilations.depth,
                    {options.padding.kind(), number, number});
  if (depth.output == 0)
    fail<ShapeError>("[conv3d] expected volumes as deep as the kernel {}, got shape {}",
                     kernel.shape().to_string(), x.shape().to_string());
  const bool same = options.padding.kind() == Padding::kSame;
  const std::int64_t extent =
      dim::sum(dim::product(dim::difference(taps, 1), options.dilations.depth), 1);
  const std::int64_t least = same ? 1 : dim::difference(extent, 2 * number);
  const Tensor volumes =
      of_least_size("conv3d", "volumes as deep as the kernel, a shape such as", x, 1, least);
  const bool pads = depth.pad_begin != 0 || depth.pad_end != 0;
  const Tensor whole =
      pads ? pad(volumes,
                 std::vector<std::pair<Dim, Dim>>{
                     {0, 0}, {depth.pad_begin, depth.pad_end}, {0, 0}, {0, 0}, {0, 0}})
           : volumes;
  const Dim count(depth.output), channels = x.dim(4), height = x.dim(2), width = x.dim(3);
  const Tensor joined = slices_as_channels(whole, Dim(taps), count, options.strides.depth,
                                           options.dilations.depth, options.groups);
  const Tensor images = reshape(joined, {x.dim(0) * count, height, width, channels * Dim(taps)});
  const Shape& k = kernel.shape();
  const Tensor flat = reshape(transpose(kernel, {1, 2, 0, 3, 4}),
                              {k.dim(1), k.dim(2), k.dim(0) * k.dim(3), k.dim(4)});
  const Triple& numbers = options.padding.numbers();
  const Tensor y = conv2d(images, flat, bias,
                          {.strides = {options.strides.height, options.strides.width},
                           .padding = plane_of(options.padding, numbers.height, numbers.width),
                           .dilations = {options.dilations.height, options.dilations.width},
                           .groups = options.groups,
                           .activation = options.activation});
  return reshape(y, {x.dim(0), count, y.dim(1), y.dim(2), y.dim(3)});
}

}  // namespace nn

namespace layers {
namespace {

constexpr const char* kVolumeAxes = "(batch, depth, height, width, channels)";
using Numbers = std::array<std::int64_t, 3>;

Numbers numbers_of(const nn::Triple& t) { return {t.depth, t.height, t.width}; }
std::string text_of(const nn::Triple& t) {
  return fmt::format("{} x {} x {}", t.depth, t.height, t.width);
}

class VolumeLayer : public UnaryLayer {
 public:
  using UnaryLayer::UnaryLayer;

 protected:
  void expect_positive(const nn::Triple& sizes, const char* what) const {
    if (std::ranges::min(numbers_of(sizes)) <= 0)
      fail<InvalidArgumentError>("[{}] expected a positive {}, got {}", label(), what,
                                 text_of(sizes));
  }
  // The numbers of windows.
  Shape windows_of(const Shape& x, const nn::Triple& size, const nn::Triple& strides,
                   const nn::Triple& dilations, const nn::VolumePadding& padding,
                   std::int64_t channels) const {
    expect_rank(x, 5, kVolumeAxes);
    const Numbers window = numbers_of(size), stride = numbers_of(strides),
                  dilation = numbers_of(dilations), pads = numbers_of(padding.numbers());
    Shape result = x;
    result.set(4, channels);
    for (std::size_t i = 0; i < 3; ++i) {
      const int axis = static_cast<int>(i) + 1;
      const std::int64_t count = num_windows(x.word(axis), window[i], stride[i], dilation[i],
                                             padding.kind(), {pads[i], pads[i]});
      if (count == 0) reject("a volume as large as the windows of " + text_of(size), x);
      result.set(axis, count);
    }
    return result;
  }
};

class Conv3DLayer final : public VolumeLayer {
 public:
  Conv3DLayer(std::int64_t filters, nn::Triple kernel_size, const Conv3DOptions& options)
      : VolumeLayer("conv3d", options),
        filters_(filters),
        kernel_size_(kernel_size),
        options_(options),
        activation_(nn::activation_from_name(options.activation)) {
    if (options.groups <= 0 || filters <= 0 || filters % options.groups != 0)
      fail<InvalidArgumentError>("[{}] expected filters divisible by groups, got {} and {}",
                                 label(), filters, options.groups);
    expect_positive(kernel_size, "kernel size");
    expect_positive(options.strides, "stride");
    expect_positive(options.dilation_rate, "dilation rate");
  }

 private:
  void make_weights(const Shape& x) override {
    static_cast<void>(infer(x));
    channels_ = known_size(x, 4, "channels");
    kernel_ = add_weight("kernel",
                         {kernel_size_.depth, kernel_size_.height, kernel_size_.width,
                          channels_ / options_.groups, filters_},
                         options_.kernel_initializer);
    regularize(kernel_, options_.kernel_regularizer);
    if (!options_.use_bias) return;
    bias_ = add_weight("bias", {filters_}, options_.bias_initializer);
    regularize(bias_, options_.bias_regularizer);
  }
  Tensor run(const Tensor& x, const CallOptions&) override {
    return nn::conv3d(x, kernel_, options_.use_bias ? bias_.value() : Tensor(),
                      {.strides = options_.strides,
                       .padding = options_.padding,
                       .dilations = options_.dilation_rate,
                       .groups = options_.groups,
                       .activation = activation_});
  }
  Shape infer(const Shape& x) const override {
    const Shape result = windows_of(x, kernel_size_, options_.strides, options_.dilation_rate,
                                    options_.padding, filters_);
    if (channels_ >= 0 && x.word(4) >= 0 && x.word(4) != channels_)
      reject(fmt::format("an input of {} channels", channels_), x);
    if (x.word(4) >= 0 && x.word(4) % options_.groups != 0)
      reject(fmt::format("a number of channels divisible by {} groups", options_.groups), x);
    return result;
  }

  std::int64_t filters_;
  nn::Triple kernel_size_;
  Conv3DOptions options_;
  nn::Activation activation_;
  std::int64_t channels_ = -1;
  Variable kernel_, bias_;
};

class Pooling3DLayer final : public VolumeLayer {
 public:
  using Pool = Tensor (*)(const Tensor& x, const nn::Pool3DOptions& options);
  Pooling3DLayer(const char* kind, Pool pool, nn::Triple window, const Pooling3DOptions& options)
      : VolumeLayer(kind, options),
        pool_(pool),
        attributes_{.window = window, .strides = options.strides, .padding = options.padding} {
    expect_positive(window, "window");
    expect_positive(options.strides.value_or(window), "stride");
    const Numbers sizes = numbers_of(window), pads = numbers_of(options.padding.numbers());
    for (std::size_t i = 0; i < 3; ++i)
      if (pads[i] >= sizes[i])
        fail<InvalidArgumentError>("[{}] expected a padding below the window {}, got {}", label(),
                                   text_of(window), text_of(options.padding.numbers()));
  }

 private:
  Tensor run(const Tensor& x, const CallOptions&) override { return pool_(x, attributes_); }
  Shape infer(const Shape& x) const override {
    if (x.rank() != 5) reject(std::string("an input of shape ") + kVolumeAxes, x);
    return windows_of(x, attributes_.window, attributes_.strides.value_or(attributes_.window), 1,
                      attributes_.padding, x.word(4));
  }

  Pool pool_;
  nn::Pool3DOptions attributes_;
};

class GlobalPooling3DLayer final : public UnaryLayer {
 public:
  GlobalPooling3DLayer(const char* kind, bool maximum, const GlobalPooling2DOptions& options)
      : UnaryLayer(kind, options), maximum_(maximum), keepdims_(options.keepdims) {}

 private:
  Tensor run(const Tensor& x, const CallOptions&) override {
    const ReduceOptions volume{.axis = Dims{1, 2, 3}, .keepdims = keepdims_};
    return maximum_ ? reduce_max(x, volume) : reduce_mean(x, volume);
  }
  Shape infer(const Shape& x) const override {
    expect_rank(x, 5, kVolumeAxes);
    return keepdims_ ? Shape{x.word(0), 1, 1, 1, x.word(4)} : Shape{x.word(0), x.word(4)};
  }

  bool maximum_, keepdims_;
};

}  // namespace

Conv3D::Conv3D(std::int64_t filters, nn::Triple kernel_size, const Conv3DOptions& options)
    : tandem::Layer(std::make_shared<Conv3DLayer>(filters, kernel_size, options)) {}

MaxPooling3D::MaxPooling3D(nn::Triple pool_size, const Pooling3DOptions& options)
    : tandem::Layer(
          std::make_shared<Pooling3DLayer>("max_pooling3d", nn::max_pool3d, pool_size, options)) {}

AveragePooling3D::AveragePooling3D(nn::Triple pool_size, const Pooling3DOptions& options)
    : tandem::Layer(std::make_shared<Pooling3DLayer>("average_pooling3d", nn::avg_pool3d, pool_size,
                                                     options)) {}

GlobalAveragePooling3D::GlobalAveragePooling3D(const GlobalPooling2DOptions& options)
    : tandem::Layer(
          std::make_shared<GlobalPooling3DLayer>("global_average_pooling3d", false, options)) {}

GlobalMaxPooling3D::GlobalMaxPooling3D(const GlobalPooling2DOptions& options)
    : tandem::Layer(std::make_shared<GlobalPooling3DLayer>("global_max_pooling3d", true, options)) {
}

}  // namespace layers
}  // namespace tandem
