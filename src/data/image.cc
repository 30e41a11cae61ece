// Functions on images, made of operations.
#include "tandem/image.h"

#include <algorithm>
#include <cmath>

#include "core/dim.h"
#include "core/status.h"
#include "data/resize.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "runtime/placement.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::image {
namespace {

constexpr std::int64_t kHeight = -3, kWidth = -2, kChannels = -1;

void expect_images(const char* function, const Tensor& images) {
  if (images.rank() != 3 && images.rank() != 4)
    fail<ShapeError>(
        "[{}] expected [height, width, channels] or [batch, height, width, channels], got shape {}",
        function, images.shape().to_string());
}

void expect_floating(const char* function, const Tensor& images) {
  expect_images(function, images);
  if (!is_floating(images.dtype()))
    fail<DTypeError>(
        "[{}] expected floating-point images, got {}: convert_image_dtype() makes them", function,
        name_of(images.dtype()));
}

std::int64_t known_size(const char* function, const Tensor& images, std::int64_t axis) {
  return dim::known(function, images.size_word(axis), "the place of each pixel");
}

Tensor flipped_at_random(const char* function, const Tensor& images, std::int64_t axis) {
  expect_images(function, images);
  const Shape each = images.rank() == 4 ? Shape{images.dim(0), 1, 1, 1} : Shape{1, 1, 1};
  return where(random::uniform(each) < 0.5, reverse(images, Dims{axis}), images);
}

// The middle part of an axis.
Tensor middle(const Tensor& images, std::int64_t axis, double fraction) {
  const std::int64_t size = known_size("central_crop", images, axis);
  const auto before =
      static_cast<std::int64_t>((static_cast<double>(size) * (1.0 - fraction)) / 2.0);
  return images.slice(axis, before, size - before);
}

Tensor resized(const Tensor& images, std::int64_t axis, std::int64_t to, bool nearest) {
  const std::int64_t from = known_size("resize", images, axis);
  if (from == to) return images;
  const std::int64_t at = axis + images.rank();
  const data::Taps taps = data::taps(from, to, nearest);
  const Tensor below = gather(images, constant(taps.lower), at);
  if (nearest) return below;
  Dims along;
  for (int i = 0; i < images.rank(); ++i) along.push_back(i == at ? to : 1);
  const Tensor weight = constant(taps.weights, {.dtype = images.dtype(), .shape = Shape(along)});
  return below + (gather(images, constant(taps.upper), at) - below) * weight;
}

// Whether an operation on these images would run now, on the host.
bool run_on_host(const Tensor& images) {
  if (context.graph || is_symbolic(images)) return false;
  DeviceImpl& host = DeviceManager::get().host();
  return &impl_of(images).device() == &host && &place_constant("resize") == &host;
}

// The height and width that `size`'s aspect ratio gives for the image's width and height.
std::pair<std::int64_t, std::int64_t> of_aspect_ratio(std::int64_t height, std::int64_t width,
                                                      const Dims& size) {
  const auto scaled = [](std::int64_t side, std::int64_t by, std::int64_t of) {
    return static_cast<std::int64_t>(static_cast<double>(side) * static_cast<double>(by) /
                                     static_cast<double>(of));
  };
  return {scaled(width, size[0], size[1]), scaled(height, size[1], size[0])};
}

// The largest middle part of the aspect ratio of `size`.
Tensor cropped_to_aspect_ratio(const Tensor& images, const Dims& size) {
  const std::int64_t height = known_size("resize", images, kHeight);
  const std::int64_t width = known_size("resize", images, kWidth);
  const auto [high, wide] = of_aspect_ratio(height, width, size);
  const auto cut = [](const Tensor& x, std::int64_t axis, std::int64_t whole, std::int64_t fits) {
    const std::int64_t kept = std::max<std::int64_t>(std::min(whole, fits), 1);
    const std::int64_t before = (whole - kept) / 2;
    return kept == whole ? x : x.slice(axis, before, before + kept);
  };
  return cut(cut(images, kHeight, height, high), kWidth, width, wide);
}

Tensor padded_to_aspect_ratio(const Tensor& images, const Dims& size, double value) {
  const std::int64_t height = known_size("resize", images, kHeight);
  const std::int64_t width = known_size("resize", images, kWidth);
  const auto [high, wide] = of_aspect_ratio(height, width, size);
  using Sides = std::pair<std::int64_t, std::int64_t>;
  const auto around = [](std::int64_t whole, std::int64_t wanted) {
    const std::int64_t more = std::max<std::int64_t>(wanted - whole, 0);
    return Sides{more / 2, more - more / 2};
  };
  std::vector<Sides> sides{around(height, high), around(width, wide), {0, 0}};
  if (images.rank() == 4) sides.insert(sides.begin(), Sides{0, 0});
  return pad(images, sides, value);
}

}  // namespace

Tensor flip_left_right(const Tensor& images) {
  expect_images("flip_left_right", images);
  return reverse(images, Dims{kWidth});
}
Tensor flip_up_down(const Tensor& images) {
  expect_images("flip_up_down", images);
  return reverse(images, Dims{kHeight});
}
Tensor random_flip_left_right(const Tensor& images) {
  return flipped_at_random("random_flip_left_right", images, kWidth);
}
Tensor random_flip_up_down(const Tensor& images) {
  return flipped_at_random("random_flip_up_down", images, kHeight);
}

