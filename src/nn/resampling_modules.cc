// PyTorch's functions and modules that resize, and that take windows as columns.
#include "tandem/resampling_modules.h"

#include <algorithm>
#include <cmath>

#include "core/dim.h"
#include "core/size_table.h"
#include "core/status.h"
#include "nn/cubic_weights.h"
#include "nn/function_module.h"
#include "nn/targets.h"
#include "nn/windows.h"
#include "ops/array/array_ops.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/elementary.h"
#include "tandem/math.h"
#include "tandem/random.h"
#include "tandem/rearrange.h"
#include "tandem/scatter.h"

namespace tandem::nn {
namespace {

// --- resizing ---

struct ResizedAxis {
  Dim in, out;
  Tensor distance;  // of positions in the input: a float64 scalar
};

// `positions` as those of elements of the axis.
Tensor within(const Tensor& positions, const ResizedAxis& axis) {
  return maximum(minimum(cast(positions, int64), axis.in - 1), 0.0);
}

// The element nearest to each position. In float32, as PyTorch: which one it is depends on it.
Tensor nearest_along(const Tensor& x, int at, const ResizedAxis& axis, double center) {
  const Tensor centers = range(axis.out, {.dtype = float32}) + center;
  return gather(x, within(floor(centers * cast(axis.distance, float32)), axis), at);
}

// Sums of the elements around each position, each times a weight.
Tensor weighted_along(const Tensor& x, int at, const ResizedAxis& axis, bool cubic,
                      bool align_corners) {
  const Tensor numbers = range(axis.out, {.dtype = float64});
  Tensor position = align_corners ? numbers * axis.distance : (numbers + 0.5) * axis.distance - 0.5;
  if (!cubic) position = maximum(position, 0.0);
  const Tensor first = floor(position), part = position - first;
  Dims along;
  for (int i = 0; i < x.rank(); ++i) along.push_back(i == at ? -1 : 1);
  Tensor sum;
  const std::vector<Tensor> weights =
      cubic ? cubic_weights(part) : std::vector<Tensor>{1.0 - part, part};
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double offset = static_cast<double>(i) - (cubic ? 1.0 : 0.0);
    const Tensor product = gather(x, within(first + offset, axis), at) *
                           reshape(cast(weights[i], x.dtype()), Shape(along));
    sum = sum.defined() ? sum + product : product;
  }
  return sum;
}

// The numbers for `axes` axes, of which one may stand for all.
template <class Number>
std::vector<Number> for_axes(const char* what, const std::vector<Number>& numbers, int axes) {
  if (numbers.size() == 1) return std::vector<Number>(static_cast<std::size_t>(axes), numbers[0]);
  if (numbers.size() != static_cast<std::size_t>(axes))
    fail<InvalidArgumentError>("[interpolate] expected one {} or {}, got {}", what, axes,
                               numbers.size());
  return numbers;
}

ResizedAxis resized_axis(const Dim& in, const InterpolateOptions& options, std::int64_t size,
                         double factor) {
  const bool by_factor = options.size.empty();
  if (!(factor > 0.0) || !std::isfinite(factor))
    fail<InvalidArgumentError>("[interpolate] expected finite factors above 0, got {}", factor);
  const Dim out = by_factor ? Dim(dim::scaled(in.word(), factor)) : Dim(size);
  if (!dim::may_be_at_most(1, in) || !dim::may_be_at_most(1, out))
    fail<InvalidArgumentError>("[interpolate] expected sizes above 0, got {} to {}", dim::text(in),
                               dim::text(out));
  const auto number = [](const Dim& of) { return detail::scalar_of(of, float64); };
  if (options.align_corners)  // the position of one element is 0
    return {in, out, number(in - 1) / maximum(number(out - 1), 1.0)};
  if (by_factor && !options.recompute_scale_factor)
    return {in, out, full(Shape::scalar(), 1.0 / factor, float64)};
  return {in, out, number(in) / number(out)};
}

void check_mode(const InterpolateOptions& options, int axes) {
  const std::string& mode = options.mode;
  const bool any = mode == "nearest" || mode == "nearest-exact" || mode == "area";
  const bool fits = (mode == "linear" && axes == 1) || (mode == "trilinear" && axes == 3) ||
                    ((mode == "bilinear" || mode == "bicubic") && axes == 2);
  if (!any && !fits)
    fail<InvalidArgumentError>(
        "[interpolate] expected mode \"nearest\", \"nearest-exact\", \"area\" or {} for {} axes "
        "after the channels, got \"{}\"",
        axes == 1   ? "\"linear\""
        : axes == 2 ? "\"bilinear\" or \"bicubic\""
                    : "\"trilinear\"",
        axes, mode);
  if (any && options.align_corners)
    fail<InvalidArgumentError>("[interpolate] expected no align_corners for mode \"{}\"", mode);
}

// --- windows ---

// The positions in `size` elements with padding that window element k of window i has: [k, i].
struct FoldedAxis {
  FoldedAxis(const char* what, const Dim& size, std::int64_t kernel, std::int64_t by,
             std::int64_t padding, std::int64_t apart)
      : padded(size + 2 * padding),
        elements(kernel),
        stride(by),
        dilation(apart),
        covered((kernel - 1) * apart + 1) {
    if (kernel < 1 || stride < 1 || padding < 0 || dilation < 1 ||
        !dim::may_be_at_most(covered, padded))
      fail<InvalidArgumentError>(
          "[{}] expected positive sizes of windows that fit into {} elements, got a window of {}, "
          "stride {}, padding {} and dilation {}",
          what, dim::text(size), kernel, stride, padding, dilation);
    windows = (padded - covered) / stride + 1;
  }
  Tensor positions() const {
    const Tensor of_elements =
        range(Dim(elements), {.dtype = int64}) * static_cast<double>(dilation);
    return expand_dims(of_elements, 1) +
           range(windows, {.dtype = int64}) * static_cast<double>(stride);
  }

