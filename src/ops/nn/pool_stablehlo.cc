// Pooling and its gradients in StableHLO.
#include <functional>
#include <limits>

#include "ops/lowering_support.h"
#include "ops/nn/pool.h"

namespace tandem::stablehlo {
namespace {

Pool shape_of(const Context& c, const Shape& images) {
  for (const int axis : {1, 2}) dim::known(c.op(), images.word(axis), "its lowering");
  return pool_of(c.op(), c.attrs<PoolAttrs>(), images);
}

// The padding after an axis so that all windows fit. Negative if they end before it.
std::int64_t padding_after(std::int64_t windows, std::int64_t stride, std::int64_t window,
                           std::int64_t size, std::int64_t before) {
  return (windows - 1) * stride + window - size - before;
}
Axes padding_before(const Pool& p) { return {0, p.pad_top, p.pad_left, 0}; }
Axes padding_after(const Pool& p) {
  return {0, padding_after(p.oh, p.stride_h, p.window_h, p.h, p.pad_top),
          padding_after(p.ow, p.stride_w, p.window_w, p.w, p.pad_left), 0};
}

Value padded(Context& c, const Pool& p, const Value& x, double with) {
  const Value value = c.build.constant(with, {x.element(), Shape::scalar()});
  return c.build.pad(x, value, padding_before(p), padding_after(p));
}

Value reduce_windows(Context& c, const Pool& p, std::string_view operation, const Value& x,
                     double start) {
  const Window window{.size = {1, p.window_h, p.window_w, 1},
                      .strides = {1, p.stride_h, p.stride_w, 1},
                      .low = padding_before(p),
                      .high = padding_after(p)};
  return c.build.reduce_window(operation, x,
                               c.build.constant(start, {x.element(), Shape::scalar()}), window);
}

constexpr double kInfinity = std::numeric_limits<double>::infinity();

void lower_max(Context& c) {
  const Pool p = shape_of(c, c.input(0).shape());
  finish(c, reduce_windows(c, p, "maximum", widened(c, 0).value(), -kInfinity));
}

// One pixel of every window: row `i` and column `j` of the window.
Value pixels(Context& c, const Pool& p, const Value& image, std::int64_t i, std::int64_t j) {
  const Shape& s = image.shape();
  return c.build.slice(
      image, {0, i, j, 0},
      {s.word(0), i + (p.oh - 1) * p.stride_h + 1, j + (p.ow - 1) * p.stride_w + 1, s.word(3)},
      {1, p.stride_h, p.stride_w, 1});
}

// The opposite: the values at that pixel of every window, zeros elsewhere, without the padding.
Value placed(Context& c, const Pool& p, const Value& values, std::int64_t i, std::int64_t j) {
  const std::int64_t top = i - p.pad_top, left = j - p.pad_left;
  const Value zero = c.build.constant(0.0, {values.element(), Shape::scalar()});
  return c.build.pad(
      values, zero, {0, top, left, 0},
      {0, p.h - top - ((p.oh - 1) * p.stride_h + 1), p.w - left - ((p.ow - 1) * p.stride_w + 1), 0},
      {0, p.stride_h - 1, p.stride_w - 1, 0});
}

// Calls `visit` with each pixel of a window, and whether it is the window's maximum: the first one
// that is not below the result, as in the kernel.
void for_maxima(Context& c, const Pool& p, const Value& x, const Value& y,
                const std::function<void(std::int64_t i, std::int64_t j,
                                         const Expression& is_maximum)>& visit) {
  const bool pads = padding_before(p) != Axes(4, 0) || padding_after(p) != Axes(4, 0);
  const Value image = padded(c, p, x, -kInfinity);
  const Value ones = c.build.constant(1.0, {Element::kBool, {1, p.h, p.w, 1}});
  const Value inside = padded(c, p, ones, 0.0);
  const Expression results(c.build, y);
  Expression found(c.build, c.build.constant(0.0, {Element::kBool, y.shape()}));
  for (std::int64_t i = 0; i < p.window_h; ++i)
    for (std::int64_t j = 0; j < p.window_w; ++j) {
      const Expression pixel(c.build, pixels(c, p, image, i, j));
      Expression is_maximum = (pixel < results).binary("or", found).unary("not");
      if (pads) is_maximum = is_maximum.binary("and", found.repeat(pixels(c, p, inside, i, j)));
      found = found.binary("or", is_maximum);
      visit(i, j, is_maximum);
    }
}

void lower_max_grad(Context& c) {
  const Pool p = shape_of(c, c.input(0).shape());
  const Expression dy = widened(c, 2);
  Expression sum(c.build, c.build.constant(0.0, {dy.element(), c.input(0).shape()}));
  for_maxima(c, p, widened(c, 0).value(), widened(c, 1).value(),
             [&](std::int64_t i, std::int64_t j, const Expression& is_maximum) {
               const Expression share = dy.where(is_maximum, dy.like(0.0));
               sum = sum + Expression(c.build, placed(c, p, share.value(), i, j));
             });
  finish(c, sum);
}

void lower_max_grad_grad(Context& c) {
  const Pool p = shape_of(c, c.input(0).shape());
  const Value gradient = padded(c, p, widened(c, 2).value(), 0.0);
  Expression sum(c.build, c.build.constant(0.0, {gradient.element(), c.output().shape}));
  for_maxima(c, p, widened(c, 0).value(), widened(c, 1).value(),
             [&](std::int64_t i, std::int64_t j, const Expression& is_maximum) {
               const Expression here(c.build, pixels(c, p, gradient, i, j));
               sum = sum + here.where(is_maximum, here.like(0.0));
             });
  finish(c, sum);
}

// The number of pixels of each window, [1, oh, ow, 1].
Value counts(Context& c, const Pool& p, Element element) {
  return reduce_windows(c, p, "add", c.build.constant(1.0, {element, {1, p.h, p.w, 1}}), 0.0);
}

void lower_average(Context& c) {
  const Pool p = shape_of(c, c.input(0).shape());
  const Expression x = widened(c, 0);
  const Expression sums(c.build, reduce_windows(c, p, "add", x.value(), 0.0));
  const Expression scale = 1.0 / Expression(c.build, counts(c, p, x.element()));
  finish(c, sums * sums.repeat(scale.value()));
}

// Each pixel gets a share of every window that covers it: the sums of windows of the gradient,
// spread out by the strides.
void lower_average_grad(Context& c) {
  const Pool p = shape_of(c, c.output().shape);
  const Expression dy = widened(c, 0);
  const Expression scale = 1.0 / Expression(c.build, counts(c, p, dy.element()));
  const Value zero = c.build.constant(0.0, {dy.element(), Shape::scalar()});
  const std::int64_t top = p.window_h - 1 - p.pad_top, left = p.window_w - 1 - p.pad_left;
  const Value spread =
      c.build.pad((dy * dy.repeat(scale.value())).value(), zero, {0, top, left, 0},
                  {0, padding_after(p.h, 1, p.window_h, (p.oh - 1) * p.stride_h + 1, top),
                   padding_after(p.w, 1, p.window_w, (p.ow - 1) * p.stride_w + 1, left), 0},
                  {0, p.stride_h - 1, p.stride_w - 1, 0});
  const Window window{.size = {1, p.window_h, p.window_w, 1},
                      .strides = {1, 1, 1, 1},
                      .low = {0, 0, 0, 0},
                      .high = {0, 0, 0, 0}};
  finish(c, c.build.reduce_window("add", spread, zero, window));
}

constexpr Lowering kPoolLowerings[] = {
    {"AvgPool", lower_average},
    {"AvgPoolGrad", lower_average_grad},
    {"MaxPool", lower_max},
    {"MaxPoolGrad", lower_max_grad},
    {"MaxPoolGradGrad", lower_max_grad_grad},
};

}  // namespace

LoweringList pool_lowerings() { return kPoolLowerings; }

}  // namespace tandem::stablehlo