Tensor central_crop(const Tensor& images, double central_fraction) {
  expect_images("central_crop", images);
  if (!(central_fraction > 0.0 && central_fraction <= 1.0))
    fail<InvalidArgumentError>("[central_crop] expected a fraction in (0, 1], got {}",
                               central_fraction);
  return middle(middle(images, kHeight, central_fraction), kWidth, central_fraction);
}

Tensor random_crop(const Tensor& value, const Sizes& size) {
  const Dims& parts = size.words();
  if (parts.size() != value.rank())
    fail<ShapeError>("[random_crop] expected a size for each axis of shape {}, got {}",
                     value.shape().to_string(), parts.size());
  Tensor result = value;
  for (int axis = 0; axis < value.rank(); ++axis) {
    const std::int64_t whole = value.size_word(axis), part = parts[axis];
    if (whole == part) continue;
    const std::int64_t known = dim::known("random_crop", whole, "the place of the part");
    if (part < 0 || part > known)
      fail<InvalidArgumentError>("[random_crop] expected at most {} along axis {}, got {}", known,
                                 axis, part);
    const Tensor first =
        random::uniform_int(Shape::scalar(), 0, known - part + 1, {.dtype = int64});
    result = gather(result, range(Dim(part), {.dtype = int64}) + first, axis);
  }
  return result;
}

Tensor rgb_to_grayscale(const Tensor& images) {
  expect_floating("rgb_to_grayscale", images);
  if (!dim::may_equal(images.size_word(kChannels), 3))
    fail<ShapeError>("[rgb_to_grayscale] expected 3 channels, got shape {}",
                     images.shape().to_string());
  const Tensor weights = constant({0.2989, 0.587, 0.114}, {.dtype = images.dtype()});
  return reduce_sum(images * weights, {.axis = kChannels, .keepdims = true});
}

Tensor grayscale_to_rgb(const Tensor& images) {
  expect_images("grayscale_to_rgb", images);
  if (!dim::may_equal(images.size_word(kChannels), 1))
    fail<ShapeError>("[grayscale_to_rgb] expected 1 channel, got shape {}",
                     images.shape().to_string());
  return concat({images, images, images}, images.rank() - 1);
}

Tensor adjust_brightness(const Tensor& images, double delta) {
  expect_floating("adjust_brightness", images);
  return images + delta;
}

Tensor adjust_contrast(const Tensor& images, double contrast_factor) {
  expect_floating("adjust_contrast", images);
  const Tensor mean = reduce_mean(images, {.axis = {kHeight, kWidth}, .keepdims = true});
  return (images - mean) * contrast_factor + mean;
}

Tensor per_image_standardization(const Tensor& images) {
  expect_floating("per_image_standardization", images);
  double count = 1.0;
  for (const std::int64_t axis : {kHeight, kWidth, kChannels})
    count *= static_cast<double>(known_size("per_image_standardization", images, axis));
  const ReduceOptions each = {.axis = {kHeight, kWidth, kChannels}, .keepdims = true};
  const Tensor deviation = maximum(reduce_std(images, each), 1.0 / std::sqrt(count));
  return (images - reduce_mean(images, each)) / deviation;
}

Tensor resize(const Tensor& images, const Sizes& size, const ResizeOptions& options) {
  const bool nearest = options.method == "nearest";
  if (!nearest && options.method != "bilinear")
    fail<InvalidArgumentError>(
        "[resize] expected the method \"bilinear\" or \"nearest\", got \"{}\"", options.method);
  const bool pixels = images.dtype() == uint8;
  nearest || pixels ? expect_images("resize", images) : expect_floating("resize", images);
  const Dims& sizes = size.words();
  if (sizes.size() != 2 || sizes[0] < 1 || sizes[1] < 1)
    throw InvalidArgumentError("[resize] expected a height and a width of at least 1");
  if (options.crop_to_aspect_ratio && options.pad_to_aspect_ratio)
    throw InvalidArgumentError(
        "[resize] expected one of crop_to_aspect_ratio and pad_to_aspect_ratio, got both");
  Tensor x = images;
  if (options.crop_to_aspect_ratio) x = cropped_to_aspect_ratio(x, sizes);
  if (pixels && !nearest) {
    if (!options.pad_to_aspect_ratio && x.num_elements() > 0 && run_on_host(x))
      return data::resized_pixels(x, sizes[0], sizes[1]);
    x = cast(x, float32);
  }
  if (options.pad_to_aspect_ratio) x = padded_to_aspect_ratio(x, sizes, options.fill_value);
  return resized(resized(x, kHeight, sizes[0], nearest), kWidth, sizes[1], nearest);
}

Tensor convert_image_dtype(const Tensor& images, DType dtype) {
  if (images.dtype() == dtype) return images;
  if (images.dtype() == uint8 && is_floating(dtype)) return cast(images, dtype) / 255.0;
  if (is_floating(images.dtype()) && dtype == uint8)
    return cast(round(clip_by_value(images, 0.0, 1.0) * 255.0), uint8);
  if (is_floating(images.dtype()) && is_floating(dtype)) return cast(images, dtype);
  fail<DTypeError>("[convert_image_dtype] expected uint8 and floating-point dtypes, got {} and {}",
                   name_of(images.dtype()), name_of(dtype));
}

}  // namespace tandem::image
