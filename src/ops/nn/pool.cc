#include "ops/nn/pool.h"

#include <algorithm>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/array/array_ops.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/nn/window.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/nn.h"

namespace tandem {

Pool pool_of(std::string_view op, const PoolAttrs& a, const Shape& x) {
  if (x.rank() != 4)
    fail<InvalidArgumentError>("[{}] expected images [n, h, w, c], got shape {}", op,
                               x.to_string());
  const auto numbers = {a.window_h, a.window_w, a.stride_h, a.stride_w};
  if (std::min(numbers) < 1 || std::max(numbers) >= nn::kMaxWindow)
    fail<InvalidArgumentError>("[{}] expected a window and strides {}, got {}x{} and {}x{}", op,
                               std::min(numbers) < 1 ? "of 1 or more" : "below 2^31", a.window_h,
                               a.window_w, a.stride_h, a.stride_w);
  if (!x.fully_defined())
    fail<InvalidArgumentError>("[{}] expected sizes of 0 or more, got shape {}", op,
                               text_of(x.dims()));
  const nn::WindowAxis rows = nn::place_windows(x[1], a.window_h, a.stride_h, 1, a.padding);
  const nn::WindowAxis columns = nn::place_windows(x[2], a.window_w, a.stride_w, 1, a.padding);
  if (a.padding == nn::Padding::kValid && (rows.output == 0 || columns.output == 0))
    fail<InvalidArgumentError>("[{}] expected images as large as the {}x{} window, got shape {}",
                               op, a.window_h, a.window_w, x.to_string());
  return {.n = x[0],
          .h = x[1],
          .w = x[2],
          .channels = x[3],
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

// Channels per chunk: a chunk fits into a kernel's buffer on the stack.
constexpr std::int64_t kChunk = 256;

// The kernels below compute the output row `row` (of n * oh), or all rows of image `image`, for all
// channels. If several pixels are equal, the first one in row-major order is the maximum, as in
// TensorFlow. The maximum of a window with a NaN is NaN.

template <class T>
TANDEM_MULTIVERSION void max_row(const Pool& p, std::int64_t row, const T* x, T* y) {
  using C = Compute<T>;
  const std::int64_t image = row / p.oh, oy = row % p.oh;
  FloatReader<T> reader;
  alignas(64) C wide[is_16_bit_floating<T> ? kChunk : 1];
  for (std::int64_t ox = 0; ox < p.ow; ++ox) {
    const PoolWindow window(p, oy, ox);
    const T* first = x + ((image * p.h + window.top) * p.w + window.left) * p.channels;
    T* out = y + (row * p.ow + ox) * p.channels;
    for (std::int64_t start = 0; start < p.channels; start += kChunk) {
      const std::int64_t count = std::min(kChunk, p.channels - start);
      C* best = nullptr;
      if constexpr (is_16_bit_floating<T>) {
        best = wide;
        widen(first + start, best, count);
      } else {
        best = out + start;
        std::copy_n(first + start, count, best);
      }
      for (std::int64_t iy = window.top; iy < window.bottom; ++iy)
        for (std::int64_t ix = window.left; ix < window.right; ++ix) {
          const T* at = x + ((image * p.h + iy) * p.w + ix) * p.channels;
          if (at == first) continue;
          const auto* pixel = reader.read(at + start, count);
#pragma GCC ivdep
          for (std::int64_t c = 0; c < count; ++c)
            best[c] = cpu::Maximum()(static_cast<C>(pixel[c]), best[c]);
        }
      if constexpr (is_16_bit_floating<T>) narrow(best, out + start, count);
    }
  }
}

// Adds each window's gradient to its maximum, which is the first pixel that is not below the
// result. If the result is NaN, that is a NaN. kTiles: each pixel is in one window, so that sums
// need no wider type.
template <bool kTiles, class T>
TANDEM_MULTIVERSION void max_gradient_image(const Pool& p, std::int64_t image, const T* x,
                                            const T* y, const T* dy,
                                            std::conditional_t<kTiles, T, Compute<T>>* dx) {
  using C = Compute<T>;
  constexpr bool kRounds = kTiles && is_16_bit_floating<T>;
  alignas(64) C rest[kChunk], shares[kRounds ? kChunk : 1];
  FloatReader<T> pixels, results;
  const std::int64_t channels = p.channels;
  if constexpr (!kTiles) std::fill_n(dx, p.h * p.w * channels, C(0));
  for (std::int64_t oy = 0; oy < p.oh; ++oy)
    for (std::int64_t ox = 0; ox < p.ow; ++ox) {
      const PoolWindow window(p, oy, ox);
      const std::int64_t at = ((image * p.oh + oy) * p.ow + ox) * channels;
      for (std::int64_t start = 0; start < channels; start += kChunk) {
        const std::int64_t count = std::min(kChunk, channels - start);
        const auto* best = results.read(y + at + start, count);
        load_floats(dy + at + start, rest, count);
        for (std::int64_t iy = window.top; iy < window.bottom; ++iy)
          for (std::int64_t ix = window.left; ix < window.right; ++ix) {
            const auto* pixel =
                pixels.read(x + ((image * p.h + iy) * p.w + ix) * channels + start, count);
            auto* out = dx + (iy * p.w + ix) * channels + start;
#pragma GCC ivdep
            for (std::int64_t c = 0; c < count; ++c) {
              const bool below = static_cast<C>(pixel[c]) < static_cast<C>(best[c]);
              const C share = below ? C(0) : rest[c];
              rest[c] = below ? rest[c] : C(0);
              if constexpr (kRounds)
                shares[c] = share;
              else if constexpr (kTiles)
                out[c] = share;
              else
                out[c] += share;
            }
            if constexpr (kRounds)
              write_floats(out, count, [&](std::int64_t c) { return shares[c]; });
          }
      }
    }
}

// Selects the elements of g at the positions of the maxima of x.
template <class T>
TANDEM_MULTIVERSION void gather_maxima_row(const Pool& p, std::int64_t row, const T* x, const T* y,
                                           const T* g, T* out) {
  using C = Compute<T>;
  const std::int64_t image = row / p.oh, oy = row % p.oh, channels = p.channels;
  for (std::int64_t ox = 0; ox < p.ow; ++ox) {
    const PoolWindow window(p, oy, ox);
    const std::int64_t at = (row * p.ow + ox) * channels;
    for (std::int64_t c = 0; c < channels; ++c) {
      const C best = static_cast<C>(y[at + c]);
      bool found = false;
      for (std::int64_t iy = window.top; iy < window.bottom && !found; ++iy)
        for (std::int64_t ix = window.left; ix < window.right && !found; ++ix) {
          const std::int64_t from = ((image * p.h + iy) * p.w + ix) * channels + c;
          if (static_cast<C>(x[from]) < best) continue;
          out[at + c] = g[from];
          found = true;
        }
    }
  }
}

template <class T>
TANDEM_MULTIVERSION void average_row(const Pool& p, std::int64_t row, const T* x, T* y) {
  using C = Compute<T>;
  alignas(64) C sum[kChunk];
  FloatReader<T> reader;
  const std::int64_t image = row / p.oh, oy = row % p.oh, channels = p.channels;
  for (std::int64_t ox = 0; ox < p.ow; ++ox) {
    const PoolWindow window(p, oy, ox);
    const C scale = C(1) / static_cast<C>(window.count());
    for (std::int64_t start = 0; start < channels; start += kChunk) {
      const std::int64_t count = std::min(kChunk, channels - start);
      std::fill_n(sum, count, C(0));
      for (std::int64_t iy = window.top; iy < window.bottom; ++iy)
        for (std::int64_t ix = window.left; ix < window.right; ++ix) {
          const auto* pixel =
              reader.read(x + ((image * p.h + iy) * p.w + ix) * channels + start, count);
          for (std::int64_t c = 0; c < count; ++c) sum[c] += static_cast<C>(pixel[c]);
        }
      write_floats(y + (row * p.ow + ox) * channels + start, count,
                   [&](std::int64_t c) { return sum[c] * scale; });
    }
  }
}

template <class T>
TANDEM_MULTIVERSION void average_gradient_image(const Pool& p, std::int64_t image, const T* dy,
                                                Compute<T>* dx) {
  using C = Compute<T>;
  const std::int64_t channels = p.channels;
  FloatReader<T> reader;
  std::fill_n(dx, p.h * p.w * channels, C(0));
  for (std::int64_t oy = 0; oy < p.oh; ++oy)
    for (std::int64_t ox = 0; ox < p.ow; ++ox) {
      const PoolWindow window(p, oy, ox);
      const C scale = C(1) / static_cast<C>(window.count());
      for (std::int64_t start = 0; start < channels; start += kChunk) {
        const std::int64_t count = std::min(kChunk, channels - start);
        const auto* slope =
            reader.read(dy + ((image * p.oh + oy) * p.ow + ox) * channels + start, count);
        for (std::int64_t iy = window.top; iy < window.bottom; ++iy)
          for (std::int64_t ix = window.left; ix < window.right; ++ix) {
            C* out = dx + (iy * p.w + ix) * channels + start;
#pragma GCC ivdep
            for (std::int64_t c = 0; c < count; ++c) out[c] += static_cast<C>(slope[c]) * scale;
          }
      }
    }
}

std::int64_t rows_per_thread(const Pool& p) {
  return std::max<std::int64_t>(1,
                                kElementwiseGrain / (p.ow * p.channels * p.window_h * p.window_w));
}

// Calls body(row) for the n * oh rows of windows.
template <class Body>
void for_rows(const Pool& p, const Body& body) {
  parallel_for(p.n * p.oh, rows_per_thread(p), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

// Calls body(image) for the n images.
template <class Body>
void for_images(const Pool& p, const Body& body) {
  parallel_for(p.n, std::max<std::int64_t>(1, kElementwiseGrain / (p.h * p.w * p.channels)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t image = begin; image < end; ++image) body(image);
               });
}

// Calls body(image, dx of the image) with dx in the compute type, and then rounds dx to the output
// of type T.
template <class T, class Body>
void for_image_gradients(KernelContext& context, const Pool& p, T* dx, const Body& body) {
  using C = Compute<T>;
  const std::int64_t size = p.h * p.w * p.channels;
  C* wide = nullptr;
  if constexpr (std::is_same_v<C, T>)
    wide = dx;
  else
    wide = static_cast<C*>(context.scratch(static_cast<std::size_t>(p.n * size) * sizeof(C)));
  for_images(p, [&](std::int64_t image) {
    C* gradient = wide + image * size;
    body(image, gradient);
    if constexpr (!std::is_same_v<C, T>) narrow(gradient, dx + image * size, size);
  });
}

void infer_pool(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  c.add_output(c.dtype(0), result_of(pool_of(c.op().name, c.attrs<PoolAttrs>(), c.shape(0))));
}

void check_input(InferContext& c, int input, const Shape& shape) {
  if (c.dtype(input) != c.dtype(0) || !(c.shape(input) == shape))
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
    fail<InvalidArgumentError>("[{}] expected a gradient of rank 4, got shape {}", c.op().name,
                               dy.to_string());
  const Shape x{dy[0], attrs.height, attrs.width, dy[3]};
  check_input(c, 0, result_of(pool_of(c.op().name, attrs, x)));
  c.add_output(c.dtype(0), x);
}

void max_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  if (y.size() == 0) return;
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), x.shape);
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    for_rows(pool, [&](std::int64_t row) { max_row(pool, row, x.as<const T>(), y.as<T>()); });
  });
}

