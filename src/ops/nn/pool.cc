#include "ops/nn/pool.h"

#include <algorithm>

#include "core/status.h"
#include "op/record.h"
#include "ops/array/array_ops.h"
#include "ops/math/elementwise.h"
#include "ops/nn/window.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/nn.h"

namespace tandem {

Pool pool_of(std::string_view op, const PoolAttrs& a, const Shape& x) {
  if (x.rank() != 4)
    fail<ShapeError>("[{}] expected images [n, h, w, c], got shape {}", op, x.to_string());
  if (const char* expected =
          nn::expected_of_windows({a.window_h, a.window_w, a.stride_h, a.stride_w}))
    fail<InvalidArgumentError>("[{}] expected a window and strides {}, got {}x{} and {}x{}", op,
                               expected, dim::text(a.window_h), dim::text(a.window_w),
                               dim::text(a.stride_h), dim::text(a.stride_w));
  // Each window has a pixel of the image then.
  if (!nn::may_be_paddings({a.pad_top, a.pad_bottom}, a.window_h) ||
      !nn::may_be_paddings({a.pad_left, a.pad_right}, a.window_w))
    fail<InvalidArgumentError>(
        "[{}] expected paddings of 0 or more and below the {}x{} window, got {}, {}, {} and {}", op,
        dim::text(a.window_h), dim::text(a.window_w), dim::text(a.pad_top), dim::text(a.pad_bottom),
        dim::text(a.pad_left), dim::text(a.pad_right));
  if (!dim::are_sizes(x))
    fail<ShapeError>("[{}] expected sizes of 0 or more, got shape {}", op, text_of(x.words()));
  const nn::WindowAxis rows = nn::place_windows(x.word(1), a.window_h, a.stride_h, 1,
                                                {a.padding, a.pad_top, a.pad_bottom, a.ceil});
  const nn::WindowAxis columns = nn::place_windows(x.word(2), a.window_w, a.stride_w, 1,
                                                   {a.padding, a.pad_left, a.pad_right, a.ceil});
  if (a.padding != nn::Padding::kSame &&
      (rows.output == 0 || columns.output == 0 || x.word(1) == 0 || x.word(2) == 0))
    fail<ShapeError>("[{}] expected images{} as large as the {}x{} window, got shape {}", op,
                     a.padding == nn::Padding::kExplicit ? " with their padding" : "",
                     dim::text(a.window_h), dim::text(a.window_w), x.to_string());
  return {.n = x.word(0),
          .h = x.word(1),
          .w = x.word(2),
          .channels = x.word(3),
          .oh = rows.output,
          .ow = columns.output,
          .window_h = a.window_h,
          .window_w = a.window_w,
          .stride_h = a.stride_h,
          .stride_w = a.stride_w,
          .pad_top = rows.pad_begin,
          .pad_left = columns.pad_begin};
}

namespace {

Shape result_of(const Pool& pool) { return {pool.n, pool.oh, pool.ow, pool.channels}; }

void infer_pool(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  c.add_output(c.dtype(0), result_of(pool_of(c.op().name, c.attrs<PoolAttrs>(), c.shape(0))));
}

void check_input(InferContext& c, int input, const Shape& shape) {
  if (c.dtype(input) != c.dtype(0) || !dim::may_equal(c.shape(input), shape))
    fail<InvalidArgumentError>("[{}] expected input {} of dtype {} and shape {}, got {} {}",
                               c.op().name, input, name_of(c.dtype(0)), shape.to_string(),
                               name_of(c.dtype(input)), c.shape(input).to_string());
}

// Inputs x, y, dy.
void infer_max_grad(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  const Shape result = result_of(pool_of(c.op().name, c.attrs<PoolAttrs>(), c.shape(0)));
  check_input(c, 1, result);
  check_input(c, 2, result);
  c.add_output(c.dtype(0), c.shape(0));
}

// Inputs x, y, and g, shaped like x.
void infer_max_grad_grad(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  const Shape result = result_of(pool_of(c.op().name, c.attrs<PoolAttrs>(), c.shape(0)));
  check_input(c, 1, result);
  check_input(c, 2, c.shape(0));
  c.add_output(c.dtype(0), result);
}

void infer_average_grad(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  const auto& attrs = c.attrs<PoolAttrs>();
  const Shape& dy = c.shape(0);
  if (dy.rank() != 4)
    fail<ShapeError>("[{}] expected a gradient of rank 4, got shape {}", c.op().name,
                     dy.to_string());
  const Shape x{dy.word(0), attrs.height, attrs.width, dy.word(3)};
  check_input(c, 0, result_of(pool_of(c.op().name, attrs, x)));
  c.add_output(c.dtype(0), x);
}

extern const OpDef kMaxPool, kMaxPoolGrad, kMaxPoolGradGrad, kAvgPool, kAvgPoolGrad;

void max_gradient(GradContext& c) {
  const Tensor y = c.output(0);
  c.set_grad(0, run(kMaxPoolGrad, {&c.input(0), &y, &c.grad()}, c.attrs<PoolAttrs>()));
}
// The positions of maxima are constant almost everywhere, so that only dy has a gradient.
void max_grad_gradient(GradContext& c) {
  if (c.needs_grad(2))
    c.set_grad(2,
               run(kMaxPoolGradGrad, {&c.input(0), &c.input(1), &c.grad()}, c.attrs<PoolAttrs>()));
}
void max_grad_grad_gradient(GradContext& c) {
  if (c.needs_grad(2))
    c.set_grad(2, run(kMaxPoolGrad, {&c.input(0), &c.input(1), &c.grad()}, c.attrs<PoolAttrs>()));
}
void average_gradient(GradContext& c) {
  PoolAttrs attrs = c.attrs<PoolAttrs>();
  attrs.height = c.input_spec(0).shape.word(1);
  attrs.width = c.input_spec(0).shape.word(2);
  c.set_grad(0, run(kAvgPoolGrad, {&c.grad()}, attrs));
}
void average_grad_gradient(GradContext& c) {
  c.set_grad(0, run(kAvgPool, {&c.grad()}, c.attrs<PoolAttrs>()));
}

const OpDef kMaxPool = {.name = "MaxPool",
                        .attrs = &attrs_type<PoolAttrs>,
                        .infer = infer_pool,
                        .gradient = max_gradient,
                        .cpu_kernel = max_pool_kernel,
                        .saved_inputs = 0b1,
                        .saved_outputs = 0b1};
const OpDef kMaxPoolGrad = {.name = "MaxPoolGrad",
                            .attrs = &attrs_type<PoolAttrs>,
                            .infer = infer_max_grad,
                            .gradient = max_grad_gradient,
                            .cpu_kernel = max_pool_grad_kernel,
                            .saved_inputs = 0b011};
const OpDef kMaxPoolGradGrad = {.name = "MaxPoolGradGrad",
                                .attrs = &attrs_type<PoolAttrs>,
                                .infer = infer_max_grad_grad,
                                .gradient = max_grad_grad_gradient,
                                .cpu_kernel = max_pool_grad_grad_kernel,
                                .saved_inputs = 0b011};
const OpDef kAvgPool = {.name = "AvgPool",
                        .attrs = &attrs_type<PoolAttrs>,
                        .infer = infer_pool,
                        .gradient = average_gradient,
                        .cpu_kernel = avg_pool_kernel};
const OpDef kAvgPoolGrad = {.name = "AvgPoolGrad",
                            .attrs = &attrs_type<PoolAttrs>,
                            .infer = infer_average_grad,
                            .gradient = average_grad_gradient,
                            .cpu_kernel = avg_pool_grad_kernel};

PoolAttrs attrs_of(const nn::Pool2DOptions& options) {
  const nn::Pair strides = options.strides.value_or(options.window);
  return {.window_h = options.window.height,
          .window_w = options.window.width,
          .stride_h = strides.height,
          .stride_w = strides.width,
          .padding = options.padding.kind(),
          .pad_top = options.padding.rows().first,
          .pad_bottom = options.padding.rows().second,
          .pad_left = options.padding.columns().first,
          .pad_right = options.padding.columns().second,
          .ceil = options.ceil_mode};
}

// Pools over one window of the image's size.
Tensor pool_globally(std::string_view name, const OpDef& op, const Tensor& x, bool keepdims) {
  if (x.rank() != 4)
    fail<ShapeError>("[{}] expected images [n, h, w, c], got shape {}", name,
                     x.shape().to_string());
  const PoolAttrs attrs = attrs_of({.window = {x.size_word(1), x.size_word(2)}});
  const Tensor y = run(op, {&x}, attrs);
  return keepdims ? y : reshape(y, {x.size_word(0), x.size_word(3)});
}

}  // namespace

OpList pool_ops() {
  return list_of<kMaxPool, kMaxPoolGrad, kMaxPoolGradGrad, kAvgPool, kAvgPoolGrad>();
}

namespace nn {

Tensor max_pool2d(const Tensor& x, const Pool2DOptions& options) {
  return run(kMaxPool, {&x}, attrs_of(options));
}
Tensor avg_pool2d(const Tensor& x, const Pool2DOptions& options) {
  return run(kAvgPool, {&x}, attrs_of(options));
}
Tensor global_avg_pool2d(const Tensor& x, bool keepdims) {
  return pool_globally("global_avg_pool2d", kAvgPool, x, keepdims);
}
Tensor global_max_pool2d(const Tensor& x, bool keepdims) {
  return pool_globally("global_max_pool2d", kMaxPool, x, keepdims);
}

}  // namespace nn
}  // namespace tandem