  Dim padded;
  std::int64_t elements, stride, dilation;
  std::int64_t covered;  // by a window
  Dim windows;
};

struct FoldedImage {
  FoldedAxis rows, columns;
};

FoldedImage folded(const char* what, const Dim& height, const Dim& width, Pair kernel,
                   const FoldOptions& o) {
  return {{what, height, kernel.height, o.stride.height, o.padding.height, o.dilation.height},
          {what, width, kernel.width, o.stride.width, o.padding.width, o.dilation.width}};
}

// --- pooling ---

Tensor lp_pooled(const char* what, const Tensor& x, double p, Windows windows) {
  double elements = 1.0;
  for (const std::int64_t size : windows.size) elements *= static_cast<double>(size);
  windows.padding.assign(windows.size.size(), 0);
  windows.dilation.assign(windows.size.size(), 1);
  if (p == 0.0) fail<InvalidArgumentError>("[{}] expected an order other than 0", what);
  return pow(mean_pooled(what, pow(x, p), windows) * elements, 1.0 / p);
}

}  // namespace

namespace functional {

Tensor interpolate(const Tensor& x, const InterpolateOptions& options) {
  const int axes = x.rank() - 2;
  if (axes < 1 || axes > 3)
    fail<ShapeError>(
        "[interpolate] expected an input (batch, channels, ...) of 3 to 5 axes, got shape {}",
        x.shape().to_string());
  if (options.size.empty() == options.scale_factor.empty())
    throw InvalidArgumentError("[interpolate] expected either sizes or factors");
  check_mode(options, axes);
  const auto sizes =
      options.size.empty() ? std::vector<std::int64_t>(3, 0) : for_axes("size", options.size, axes);
  const auto factors = options.size.empty() ? for_axes("factor", options.scale_factor, axes)
                                            : std::vector<double>(3, 1.0);
  constexpr const char* kHas = "sizes above 0, a shape such as";
  const std::string& mode = options.mode;
  std::vector<std::optional<Dim>> area;
  Tensor y = at_least_float32(x);
  for (int i = 0; i < axes; ++i) {
    const int at = i + 2;
    const auto number = static_cast<std::size_t>(i);
    const ResizedAxis axis = resized_axis(x.dim(at), options, sizes[number], factors[number]);
    area.push_back(axis.out);
    if (mode == "area") continue;
    y = of_least_size("interpolate", kHas, y, at, 1);
    y = mode.starts_with("nearest")
            ? nearest_along(y, at, axis, mode == "nearest" ? 0.0 : 0.5)
            : weighted_along(y, at, axis, mode == "bicubic", options.align_corners);
    y = of_least_size("interpolate", kHas, y, at, 1);
  }
  if (mode == "area") return adaptively_pooled("interpolate", x, area, false);
  return cast(y, x.dtype());
}

Tensor unfold(const Tensor& x, Pair kernel_size, const FoldOptions& options) {
  if (x.rank() == 3) return squeeze(unfold(expand_dims(x, 0), kernel_size, options), {0});
  if (x.rank() != 4)
    fail<ShapeError>("[unfold] expected images (batch, channels, height, width), got shape {}",
                     x.shape().to_string());
  const FoldedImage image = folded("unfold", x.dim(2), x.dim(3), kernel_size, options);
  const Pair by = options.padding;
  Tensor padded = pad(x, std::vector<std::pair<std::int64_t, std::int64_t>>{
                             {0, 0}, {0, 0}, {by.height, by.height}, {by.width, by.width}});
  constexpr const char* kHolds = "images that hold a window, with padding a shape such as";
  padded = of_least_size("unfold", kHolds, padded, 2, image.rows.covered);
  padded = of_least_size("unfold", kHolds, padded, 3, image.columns.covered);
  const Tensor windows =
      gather(gather(padded, image.rows.positions(), 2), image.columns.positions(), 4);
  const std::int64_t elements = image.rows.elements * image.columns.elements;
  return reshape(transpose(windows, {0, 1, 2, 4, 3, 5}),
                 {x.dim(0), x.dim(1) * elements, image.rows.windows * image.columns.windows});
}

Tensor fold(const Tensor& x, Pair output_size, Pair kernel_size, const FoldOptions& options) {
  if (x.rank() == 2)
    return squeeze(fold(expand_dims(x, 0), output_size, kernel_size, options), {0});
  const FoldedImage image =
      folded("fold", output_size.height, output_size.width, kernel_size, options);
  const auto &rows = image.rows, &columns = image.columns;
  const std::int64_t elements = rows.elements * columns.elements;
  if (x.rank() != 3 || !dim::may_be_multiple(x.shape().word(1), elements) ||
      !dim::may_equal(x.shape().word(2), rows.windows * columns.windows))
    fail<ShapeError>("[fold] expected columns (batch, channels * {}, {}), got shape {}", elements,
                     dim::text(rows.windows * columns.windows), x.shape().to_string());
  const Dim batch = x.dim(0), channels = x.dim(1) / elements;
  const Tensor windows =
      reshape(x, {batch, channels, rows.elements, columns.elements, rows.windows, columns.windows});
  // The columns of each row of windows first, then the rows.
  const Tensor by_column =
      reshape(transpose(windows, {3, 5, 2, 4, 0, 1}),
              {columns.elements * columns.windows, rows.elements * rows.windows, batch, channels});
  const Tensor lines = add_to_rows(by_column, reshape(columns.positions(), {-1}),
                                   {columns.padded, rows.elements * rows.windows, batch, channels});
  const Tensor sums = add_to_rows(transpose(lines, {1, 0, 2, 3}), reshape(rows.positions(), {-1}),
                                  {rows.padded, columns.padded, batch, channels});
  const Pair from = options.padding;
  return transpose(sums, {2, 3, 0, 1})
      .slice(2, from.height, from.height + output_size.height)
      .slice(3, from.width, from.width + output_size.width);
}

Tensor lp_pool1d(const Tensor& x, double p, std::int64_t kernel_size,
                 const LpPool1dArguments& options) {
  return lp_pooled("lp_pool1d", x, p,
                   {.size = {kernel_size},
                    .stride = {options.stride.value_or(kernel_size)},
                    .ceil = options.ceil_mode});
}
Tensor lp_pool2d(const Tensor& x, double p, Pair kernel_size, const LpPool2dArguments& options) {
  const Pair stride = options.stride.value_or(kernel_size);
  return lp_pooled("lp_pool2d", x, p,
                   {.size = {kernel_size.height, kernel_size.width},
                    .stride = {stride.height, stride.width},
                    .ceil = options.ceil_mode});
}
Tensor lp_pool3d(const Tensor& x, double p, Triple kernel_size, const LpPool3dArguments& options) {
  const Triple stride = options.stride.value_or(kernel_size);
  return lp_pooled("lp_pool3d", x, p,
                   {.size = {kernel_size.depth, kernel_size.height, kernel_size.width},
                    .stride = {stride.depth, stride.height, stride.width},
                    .ceil = options.ceil_mode});
}

Tensor bilinear(const Tensor& x1, const Tensor& x2, const Tensor& weight, const Tensor& bias) {
  const Tensor y = einsum("...i,oij,...j->...o", x1, weight, x2);
  return bias.defined() ? y + bias : y;
}

Tensor pdist(const Tensor& x, double p) {
  if (x.rank() != 2)
    fail<ShapeError>("[pdist] expected a matrix, got shape {}", x.shape().to_string());
  return gather_nd(cdist(x, x, p), combinations(range(x.dim(0), {.dtype = int64})));
}

}  // namespace functional