void max_grad_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.inputs[1], &dy = c.inputs[2], &dx = c.outputs[0];
  if (dx.size() == 0) return;
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), x.shape);
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    const T *pixels = x.as<const T>(), *results = y.as<const T>(), *slopes = dy.as<const T>();
    if (!pool.tiles())
      return for_image_gradients(c, pool, dx.as<T>(), [&](std::int64_t image, Compute<T>* out) {
        max_gradient_image<false>(pool, image, pixels, results, slopes, out);
      });
    for_images(pool, [&](std::int64_t image) {
      T* out = dx.as<T>() + image * pool.h * pool.w * pool.channels;
      max_gradient_image<true>(pool, image, pixels, results, slopes, out);
    });
  });
}

void max_grad_grad_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.inputs[1], &g = c.inputs[2], &out = c.outputs[0];
  if (out.size() == 0) return;
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), x.shape);
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    for_rows(pool, [&](std::int64_t row) {
      gather_maxima_row(pool, row, x.as<const T>(), y.as<const T>(), g.as<const T>(), out.as<T>());
    });
  });
}

void average_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  if (y.size() == 0) return;
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), x.shape);
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    for_rows(pool, [&](std::int64_t row) { average_row(pool, row, x.as<const T>(), y.as<T>()); });
  });
}

