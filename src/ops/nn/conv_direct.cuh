// Direct convolutions for shapes that cuDNN does not support. They are slow. The order of sums
// depends only on the shape.
#pragma once

#include <algorithm>

#include "ops/conv_shape.h"
#include "ops/cuda/elements.cuh"

namespace tandem::cuda {

// The image position that tap `tap` of the window at `at` reads. It is in the padding if it is not
// in [0, size).
__device__ __forceinline__ std::int64_t tap_position(std::int64_t at, std::int64_t stride,
                                                     std::int64_t pad, std::int64_t tap,
                                                     std::int64_t dilation) {
  return at * stride - pad + tap * dilation;
}

// One thread per element of y.
template <class T>
__global__ void __launch_bounds__(kThreads)
    conv_forward_direct(ConvShape s, const T* x, const T* kernel, T* y) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= s.n * s.oh * s.ow * s.out) return;
  const std::int64_t in = s.in / s.groups, out = s.out / s.groups;
  const std::int64_t o = index % s.out, ox = index / s.out % s.ow,
                     oy = index / (s.out * s.ow) % s.oh, image = index / (s.out * s.ow * s.oh);
  ComputeOf<T> sum = 0;
  for (std::int64_t ky = 0; ky < s.kh; ++ky) {
    const std::int64_t iy = tap_position(oy, s.stride_h, s.pad_top, ky, s.dilation_h);
    if (iy < 0 || iy >= s.h) continue;
    for (std::int64_t kx = 0; kx < s.kw; ++kx) {
      const std::int64_t ix = tap_position(ox, s.stride_w, s.pad_left, kx, s.dilation_w);
      if (ix < 0 || ix >= s.w) continue;
      const T* from = x + ((image * s.h + iy) * s.w + ix) * s.in + o / out * in;
      const T* taps = kernel + (ky * s.kw + kx) * in * s.out + o;
      for (std::int64_t i = 0; i < in; ++i) sum += load_as(from[i]) * load_as(taps[i * s.out]);
    }
  }
  y[index] = store_as<T>(sum);
}

// The window whose tap reads `position`; -1 if there is none.
__device__ __forceinline__ std::int64_t window_at(std::int64_t position, std::int64_t stride,
                                                  std::int64_t pad, std::int64_t tap,
                                                  std::int64_t dilation, std::int64_t places) {
  const std::int64_t start = position + pad - tap * dilation;
  if (start < 0 || start % stride != 0 || start / stride >= places) return -1;
  return start / stride;
}

// One thread per element of dx.
template <class T>
__global__ void __launch_bounds__(kThreads)
    conv_backward_input_direct(ConvShape s, const T* dy, const T* kernel, T* dx) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= s.n * s.h * s.w * s.in) return;
  const std::int64_t in = s.in / s.groups, out = s.out / s.groups;
  const std::int64_t i = index % s.in, ix = index / s.in % s.w, iy = index / (s.in * s.w) % s.h,
                     image = index / (s.in * s.w * s.h);
  ComputeOf<T> sum = 0;
  for (std::int64_t ky = 0; ky < s.kh; ++ky) {
    const std::int64_t oy = window_at(iy, s.stride_h, s.pad_top, ky, s.dilation_h, s.oh);
    if (oy < 0) continue;
    for (std::int64_t kx = 0; kx < s.kw; ++kx) {
      const std::int64_t ox = window_at(ix, s.stride_w, s.pad_left, kx, s.dilation_w, s.ow);
      if (ox < 0) continue;
      const T* slopes = dy + ((image * s.oh + oy) * s.ow + ox) * s.out + i / in * out;
      const T* taps = kernel + ((ky * s.kw + kx) * in + i % in) * s.out + i / in * out;
      for (std::int64_t o = 0; o < out; ++o) sum += load_as(slopes[o]) * load_as(taps[o]);
    }
  }
  dx[index] = store_as<T>(sum);
}

// Divides the n * oh rows of all results into pieces. One thread per kernel element and piece
// computes sums [pieces, elements].
template <class T>
__global__ void __launch_bounds__(kThreads)
    conv_backward_filter_direct(ConvShape s, std::int64_t pieces, std::int64_t piece, const T* x,
                                const T* dy, ComputeOf<T>* sums) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t in = s.in / s.groups, out = s.out / s.groups;
  const std::int64_t elements = s.kh * s.kw * in * s.out;
  if (index >= pieces * elements) return;
  const std::int64_t element = index % elements, begin = index / elements * piece;
  const std::int64_t rows = s.n * s.oh, end = begin + piece < rows ? begin + piece : rows;
  const std::int64_t o = element % s.out, i = element / s.out % in,
                     kx = element / (s.out * in) % s.kw, ky = element / (s.out * in * s.kw);
  ComputeOf<T> sum = 0;
  for (std::int64_t row = begin; row < end; ++row) {
    const std::int64_t iy = tap_position(row % s.oh, s.stride_h, s.pad_top, ky, s.dilation_h);
    if (iy < 0 || iy >= s.h) continue;
    const T* from = x + (row / s.oh * s.h + iy) * s.w * s.in + o / out * in + i;
    for (std::int64_t ox = 0; ox < s.ow; ++ox) {
      const std::int64_t ix = tap_position(ox, s.stride_w, s.pad_left, kx, s.dilation_w);
      if (ix < 0 || ix >= s.w) continue;
      sum += load_as(from[ix * s.in]) * load_as(dy[(row * s.ow + ox) * s.out + o]);
    }
  }
  sums[index] = sum;
}

// Adds up the pieces; one thread per element.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_pieces(const ComputeOf<T>* sums, std::int64_t pieces, std::int64_t elements, T* out) {
  const std::int64_t element = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (element >= elements) return;
  ComputeOf<T> sum = 0;
  for (std::int64_t piece = 0; piece < pieces; ++piece) sum += sums[piece * elements + element];
  out[element] = store_as<T>(sum);
}

}  // namespace tandem::cuda