Upsample::Upsample(const InterpolateOptions& options)
    : ModuleHolder(function_module(
          "upsample", [options](const Tensor& x) { return functional::interpolate(x, options); })) {
}
Unfold::Unfold(Pair kernel_size, const FoldOptions& options)
    : ModuleHolder(function_module("unfold", [kernel_size, options](const Tensor& x) {
        return functional::unfold(x, kernel_size, options);
      })) {}
Fold::Fold(Pair output_size, Pair kernel_size, const FoldOptions& options)
    : ModuleHolder(function_module("fold", [output_size, kernel_size, options](const Tensor& x) {
        return functional::fold(x, output_size, kernel_size, options);
      })) {}
LPPool1d::LPPool1d(double norm_type, std::int64_t kernel_size, const LpPool1dArguments& options)
    : ModuleHolder(function_module("lp_pool1d", [norm_type, kernel_size, options](const Tensor& x) {
        return functional::lp_pool1d(x, norm_type, kernel_size, options);
      })) {}
LPPool2d::LPPool2d(double norm_type, Pair kernel_size, const LpPool2dArguments& options)
    : ModuleHolder(function_module("lp_pool2d", [norm_type, kernel_size, options](const Tensor& x) {
        return functional::lp_pool2d(x, norm_type, kernel_size, options);
      })) {}
