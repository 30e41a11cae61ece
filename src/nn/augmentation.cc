// Layers that move, rotate, crop and resize images.
#include "tandem/augmentation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "nn/image_layer.h"
#include "nn/targets.h"
#include "tandem/creation.h"
#include "tandem/image.h"

namespace tandem::layers {
namespace {

constexpr int kHeight = 1, kWidth = 2, kChannels = 3;

enum class Fill { kReflect, kWrap, kNearest, kConstant };

Fill fill_from_name(const char* kind, const std::string& name) {
  constexpr std::pair<const char*, Fill> kModes[] = {{"reflect", Fill::kReflect},
                                                     {"wrap", Fill::kWrap},
                                                     {"nearest", Fill::kNearest},
                                                     {"constant", Fill::kConstant}};
  for (const auto& [mode, fill] : kModes)
    if (name == mode) return fill;
  fail<InvalidArgumentError>(
      "[{}] expected fill_mode 'reflect', 'wrap', 'nearest' or 'constant', got '{}'", kind, name);
}

bool is_bilinear(const char* kind, const std::string& interpolation) {
  if (interpolation != "bilinear" && interpolation != "nearest")
    fail<InvalidArgumentError>("[{}] expected interpolation 'bilinear' or 'nearest', got '{}'",
                               kind, interpolation);
  return interpolation == "bilinear";
}

// How pixels are taken at places between and beyond those of an image.
struct Sampling {
  const char* kind;
  bool bilinear = true;
  Fill fill = Fill::kReflect;
  double fill_value = 0.0;

  // Pixels [batch, h, w, channels] of images at rows and columns, float32 [batch or 1, h or 1, w or
  // 1].
  Tensor operator()(const Tensor& images, const Tensor& rows, const Tensor& columns) const {
    const std::int64_t height = known_axis(kind, images, kHeight);
    const std::int64_t width = known_axis(kind, images, kWidth);
    const std::int64_t channels = known_axis(kind, images, kChannels);
    const Tensor pixels = reshape(images, {-1, channels});
    const Tensor first =
        reshape(range(images.dim(0), {.dtype = int64}) * static_cast<double>(height * width),
                {images.dim(0), 1, 1});
    const auto at = [&](const Tensor& row, const Tensor& column) {
      const Tensor found = gather(
          pixels, first + within(row, height) * static_cast<double>(width) + within(column, width));
      if (fill != Fill::kConstant) return found;
      const Tensor inside = logical_and(is_within(row, height), is_within(column, width));
      return where(expand_dims(inside, -1), found, fill_value);
    };
    if (!bilinear) return at(cast(round(rows), int64), cast(round(columns), int64));
    const Tensor above = floor(rows), left = floor(columns);
    const Tensor row = cast(above, int64), column = cast(left, int64);
    const DType dtype = images.dtype();
    const Tensor down = expand_dims(rows - above, -1).to(dtype);
    const Tensor right = expand_dims(columns - left, -1).to(dtype);
    const auto between = [](const Tensor& a, const Tensor& b, const Tensor& part) {
      return a * (1.0 - part) + b * part;
    };
    return between(between(at(row, column), at(row, column + 1.0), right),
                   between(at(row + 1.0, column), at(row + 1.0, column + 1.0), right), down);
  }

