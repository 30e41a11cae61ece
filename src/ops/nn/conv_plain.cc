#include "ops/nn/conv_plain.h"

#include <algorithm>

#include "core/multiversion.h"
#include "core/parallel.h"

namespace tandem {
namespace {

// Calls body(pixel of x, pixel of y, tap) for each pixel of row `oy` of y that tap (ky, kx) of the
// kernel contributes to, in image `image`.
template <class Body>
[[gnu::always_inline]] inline void for_row(const ConvShape& c, std::int64_t image, std::int64_t oy,
                                           std::int64_t ky, std::int64_t kx, const Body& body) {
  const std::int64_t iy = oy * c.stride_h - c.pad_top + ky * c.dilation_h;
  if (iy < 0 || iy >= c.h) return;
  for (std::int64_t ox = 0; ox < c.ow; ++ox) {
    const std::int64_t ix = ox * c.stride_w - c.pad_left + kx * c.dilation_w;
    if (ix < 0 || ix >= c.w) continue;
    body((image * c.h + iy) * c.w + ix, (image * c.oh + oy) * c.ow + ox);
  }
}

TANDEM_MULTIVERSION void forward_row(const ConvShape& c, std::int64_t row, const double* x,
                                     const double* kernel, const double* bias, double* y) {
  const std::int64_t in = c.in / c.groups, out = c.out / c.groups;
  for (std::int64_t i = 0; i < c.ow * c.out; ++i)
    y[row * c.ow * c.out + i] = bias ? bias[i % c.out] : 0.0;
  for (std::int64_t ky = 0; ky < c.kh; ++ky)
    for (std::int64_t kx = 0; kx < c.kw; ++kx)
      for_row(c, row / c.oh, row % c.oh, ky, kx, [&](std::int64_t from, std::int64_t to) {
        for (std::int64_t g = 0; g < c.groups; ++g)
          for (std::int64_t i = 0; i < in; ++i) {
            const double value = x[from * c.in + g * in + i];
            const double* taps = kernel + ((ky * c.kw + kx) * in + i) * c.out + g * out;
            double* sums = y + to * c.out + g * out;
            for (std::int64_t o = 0; o < out; ++o) sums[o] += value * taps[o];
          }
      });
}

TANDEM_MULTIVERSION void backward_input_image(const ConvShape& c, std::int64_t image,
                                              const double* dy, const double* kernel, double* dx) {
  const std::int64_t in = c.in / c.groups, out = c.out / c.groups;
  std::fill_n(dx + image * c.h * c.w * c.in, c.h * c.w * c.in, 0.0);
  for (std::int64_t oy = 0; oy < c.oh; ++oy)
    for (std::int64_t ky = 0; ky < c.kh; ++ky)
      for (std::int64_t kx = 0; kx < c.kw; ++kx)
        for_row(c, image, oy, ky, kx, [&](std::int64_t from, std::int64_t to) {
          for (std::int64_t g = 0; g < c.groups; ++g)
            for (std::int64_t i = 0; i < in; ++i) {
              const double* taps = kernel + ((ky * c.kw + kx) * in + i) * c.out + g * out;
              const double* slopes = dy + to * c.out + g * out;
              double sum = 0.0;
              for (std::int64_t o = 0; o < out; ++o) sum += slopes[o] * taps[o];
              dx[from * c.in + g * in + i] += sum;
            }
        });
}

// The gradient of the kernel's tap (ky, kx).
TANDEM_MULTIVERSION void backward_tap(const ConvShape& c, std::int64_t ky, std::int64_t kx,
                                      const double* x, const double* dy, double* dkernel) {
  const std::int64_t in = c.in / c.groups, out = c.out / c.groups;
  double* tap = dkernel + (ky * c.kw + kx) * in * c.out;
  std::fill_n(tap, in * c.out, 0.0);
  for (std::int64_t row = 0; row < c.n * c.oh; ++row)
    for_row(c, row / c.oh, row % c.oh, ky, kx, [&](std::int64_t from, std::int64_t to) {
      for (std::int64_t g = 0; g < c.groups; ++g)
        for (std::int64_t i = 0; i < in; ++i) {
          const double value = x[from * c.in + g * in + i];
          const double* slopes = dy + to * c.out + g * out;
          double* sums = tap + i * c.out + g * out;
          for (std::int64_t o = 0; o < out; ++o) sums[o] += value * slopes[o];
        }
    });
}

}  // namespace

void plain_conv_forward(const ConvShape& conv, const double* x, const double* kernel,
                        const double* bias, double* y) {
  parallel_for(conv.n * conv.oh, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) forward_row(conv, row, x, kernel, bias, y);
  });
}

void plain_conv_backward_input(const ConvShape& conv, const double* dy, const double* kernel,
                               double* dx) {
  parallel_for(conv.n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t image = begin; image < end; ++image)
      backward_input_image(conv, image, dy, kernel, dx);
  });
}

void plain_conv_backward_filter(const ConvShape& conv, const double* x, const double* dy,
                                double* dkernel) {
  parallel_for(conv.kh * conv.kw, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tap = begin; tap < end; ++tap)
      backward_tap(conv, tap / conv.kw, tap % conv.kw, x, dy, dkernel);
  });
}

}  // namespace tandem