LPPool3d::LPPool3d(double norm_type, Triple kernel_size, const LpPool3dArguments& options)
    : ModuleHolder(function_module("lp_pool3d", [norm_type, kernel_size, options](const Tensor& x) {
        return functional::lp_pool3d(x, norm_type, kernel_size, options);
      })) {}

BilinearImpl::BilinearImpl(std::int64_t in1, std::int64_t in2, std::int64_t out, bool has_bias) {
  if (in1 < 1 || in2 < 1 || out < 1)
    fail<InvalidArgumentError>("[bilinear] expected 1 feature or more, got {}, {} and {}", in1, in2,
                               out);
  const double bound = 1.0 / std::sqrt(static_cast<double>(in1));
  weight = register_parameter("weight", random::uniform({out, in1, in2}, -bound, bound));
  if (has_bias) bias = register_parameter("bias", random::uniform({out}, -bound, bound));
}

Tensor BilinearImpl::forward(const Tensor& input1, const Tensor& input2) {
  return functional::bilinear(input1, input2, weight, bias.defined() ? bias.value() : Tensor());
}

Bilinear::Bilinear(std::int64_t in1_features, std::int64_t in2_features, std::int64_t out_features,
                   bool bias)
    : ModuleHolder(std::make_shared<BilinearImpl>(in1_features, in2_features, out_features, bias)) {
}

}  // namespace tandem::nn