 private:
  static Tensor is_within(const Tensor& place, std::int64_t size) {
    return logical_and(place >= 0.0, place < static_cast<double>(size));
  }
  Tensor within(const Tensor& place, std::int64_t size) const {
    const auto length = static_cast<double>(size);
    if (fill == Fill::kWrap) return floor_mod(place, length);
    if (fill != Fill::kReflect) return minimum(maximum(place, 0.0), length - 1.0);
    const Tensor folded = floor_mod(place, 2.0 * length);
    return minimum(folded, 2.0 * length - 1.0 - folded);
  }
};

// 0, 1, ..., count - 1 along `axis` of a tensor of three axes.
Tensor places(std::int64_t count, int axis) {
  return reshape(range(static_cast<double>(count)),
                 {axis == 0 ? count : 1, axis == 1 ? count : 1, axis == 2 ? count : 1});
}

// Takes the pixel (x, y) of each result from (a x + b y + c, d x + e y + f) of its image, relative
// to the centre; the coefficients have the shape [batch, 1, 1].
struct Affine {
  Tensor a, b, c, d, e, f;
};
Tensor transformed(const Tensor& images, const Affine& map, const Sampling& sampling) {
  const std::int64_t height = known_axis(sampling.kind, images, kHeight);
  const std::int64_t width = known_axis(sampling.kind, images, kWidth);
  const double x_centre = static_cast<double>(width - 1) / 2.0;
  const double y_centre = static_cast<double>(height - 1) / 2.0;
  const Tensor x = places(width, 2) - x_centre, y = places(height, 1) - y_centre;
  return sampling(images, map.d * x + map.e * y + map.f + y_centre,
                  map.a * x + map.b * y + map.c + x_centre);
}

template <class Options>
Sampling sampling_of(const char* kind, const Options& options) {
  return {kind, is_bilinear(kind, options.interpolation), fill_from_name(kind, options.fill_mode),
          options.fill_value};
}

void expect_range(const char* kind, const FactorRange& factor, double low, double high) {
  if (!(factor.lower() >= low && factor.lower() <= factor.upper() && factor.upper() <= high))
    fail<InvalidArgumentError>("[{}] expected factors that increase within [{}, {}], got {} and {}",
                               kind, low, high, factor.lower(), factor.upper());
}

Tensor factor_for_each(const Tensor& images, const FactorRange& factor, double plus,
                       std::optional<std::uint64_t> seed) {
  return random::uniform({images.dim(0), 1, 1}, factor.lower() + plus, factor.upper() + plus,
                         {.seed = seed});
}

tandem::Layer rotation(const FactorRange& factor, const RandomTransformOptions& options) {
  constexpr const char* kKind = "random_rotation";
  expect_range(kKind, factor, -1.0, 1.0);
  const auto change = [factor, seed = options.seed,
                       sampling = sampling_of(kKind, options)](const Tensor& images) {
    const Tensor angle = factor_for_each(images, factor, 0.0, seed) * (2.0 * std::numbers::pi);
    const Tensor c = cos(angle), s = sin(angle), none = zeros_like(angle);
    return transformed(images, {c, -s, none, s, c, none}, sampling);
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, {}});
}

tandem::Layer zoom(const FactorRange& height, const RandomZoomOptions& options) {
  constexpr const char* kKind = "random_zoom";
  const std::optional<FactorRange>& width = options.width_factor;
  expect_range(kKind, height, -1.0, 1.0);
  if (width) expect_range(kKind, *width, -1.0, 1.0);
  const auto change = [height, width, seed = options.seed,
                       sampling = sampling_of(kKind, options)](const Tensor& images) {
    const Tensor rows = factor_for_each(images, height, 1.0, seed);
    const Tensor columns = width ? factor_for_each(images, *width, 1.0, seed) : rows;
    const Tensor none = zeros_like(rows);
    return transformed(images, {columns, none, none, none, rows, none}, sampling);
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, {}});
}

tandem::Layer translation(const FactorRange& height, const FactorRange& width,
                          const RandomTransformOptions& options) {
  constexpr const char* kKind = "random_translation";
  expect_range(kKind, height, -1.0, 1.0);
  expect_range(kKind, width, -1.0, 1.0);
  const auto change = [height, width, seed = options.seed,
                       sampling = sampling_of(kKind, options)](const Tensor& images) {
    const auto pixels = [&](const FactorRange& factor, int axis) {
      return factor_for_each(images, factor, 0.0, seed) *
             static_cast<double>(known_axis(kKind, images, axis));
    };
    const Tensor rows = pixels(height, kHeight), columns = pixels(width, kWidth);
    const Tensor one = ones_like(rows), none = zeros_like(rows);
    return transformed(images, {one, none, -columns, none, one, -rows}, sampling);
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, {}});
}

struct Size {
  std::int64_t height, width;
};

Size checked_size(const char* kind, std::int64_t height, std::int64_t width) {
  if (height < 1 || width < 1)
    fail<InvalidArgumentError>("[{}] expected a height and a width of at least 1, got {} and {}",
                               kind, height, width);
  return {height, width};
}

Tensor part(const Tensor& images, std::int64_t top, std::int64_t left, const Size& size) {
  return slice(images, {0, top, left, 0}, {-1, size.height, size.width, -1});
}

Size size_of_images(const char* kind, const Tensor& images) {
  return {known_axis(kind, images, kHeight), known_axis(kind, images, kWidth)};
}