void average_grad_kernel(KernelContext& c) {
  const TensorView &dy = c.inputs[0], &dx = c.outputs[0];
  if (dx.size() == 0) return;
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), dx.shape);
  switch_floating(dx.dtype, [&]<class T>(TypeTag<T>) {
    for_image_gradients(c, pool, dx.as<T>(), [&](std::int64_t image, Compute<T>* gradient) {
      average_gradient_image(pool, image, dy.as<const T>(), gradient);
    });
  });
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
  attrs.height = c.input_spec(0).shape[1];
  attrs.width = c.input_spec(0).shape[2];
  c.set_grad(0, run(kAvgPoolGrad, {&c.grad()}, attrs));
}
void average_grad_gradient(GradContext& c) {
  c.set_grad(0, run(kAvgPool, {&c.grad()}, c.attrs<PoolAttrs>()));
}

const OpDef kMaxPool = {.name = "MaxPool",
                        .attrs = &attrs_type<PoolAttrs>,
                        .infer = infer_pool,
                        .gradient = max_gradient,
                        .cpu_kernel = max_kernel,
                        .saved_inputs = 0b1,
                        .saved_outputs = 0b1};
const OpDef kMaxPoolGrad = {.name = "MaxPoolGrad",
                            .attrs = &attrs_type<PoolAttrs>,
                            .infer = infer_max_grad,
                            .gradient = max_grad_gradient,
                            .cpu_kernel = max_grad_kernel,
                            .saved_inputs = 0b011};
