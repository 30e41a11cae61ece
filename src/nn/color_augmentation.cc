// Layers that change the colours of images, and mixtures of images.
#include <array>
#include <cmath>

#include "nn/image_layer.h"
#include "ops/math/of_size.h"
#include "tandem/augmentation.h"
#include "tandem/creation.h"
#include "tandem/image.h"

namespace tandem::layers {
namespace {

using Limits = std::pair<double, double>;

void expect_limits(const char* kind, const char* what, const Limits& limits, double low,
                   double high) {
  if (!(limits.first >= low && limits.first <= limits.second && limits.second <= high))
    fail<InvalidArgumentError>("[{}] expected {} that increases within [{}, {}], got {} and {}",
                               kind, what, low, high, limits.first, limits.second);
}

Tensor limited(const Tensor& images, const Limits& range) {
  return clip_by_value(images, range.first, range.second);
}

Tensor mean_of_channels(const Tensor& images) {
  return reduce_mean(images, {.axis = {1, 2}, .keepdims = true});
}

tandem::Layer brightness(const FactorRange& factor, const RandomColorOptions& options) {
  constexpr const char* kKind = "random_brightness";
  expect_limits(kKind, "a factor", {factor.lower(), factor.upper()}, -1.0, 1.0);
  const auto change = [factor, range = options.value_range, seed = options.seed](const Tensor& x) {
    const double width = range.second - range.first;
    const Tensor added =
        for_each_image(x, factor.lower() * width, factor.upper() * width, {.seed = seed});
    return limited(x + added.to(x.dtype()), range);
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, {}});
}

tandem::Layer contrast(const FactorRange& factor, const RandomColorOptions& options) {
  constexpr const char* kKind = "random_contrast";
  const double lower = factor.symmetric() ? factor.upper() : factor.lower();
  if (!(lower >= 0.0 && lower <= 1.0 && factor.upper() >= 0.0))
    fail<InvalidArgumentError>(
        "[{}] expected a lower limit in [0, 1] and an upper one of at least 0, got {} and {}",
        kKind, lower, factor.upper());
  const auto change = [lower, upper = factor.upper(), range = options.value_range,
                       seed = options.seed](const Tensor& x) {
    const Tensor by = for_each_image(x, 1.0 - lower, 1.0 + upper, {.seed = seed}).to(x.dtype());
    const Tensor mean = mean_of_channels(x);
    return limited((x - mean) * by + mean, range);
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, {}});
}

// The colours of [0, 1] with the hue turned by `turns` [batch, 1, 1, 1], at the same largest and
// smallest channel.
Tensor with_hue(const Tensor& images, const Tensor& turns) {
  const std::vector<Tensor> rgb = split(images, 3, {.axis = 3});
  const Tensor &r = rgb[0], &g = rgb[1], &b = rgb[2];
  const Tensor high = reduce_max(images, {.axis = {3}, .keepdims = true});
  const Tensor low = reduce_min(images, {.axis = {3}, .keepdims = true});
  const Tensor range = high - low;
  const Tensor some = where(range > 0.0, range, 1.0);
  // The position on the circle of six edges from red over green to blue.
  const Tensor sixths = where(equal(high, r), (g - b) / some,
                              where(equal(high, g), (b - r) / some + 2.0, (r - g) / some + 4.0));
  const Tensor turned = floor_mod(sixths + turns * 6.0, 6.0);
  std::vector<Tensor> channels;
  for (const double offset : {5.0, 3.0, 1.0}) {
    const Tensor place = floor_mod(turned + offset, 6.0);
    channels.push_back(high - range * clip_by_value(minimum(place, 4.0 - place), 0.0, 1.0));
  }
  return concat(channels, 3);
}

tandem::Layer jitter(const ColorJitterOptions& options) {
  constexpr const char* kKind = "color_jitter";
  for (const auto& [name, strength, most] : {std::tuple{"brightness", options.brightness, HUGE_VAL},
                                             std::tuple{"contrast", options.contrast, HUGE_VAL},
                                             std::tuple{"saturation", options.saturation, HUGE_VAL},
                                             std::tuple{"hue", options.hue, 0.5}})
    if (!(strength >= 0.0 && strength <= most))
      fail<InvalidArgumentError>("[{}] expected a {} of [0, {}], got {}", kKind, name, most,
                                 strength);
  const auto change = [options](const Tensor& images) {
    const auto factor = [&](double strength) {
      return for_each_image(images, std::max(0.0, 1.0 - strength), 1.0 + strength,
                            {.seed = options.seed})
          .to(images.dtype());
    };
    const auto& [low, high] = options.value_range;
    Tensor x = (images - low) / (high - low);
    const auto blended = [&](const Tensor& other, double strength) {
      const Tensor part = factor(strength);
      return clip_by_value(x * part + other * (1.0 - part), 0.0, 1.0);
    };
    if (options.brightness > 0.0) x = clip_by_value(x * factor(options.brightness), 0.0, 1.0);
    if (options.contrast > 0.0)
      x = blended(mean_of_channels(image::rgb_to_grayscale(x)), options.contrast);
    if (options.saturation > 0.0) x = blended(image::rgb_to_grayscale(x), options.saturation);
    if (options.hue > 0.0)
      x = with_hue(x, for_each_image(images, -options.hue, options.hue, {.seed = options.seed})
                          .to(images.dtype()));
    return x * (high - low) + low;
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, {}},
                                      ImageLayer::Size(), 3);
}

