// The kernels of pool.cc on the CPU.
#include <algorithm>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "op/dtype_switch.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/math/in_float32.h"
#include "ops/nn/pool.h"

namespace tandem {
namespace {

// Channels per chunk: a chunk fits into a kernel's buffer on the stack.
constexpr std::int64_t kPoolChunk = 256;

// The kernels below compute the output row `row` (of n * oh), or all rows of image `image`, for all
// channels. If several pixels are equal, the first one in row-major order is the maximum, as in
// TensorFlow. The maximum of a window with a NaN is NaN.

// Takes the earlier one of equal pixels.
struct MaxOfPixels {
  static constexpr bool kAssociative = true;
  template <class C>
  TANDEM_INLINED C operator()(C earlier, C later) const {
    return cpu::Maximum()(later, earlier);
  }
};
struct SumOfPixels {
  static constexpr bool kAssociative = false;
  template <class C>
  TANDEM_INLINED C operator()(C earlier, C later) const {
    return earlier + later;
  }
};

// Combine the result of each channel with one, two or four neighbouring pixels, in their order.
template <class Op, class From, class C>
TANDEM_INLINED void combine_one(const From* pixel, std::int64_t count, C* result) {
#pragma GCC ivdep
  for (std::int64_t c = 0; c < count; ++c) result[c] = Op()(result[c], static_cast<C>(pixel[c]));
}
template <class Op, class From, class C>
TANDEM_INLINED void combine_two(const From* pixel, std::int64_t channels, std::int64_t count,
                                C* result) {
  const From* next = pixel + channels;
#pragma GCC ivdep
  for (std::int64_t c = 0; c < count; ++c)
    result[c] = Op()(Op()(result[c], static_cast<C>(pixel[c])), static_cast<C>(next[c]));
}
template <class Op, class From, class C>
TANDEM_INLINED void combine_four(const From* pixel, std::int64_t channels, std::int64_t count,
                                 C* result) {
  const From *second = pixel + channels, *third = second + channels, *fourth = third + channels;
#pragma GCC ivdep
  for (std::int64_t c = 0; c < count; ++c) {
    const C a = static_cast<C>(pixel[c]), b = static_cast<C>(second[c]);
    const C d = static_cast<C>(third[c]), e = static_cast<C>(fourth[c]);
    if constexpr (Op::kAssociative)  // does not wait for the pixels before
      result[c] = Op()(result[c], Op()(Op()(a, b), Op()(d, e)));
    else
      result[c] = Op()(Op()(Op()(Op()(result[c], a), b), d), e);
  }
}

// Combines `count` channels of the pixels of a window. `x` points to the first of the channels.
template <class Op, class T, class C>
TANDEM_INLINED void combine_window(const Pool& p, const PoolWindow& window, const T* x,
                                   std::int64_t count, C* result) {
  for (std::int64_t iy = window.top; iy < window.bottom; ++iy) {
    const T* pixel = x + (iy * p.w + window.left) * p.channels;
    std::int64_t left = window.right - window.left;
    for (; left >= 4; left -= 4, pixel += 4 * p.channels)
      combine_four<Op>(pixel, p.channels, count, result);
    for (; left >= 2; left -= 2, pixel += 2 * p.channels)
      combine_two<Op>(pixel, p.channels, count, result);
    for (; left > 0; --left, pixel += p.channels) combine_one<Op>(pixel, count, result);
  }
}

template <class Op, class T>
TANDEM_INLINED void combine_row(Pool p, std::int64_t row, const T* x, T* y) {
  using C = Compute<T>;
  const std::int64_t image = row / p.oh, oy = row % p.oh;
  alignas(64) C wide[is_16_bit_floating<T> ? kPoolChunk : 1];
  for (std::int64_t ox = 0; ox < p.ow; ++ox) {
    const PoolWindow window(p, oy, ox);
    for (std::int64_t start = 0; start < p.channels; start += kPoolChunk) {
      const std::int64_t count = std::min(kPoolChunk, p.channels - start);
      const T* from = x + image * p.h * p.w * p.channels + start;
      T* out = y + (row * p.ow + ox) * p.channels + start;
      C* result = nullptr;
      if constexpr (is_16_bit_floating<T>)
        result = wide;
      else
        result = out;
      if constexpr (std::is_same_v<Op, MaxOfPixels>)
        load_floats(from + (window.top * p.w + window.left) * p.channels, result, count);
      else
        std::fill_n(result, count, C(0));
      combine_window<Op>(p, window, from, count, result);
      if constexpr (std::is_same_v<Op, SumOfPixels>) {
        const C scale = C(1) / static_cast<C>(window.count());
        for (std::int64_t c = 0; c < count; ++c) result[c] *= scale;
      }
      if constexpr (is_16_bit_floating<T>) narrow(result, out, count);
    }
  }
}

// Moves the gradients in `rest` of those channels whose pixel is not below the result `best`. The
// gradient of a pixel is set if kSet, else added to.
template <bool kSet, class From, class C>
TANDEM_INLINED void share_one(const From* pixel, const From* best, std::int64_t count, C* rest,
                              C* out) {
#pragma GCC ivdep
  for (std::int64_t c = 0; c < count; ++c) {
    const bool below = static_cast<C>(pixel[c]) < static_cast<C>(best[c]);
    out[c] = (kSet ? C(0) : out[c]) + (below ? C(0) : rest[c]);
    rest[c] = below ? rest[c] : C(0);
  }
}
// The same for a pixel and the next one.
template <bool kSet, class From, class C>
TANDEM_INLINED void share_two(const From* pixel, const From* best, std::int64_t channels,
                              std::int64_t count, C* rest, C* out, C* out_of_next) {
  const From* next = pixel + channels;
#pragma GCC ivdep
  for (std::int64_t c = 0; c < count; ++c) {
    const C most = static_cast<C>(best[c]), whole = rest[c];
    const bool below = static_cast<C>(pixel[c]) < most;
    const C left = below ? whole : C(0);
    const bool next_below = static_cast<C>(next[c]) < most;
    out[c] = (kSet ? C(0) : out[c]) + (below ? C(0) : whole);
    out_of_next[c] = (kSet ? C(0) : out_of_next[c]) + (next_below ? C(0) : left);
    rest[c] = next_below ? left : C(0);
  }
}

// Adds each window's gradient to its maximum, which is the first pixel that is not below the
// result. If the result is NaN, that is a NaN. kTiles: each pixel is in one window, so that sums
// need no wider type.
template <bool kTiles, class T>
TANDEM_INLINED void max_gradient_image(Pool p, std::int64_t image, const T* x, const T* y,
                                       const T* dy, std::conditional_t<kTiles, T, Compute<T>>* dx) {
  using C = Compute<T>;
  constexpr bool kRounds = kTiles && is_16_bit_floating<T>;
  alignas(64) C rest[kPoolChunk], shares[2][kRounds ? kPoolChunk : 1];
  const std::int64_t channels = p.channels;
  if constexpr (!kTiles) std::fill_n(dx, p.h * p.w * channels, C(0));
  for (std::int64_t oy = 0; oy < p.oh; ++oy)
    for (std::int64_t ox = 0; ox < p.ow; ++ox) {
      const PoolWindow window(p, oy, ox);
      const std::int64_t at = ((image * p.oh + oy) * p.ow + ox) * channels;
      for (std::int64_t start = 0; start < channels; start += kPoolChunk) {
        const std::int64_t count = std::min(kPoolChunk, channels - start);
        const T* best = y + at + start;
        load_floats(dy + at + start, rest, count);
        for (std::int64_t iy = window.top; iy < window.bottom; ++iy) {
          const std::int64_t first = (iy * p.w + window.left) * channels + start;
          const T* pixel = x + image * p.h * p.w * channels + first;
          auto* out = dx + first;
          std::int64_t left = window.right - window.left;
          for (; left >= 2; left -= 2, pixel += 2 * channels, out += 2 * channels) {
            if constexpr (kRounds) {
              share_two<true>(pixel, best, channels, count, rest, shares[0], shares[1]);
              narrow(shares[0], out, count);
              narrow(shares[1], out + channels, count);
            } else {
              share_two<kTiles>(pixel, best, channels, count, rest, out, out + channels);
            }
          }
          for (; left > 0; --left, pixel += channels, out += channels) {
            if constexpr (kRounds) {
              share_one<true>(pixel, best, count, rest, shares[0]);
              narrow(shares[0], out, count);
            } else {
              share_one<kTiles>(pixel, best, count, rest, out);
            }
          }
        }
      }
    }
}

// Selects the elements of g at the positions of the maxima of x.
template <class T>
TANDEM_INLINED void gather_maxima_row(Pool p, std::int64_t row, const T* x, const T* y, const T* g,
                                      T* out) {
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
TANDEM_INLINED void average_gradient_image(Pool p, std::int64_t image, const T* dy,
                                           Compute<T>* dx) {
  using C = Compute<T>;
  const std::int64_t channels = p.channels;
  std::fill_n(dx, p.h * p.w * channels, C(0));
  for (std::int64_t oy = 0; oy < p.oh; ++oy)
    for (std::int64_t ox = 0; ox < p.ow; ++ox) {
      const PoolWindow window(p, oy, ox);
      const C scale = C(1) / static_cast<C>(window.count());
      for (std::int64_t start = 0; start < channels; start += kPoolChunk) {
        const std::int64_t count = std::min(kPoolChunk, channels - start);
        const T* slope = dy + ((image * p.oh + oy) * p.ow + ox) * channels + start;
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

template <class Op>
void combine_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  if (y.size() == 0) return;
  const InFloat32 in_float32(c);
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), x.shape);
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    for_rows(pool, [&](std::int64_t row) {
      run_loop<T, combine_row<Op, T>>(pool, row, x.as<const T>(), y.as<T>());
    });
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

// Calls body(image, dx) for each image, with its gradient dx in the compute type. Then rounds dx to
// the output.
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

}  // namespace

void max_pool_kernel(KernelContext& c) { combine_kernel<MaxOfPixels>(c); }

void max_pool_grad_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.inputs[1], &dy = c.inputs[2], &dx = c.outputs[0];
  if (dx.size() == 0) return;
  const InFloat32 in_float32(c);
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), x.shape);
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    const T *pixels = x.as<const T>(), *results = y.as<const T>(), *slopes = dy.as<const T>();
    if (!pool.tiles())
      return for_image_gradients(c, pool, dx.as<T>(), [&](std::int64_t image, Compute<T>* out) {
        run_loop<T, max_gradient_image<false, T>>(pool, image, pixels, results, slopes, out);
      });
    for_images(pool, [&](std::int64_t image) {
      T* out = dx.as<T>() + image * pool.h * pool.w * pool.channels;
      run_loop<T, max_gradient_image<true, T>>(pool, image, pixels, results, slopes, out);
    });
  });
}

void max_pool_grad_grad_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.inputs[1], &g = c.inputs[2], &out = c.outputs[0];
  if (out.size() == 0) return;
  const InFloat32 in_float32(c);
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), x.shape);
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    for_rows(pool, [&](std::int64_t row) {
      run_loop<T, gather_maxima_row<T>>(pool, row, x.as<const T>(), y.as<const T>(),
                                        g.as<const T>(), out.as<T>());
    });
  });
}

void avg_pool_kernel(KernelContext& c) { combine_kernel<SumOfPixels>(c); }

void avg_pool_grad_kernel(KernelContext& c) {
  const TensorView &dy = c.inputs[0], &dx = c.outputs[0];
  if (dx.size() == 0) return;
  const InFloat32 in_float32(c);
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), dx.shape);
  switch_floating(dx.dtype, [&]<class T>(TypeTag<T>) {
    for_image_gradients(c, pool, dx.as<T>(), [&](std::int64_t image, Compute<T>* gradient) {
      run_loop<T, average_gradient_image<T>>(pool, image, dy.as<const T>(), gradient);
    });
  });
}

}  // namespace tandem