Tensor cropped_and_resized(const char* kind, const Tensor& images, const Size& size) {
  static_cast<void>(size_of_images(kind, images));
  return image::resize(images, {size.height, size.width}, {.crop_to_aspect_ratio = true});
}

bool fits(const Size& image, const Size& size) {
  return image.height >= size.height && image.width >= size.width;
}

tandem::Layer random_crop(const Size& size, const CropOptions& options) {
  constexpr const char* kKind = "random_crop";
  const auto outside = [size](const Tensor& images) {
    return cropped_and_resized(kKind, images, size);
  };
  const auto change = [size, outside, seed = options.seed](const Tensor& images) {
    const Size image = size_of_images(kKind, images);
    if (!fits(image, size)) return outside(images);
    const auto along = [&](const Tensor& x, int axis, std::int64_t whole, std::int64_t kept) {
      const Tensor first =
          random::uniform_int(Shape::scalar(), 0, whole - kept + 1, {.dtype = int64, .seed = seed});
      return gather(x, range(Dim(kept), {.dtype = int64}) + first, axis);
    };
    return along(along(images, kHeight, image.height, size.height), kWidth, image.width,
                 size.width);
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, outside},
                                      std::pair(size.height, size.width));
}

tandem::Layer center_crop(const Size& size, const CropOptions& options) {
  constexpr const char* kKind = "center_crop";
  const auto change = [size](const Tensor& images) {
    const Size image = size_of_images(kKind, images);
    if (!fits(image, size)) return cropped_and_resized(kKind, images, size);
    return part(images, (image.height - size.height) / 2, (image.width - size.width) / 2, size);
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, change},
                                      std::pair(size.height, size.width));
}

tandem::Layer resizing(const Size& size, const ResizingOptions& options) {
  constexpr const char* kKind = "resizing";
  is_bilinear(kKind, options.interpolation);
  if (options.crop_to_aspect_ratio && options.pad_to_aspect_ratio)
    fail<InvalidArgumentError>(
        "[{}] expected one of crop_to_aspect_ratio and pad_to_aspect_ratio, got both", kKind);
  const auto change = [size, options](const Tensor& images) {
    static_cast<void>(size_of_images(kKind, images));
    return image::resize(images, {size.height, size.width},
                         {.method = options.interpolation,
                          .crop_to_aspect_ratio = options.crop_to_aspect_ratio,
                          .pad_to_aspect_ratio = options.pad_to_aspect_ratio,
                          .fill_value = options.fill_value});
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, change},
                                      std::pair(size.height, size.width));
}

// The parts of images that RandomResizedCrop takes: places and sizes, float32 [batch, 1, 1].
struct Boxes {
  Tensor top, left, height, width;
};

// The first of ten random boxes for each image that fits into it, else the middle.
Boxes random_boxes(const Tensor& images, const Size& image,
                   const RandomResizedCropOptions& options) {
  constexpr std::int64_t kTries = 10;
  const random::Options seeded{.seed = options.seed};
  const Shape tries{images.dim(0), kTries};
  const auto rows = static_cast<double>(image.height), columns = static_cast<double>(image.width);
  const Tensor area =
      random::uniform(tries, options.scale.first, options.scale.second, seeded) * (rows * columns);
  const Tensor ratio = exp(random::uniform(tries, std::log(options.ratio.first),
                                           std::log(options.ratio.second), seeded));
  const Tensor width = round(sqrt(area * ratio)), height = round(sqrt(area / ratio));
  const Tensor good = logical_and(logical_and(width >= 1.0, width <= columns),
                                  logical_and(height >= 1.0, height <= rows));
  const Tensor chosen = argmax(good.to(int32), 1);
  const Tensor any = reduce_any(good, {.axis = {1}});
  const Tensor mask = one_hot(chosen, kTries);
  const double whole = columns / rows;
  const double kept = std::clamp(whole, options.ratio.first, options.ratio.second);
  const auto one = [&](const Tensor& values, double otherwise) {
    return reshape(where(any, reduce_sum(values * mask, {.axis = {1}}), otherwise),
                   {images.dim(0), 1, 1});
  };
  const Tensor w = one(width, kept < whole ? std::nearbyint(rows * kept) : columns);
  const Tensor h = one(height, kept > whole ? std::nearbyint(columns / kept) : rows);
  const Tensor found = reshape(any, {images.dim(0), 1, 1});
  const auto place = [&](const Tensor& size, double all) {
    const Tensor u = random::uniform({images.dim(0), 1, 1}, 0.0, 1.0, seeded);
    const Tensor at = minimum(floor(u * (all + 1.0 - size)), all - size);
    return where(found, at, floor((all - size) / 2.0));
  };
  return {place(h, rows), place(w, columns), h, w};
}