// Whether pixels are in the rectangle of their image, a bool tensor [batch, height, width, 1], and
// the part of its area that this is: float32 [batch, 1, 1, 1].
struct Rectangle {
  Tensor inside, area;
};

// A rectangle at a random place, with these fractions of the height and the width: [batch, 1, 1,
// 1].
Rectangle random_rectangle(const char* kind, const Tensor& images, const Tensor& height,
                           const Tensor& width, const random::Options& options) {
  const auto along = [&](int axis, const Tensor& fraction) {
    const std::int64_t size = known_axis(kind, images, axis);
    const Tensor length = fraction * static_cast<double>(size);
    const Tensor first =
        for_each_image(images, 0.0, 1.0, options) * (static_cast<double>(size) - length);
    const Tensor place = reshape(range(static_cast<double>(size)),
                                 {1, axis == 1 ? size : 1, axis == 2 ? size : 1, 1});
    return logical_and(place >= first, place < first + length);
  };
  return {logical_and(along(1, height), along(2, width)), height * width};
}

tandem::Layer erasing(const FactorRange& factor, const RandomErasingOptions& options) {
  constexpr const char* kKind = "random_erasing";
  const double lower = factor.symmetric() ? 0.0 : factor.lower();
  expect_limits(kKind, "a factor", {lower, factor.upper()}, 0.0, 1.0);
  expect_limits(kKind, "a scale", options.scale, 0.0, 1.0);
  const auto change = [lower, upper = factor.upper(), options](const Tensor& images) {
    const random::Options seeded{.seed = options.seed};
    const auto side = [&] {
      return sqrt(for_each_image(images, options.scale.first, options.scale.second, seeded));
    };
    const Tensor height = side(), width = side();
    const Tensor inside = random_rectangle(kKind, images, height, width, seeded).inside;
    const Tensor erases =
        for_each_image(images, 0.0, 1.0, seeded) < for_each_image(images, lower, upper, seeded);
    const Tensor pixels =
        options.fill_value ? full(images.shape(), *options.fill_value, images.dtype())
                           : random::normal(images.shape(), 0.0, options.value_range.second, seeded)
                                 .to(images.dtype());
    return where(logical_and(inside, erases), limited(pixels, options.value_range), images);
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, {}});
}