const OpDef kMaxPoolGradGrad = {.name = "MaxPoolGradGrad",
                                .attrs = &attrs_type<PoolAttrs>,
                                .infer = infer_max_grad_grad,
                                .gradient = max_grad_grad_gradient,
                                .cpu_kernel = max_grad_grad_kernel,
                                .saved_inputs = 0b011};
const OpDef kAvgPool = {.name = "AvgPool",
                        .attrs = &attrs_type<PoolAttrs>,
                        .infer = infer_pool,
                        .gradient = average_gradient,
                        .cpu_kernel = average_kernel};
const OpDef kAvgPoolGrad = {.name = "AvgPoolGrad",
                            .attrs = &attrs_type<PoolAttrs>,
                            .infer = infer_average_grad,
                            .gradient = average_grad_gradient,
                            .cpu_kernel = average_grad_kernel};

PoolAttrs attrs_of(const nn::Pool2DOptions& options) {
  const nn::Pair strides = options.strides.value_or(options.window);
  return {.window_h = options.window.height,
          .window_w = options.window.width,
          .stride_h = strides.height,
          .stride_w = strides.width,
          .padding = options.padding};
}

// Pools over one window of the image's size.
Tensor pool_globally(std::string_view name, const OpDef& op, const Tensor& x, bool keepdims) {
  if (x.rank() != 4)
    fail<InvalidArgumentError>("[{}] expected images [n, h, w, c], got shape {}", name,
                               x.shape().to_string());
  const PoolAttrs attrs = attrs_of({.window = {x.dim(1), x.dim(2)}});
  const Tensor y = run(op, {&x}, attrs);
  return keepdims ? y : reshape(y, {x.dim(0), x.dim(3)});
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