tandem::Layer random_resized_crop(const Size& size, const RandomResizedCropOptions& options) {
  constexpr const char* kKind = "random_resized_crop";
  const auto positive = [&](const char* name, const std::pair<double, double>& limits) {
    if (!(limits.first > 0.0 && limits.first <= limits.second))
      fail<InvalidArgumentError>(
          "[{}] expected a {} of positive limits that increase, got {} and {}", kKind, name,
          limits.first, limits.second);
  };
  positive("scale", options.scale);
  positive("ratio", options.ratio);
  const Sampling sampling{kKind, is_bilinear(kKind, options.interpolation), Fill::kNearest};
  const auto change = [size, options, sampling](const Tensor& images) {
    const Boxes boxes = random_boxes(images, size_of_images(kKind, images), options);
    // Pixels are centred in their cells; nothing outside of the box is used.
    const auto along = [&](const Tensor& from, const Tensor& cells, std::int64_t count, int axis) {
      const Tensor cell = (places(count, axis) + 0.5) * (cells / static_cast<double>(count));
      const Tensor at = sampling.bilinear ? cell - 0.5 : floor(cell);
      return minimum(maximum(at, 0.0), cells - 1.0) + from;
    };
    return sampling(images, along(boxes.top, boxes.height, size.height, 1),
                    along(boxes.left, boxes.width, size.width, 2));
  };
  const auto outside = [size](const Tensor& images) {
    return cropped_and_resized(kKind, images, size);
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, outside},
                                      std::pair(size.height, size.width));
}

tandem::Layer random_flip(const std::string& mode, const RandomFlipOptions& options) {
  constexpr const char* kKind = "random_flip";
  const bool both = mode == "horizontal_and_vertical";
  const bool columns = both || mode == "horizontal", rows = both || mode == "vertical";
  if (!columns && !rows)
    fail<InvalidArgumentError>(
        "[{}] expected 'horizontal', 'vertical' or 'horizontal_and_vertical', got '{}'", kKind,
        mode);
  const auto change = [columns, rows, seed = options.seed](const Tensor& images) {
    const auto flipped = [&](const Tensor& x, int axis) {
      return where(for_each_image(x, 0.0, 1.0, {.seed = seed}) < 0.5, reverse(x, Dims{axis}), x);
    };
    const Tensor x = columns ? flipped(images, kWidth) : images;
    return rows ? flipped(x, kHeight) : x;
  };
  return std::make_shared<ImageLayer>(kKind, options, ImageLayer::Changes{change, {}});
}

}  // namespace

RandomFlip::RandomFlip(const std::string& mode, const RandomFlipOptions& options)
    : tandem::Layer(random_flip(mode, options)) {}
RandomRotation::RandomRotation(FactorRange factor, const RandomTransformOptions& options)
    : tandem::Layer(rotation(factor, options)) {}
RandomZoom::RandomZoom(FactorRange height_factor, const RandomZoomOptions& options)
    : tandem::Layer(zoom(height_factor, options)) {}
RandomTranslation::RandomTranslation(FactorRange height_factor, FactorRange width_factor,
                                     const RandomTransformOptions& options)
    : tandem::Layer(translation(height_factor, width_factor, options)) {}
RandomCrop::RandomCrop(std::int64_t height, std::int64_t width, const CropOptions& options)
    : tandem::Layer(random_crop(checked_size("random_crop", height, width), options)) {}
CenterCrop::CenterCrop(std::int64_t height, std::int64_t width, const CropOptions& options)
    : tandem::Layer(center_crop(checked_size("center_crop", height, width), options)) {}
RandomResizedCrop::RandomResizedCrop(std::int64_t height, std::int64_t width,
                                     const RandomResizedCropOptions& options)
    : tandem::Layer(
          random_resized_crop(checked_size("random_resized_crop", height, width), options)) {}
Resizing::Resizing(std::int64_t height, std::int64_t width, const ResizingOptions& options)
    : tandem::Layer(resizing(checked_size("resizing", height, width), options)) {}

}  // namespace tandem::layers