// The continued fraction of the incomplete beta function, for x below the mean (Press et al. 2007).
double beta_fraction(double a, double x) {
  constexpr double kTiny = 1e-300;
  double c = 1.0, d = 1.0 - 2.0 * a * x / (a + 1.0);
  d = 1.0 / (std::abs(d) < kTiny ? kTiny : d);
  double result = d;
  for (int m = 1; m < 300; ++m) {
    for (const double term : {m * (a - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                              -(a + m) * (2 * a + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      d = 1.0 + term * d;
      c = 1.0 + term / c;
      d = 1.0 / (std::abs(d) < kTiny ? kTiny : d);
      if (std::abs(c) < kTiny) c = kTiny;
      result *= d * c;
    }
    if (std::abs(d * c - 1.0) < 1e-12) break;
  }
  return result;
}

// The numbers below which a sample of Beta(alpha, alpha) is with probability 0, 1/n, ..., 1.
std::vector<float> beta_quantiles(const char* kind, double alpha) {
  if (!(alpha > 0.0) || !std::isfinite(alpha))
    fail<InvalidArgumentError>("[{}] expected a positive alpha, got {}", kind, alpha);
  constexpr std::size_t kParts = 4096;
  const double log_beta = 2.0 * std::lgamma(alpha) - std::lgamma(2.0 * alpha);
  const auto probability = [&](double log_x) {  // of numbers up to x <= 1/2
    const double x = std::exp(log_x);
    return std::exp(alpha * (log_x + std::log1p(-x)) - log_beta) * beta_fraction(alpha, x) / alpha;
  };
  std::vector<float> quantiles(kParts + 1);
  for (std::size_t i = 1; i <= kParts / 2; ++i) {
    const double wanted = static_cast<double>(i) / static_cast<double>(kParts);
    double low = -700.0, high = std::log(0.5);
    for (int step = 0; step < 60; ++step) {
      const double middle = (low + high) / 2.0;
      (probability(middle) < wanted ? low : high) = middle;
    }
    quantiles[i] = static_cast<float>(std::exp(high));
  }
  for (std::size_t i = 0; i < kParts / 2; ++i) quantiles[kParts - i] = 1.0f - quantiles[i];
  return quantiles;
}

// Samples [batch, 1, 1, 1] of the distribution of these quantiles.
Tensor sampled(const std::vector<float>& quantiles, const Tensor& images,
               const random::Options& options) {
  const auto parts = static_cast<double>(quantiles.size() - 1);
  const Tensor place = for_each_image(images, 0.0, parts, options);
  const Tensor below = minimum(floor(place), parts - 1.0), part = place - below;
  const Tensor index = cast(below, int64), table = constant(quantiles);
  return gather(table, index) * (1.0 - part) + gather(table, index + 1.0) * part;
}

// The labels, of which there is one for each image.
Tensor labels_of(const char* kind, const Tensor& images, const Tensor& labels) {
  if (images.rank() != 4)
    fail<ShapeError>("[{}] expected images [batch, height, width, channels], got shape {}", kind,
                     images.shape().to_string());
  if (!is_floating(labels.dtype()))
    fail<DTypeError>(
        "[{}] expected labels as floating-point vectors of classes, got {}: "
        "td::one_hot(y, classes) makes them",
        kind, name_of(labels.dtype()));
  if (labels.rank() < 1 || !may_agree(labels.shape().word(0), images.shape().word(0)))
    fail<ShapeError>("[{}] expected a label for each image of shape {}, got shape {}", kind,
                     images.shape().to_string(), labels.shape().to_string());
  return of_size(kind, "a label for each image, a shape of", labels, 0, images.dim(0));
}

// a * weight + b * (1 - weight), where the weights are [batch, 1, 1, 1].
Tensor mixed(const Tensor& a, const Tensor& b, const Tensor& weight) {
  Dims sizes{-1};
  for (int axis = 1; axis < a.rank(); ++axis) sizes.push_back(1);
  const Tensor part = reshape(weight, Shape(sizes)).to(a.dtype());
  return a * part + b * (1.0 - part);
}

Tensor floating(const Tensor& images) {
  return is_floating(images.dtype()) ? images : cast(images, float32);
}

template <class Mix>
data::Example of_example(const char* kind, const Mix& mix, const data::Example& batch) {
  if (batch.size() != 2)
    fail<InvalidArgumentError>("[{}] expected a batch of images and labels, got {} components",
                               kind, batch.size());
  const auto [images, labels] = mix(batch[0], batch[1]);
  return {images, labels};
}

}  // namespace

RandomBrightness::RandomBrightness(FactorRange factor, const RandomColorOptions& options)
    : tandem::Layer(brightness(factor, options)) {}
RandomContrast::RandomContrast(FactorRange factor, const RandomColorOptions& options)
    : tandem::Layer(contrast(factor, options)) {}
ColorJitter::ColorJitter(const ColorJitterOptions& options) : tandem::Layer(jitter(options)) {}
RandomErasing::RandomErasing(FactorRange factor, const RandomErasingOptions& options)
    : tandem::Layer(erasing(factor, options)) {}

MixUp::MixUp(double alpha, const MixOptions& options)
    : quantiles_(beta_quantiles("MixUp", alpha)), options_(options) {}
data::Example MixUp::operator()(const data::Example& batch) const {
  return of_example("MixUp", *this, batch);
}
std::pair<Tensor, Tensor> MixUp::operator()(const Tensor& images, const Tensor& given) const {
  const Tensor labels = labels_of("MixUp", images, given);
  const Tensor x = floating(images), order = random::permutation(images.dim(0));
  const Tensor weight = sampled(quantiles_, x, {.seed = options_.seed});
  return {mixed(x, gather(x, order), weight), mixed(labels, gather(labels, order), weight)};
}

CutMix::CutMix(double alpha, const MixOptions& options)
    : quantiles_(beta_quantiles("CutMix", alpha)), options_(options) {}
data::Example CutMix::operator()(const data::Example& batch) const {
  return of_example("CutMix", *this, batch);
}
std::pair<Tensor, Tensor> CutMix::operator()(const Tensor& images, const Tensor& given) const {
  const Tensor labels = labels_of("CutMix", images, given);
  const Tensor x = floating(images), order = random::permutation(images.dim(0));
  const random::Options seeded{.seed = options_.seed};
  const Tensor side = sqrt(1.0 - sampled(quantiles_, x, seeded));
  const auto [inside, area] = random_rectangle("CutMix", x, side, side, seeded);
  return {where(inside, gather(x, order), x), mixed(labels, gather(labels, order), 1.0 - area)};
}

}  // namespace tandem::layers
