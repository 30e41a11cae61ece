// GPU kernels of pool.cc. Each thread computes some adjacent channels of one pixel of the result.
// Gradients are gathered in order from the windows that cover a pixel, so that they need no
// atomics.
#include "ops/nn/pool.h"

#include "ops/cuda/kernel_list.h"
#include "ops/cuda/reduce.cuh"

namespace tandem::cuda {
namespace {

// The pixel and the channels of [n, rows, columns, channels] that the calling thread computes.
template <int kPack>
struct MyPixel {
  std::int64_t image, row, column, channel;
  std::int64_t at;  // of the first element
  bool there;

  __device__ MyPixel(const Pool& pool, std::int64_t rows, std::int64_t columns) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    const std::int64_t packs = pool.channels / kPack, all = pool.n * rows * columns * packs;
    there = i < all;
    at = i * kPack;
    if (all <= INT32_MAX)  // divisions of 32 bits take a fraction of the time
      find(static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(rows),
           static_cast<std::uint32_t>(columns), static_cast<std::uint32_t>(packs));
    else
      find(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(rows),
           static_cast<std::uint64_t>(columns), static_cast<std::uint64_t>(packs));
  }

 private:
  template <class Index>
  __device__ void find(Index i, Index rows, Index columns, Index packs) {
    channel = static_cast<std::int64_t>(i % packs) * kPack;
    i /= packs;
    column = static_cast<std::int64_t>(i % columns);
    i /= columns;
    row = static_cast<std::int64_t>(i % rows);
    image = static_cast<std::int64_t>(i / rows);
  }
};

__device__ std::int64_t input_at(const Pool& p, std::int64_t image, std::int64_t y, std::int64_t x,
                                 std::int64_t channel) {
  return ((image * p.h + y) * p.w + x) * p.channels + channel;
}
__device__ std::int64_t output_at(const Pool& p, std::int64_t image, std::int64_t oy,
                                  std::int64_t ox, std::int64_t channel) {
  return ((image * p.oh + oy) * p.ow + ox) * p.channels + channel;
}

// If several pixels are equal, the first one in row-major order is the maximum. The maximum of a
// window with a NaN is NaN.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) max_pool(Pool p, const T* x, T* y) {
  const MyPixel<kPack> mine(p, p.oh, p.ow);
  if (!mine.there) return;
  const PoolWindow window(p, mine.row, mine.column);
  auto best =
      load_pack<kPack>(x, input_at(p, mine.image, window.top, window.left, mine.channel), kPack);
  for (std::int64_t iy = window.top; iy < window.bottom; ++iy)
    for (std::int64_t ix = window.left; ix < window.right; ++ix) {
      const auto pixel = load_pack<kPack>(x, input_at(p, mine.image, iy, ix, mine.channel), kPack);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const auto value = load_as(pixel.at[i]);
        if (value > load_as(best.at[i]) || value != value) best.at[i] = pixel.at[i];
      }
    }
  store_pack(y, mine.at, kPack, best);
}

// Whether all pixels of the window before (y, x) are below `best`, so that none of them gets the
// window's gradient.
template <class T>
__device__ bool is_first(const Pool& p, const PoolWindow& window, const T* x, std::int64_t image,
                         std::int64_t at_y, std::int64_t at_x, std::int64_t channel,
                         ComputeOf<T> best) {
  for (std::int64_t iy = window.top; iy <= at_y; ++iy)
    for (std::int64_t ix = window.left; ix < (iy == at_y ? at_x : window.right); ++ix)
      if (!(load_as(x[input_at(p, image, iy, ix, channel)]) < best)) return false;
  return true;
}

// Adds each window's gradient to its first pixel that is not below the maximum.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    max_pool_grad(Pool p, const T* x, const T* y, const T* dy, T* dx) {
  using C = ComputeOf<T>;
  const MyPixel<kPack> mine(p, p.h, p.w);
  if (!mine.there) return;
  const auto pixel = load_pack<kPack>(x, mine.at, kPack);
  C sums[kPack] = {};
  const Pool::WindowRange rows = p.rows_over(mine.row), columns = p.columns_over(mine.column);
  for (std::int64_t oy = rows.first; oy < rows.last; ++oy)
    for (std::int64_t ox = columns.first; ox < columns.last; ++ox) {
      const std::int64_t at = output_at(p, mine.image, oy, ox, mine.channel);
      const auto best = load_pack<kPack>(y, at, kPack), slope = load_pack<kPack>(dy, at, kPack);
      const PoolWindow window(p, oy, ox);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const C largest = load_as(best.at[i]);
        if (load_as(pixel.at[i]) < largest) continue;
        if (is_first(p, window, x, mine.image, mine.row, mine.column, mine.channel + i, largest))
          sums[i] += load_as(slope.at[i]);
      }
    }
  Pack<T, kPack> result;
#pragma unroll
  for (int i = 0; i < kPack; ++i) result.at[i] = store_as<T>(sums[i]);
  store_pack(dx, mine.at, kPack, result);
}

// Selects the elements of g at the positions of the maxima of x.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    gather_maxima(Pool p, const T* x, const T* y, const T* g, T* out) {
  const MyPixel<kPack> mine(p, p.oh, p.ow);
  if (!mine.there) return;
  const PoolWindow window(p, mine.row, mine.column);
  const auto best = load_pack<kPack>(y, mine.at, kPack);
  Pack<T, kPack> result;
#pragma unroll
  for (int i = 0; i < kPack; ++i) {
    result.at[i] = store_as<T>(0.0f);
    bool found = false;
    for (std::int64_t iy = window.top; iy < window.bottom && !found; ++iy)
      for (std::int64_t ix = window.left; ix < window.right && !found; ++ix) {
        const std::int64_t from = input_at(p, mine.image, iy, ix, mine.channel + i);
        if (load_as(x[from]) < load_as(best.at[i])) continue;
        result.at[i] = g[from];
        found = true;
      }
  }
  store_pack(out, mine.at, kPack, result);
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) average_pool(Pool p, const T* x, T* y) {
  using C = ComputeOf<T>;
  const MyPixel<kPack> mine(p, p.oh, p.ow);
  if (!mine.there) return;
  const PoolWindow window(p, mine.row, mine.column);
  C sums[kPack] = {};
  for (std::int64_t iy = window.top; iy < window.bottom; ++iy)
    for (std::int64_t ix = window.left; ix < window.right; ++ix) {
      const auto pixel = load_pack<kPack>(x, input_at(p, mine.image, iy, ix, mine.channel), kPack);
#pragma unroll
      for (int i = 0; i < kPack; ++i) sums[i] += load_as(pixel.at[i]);
    }
  const C scale = C{1} / static_cast<C>(window.count());
  Pack<T, kPack> result;
#pragma unroll
  for (int i = 0; i < kPack; ++i) result.at[i] = store_as<T>(sums[i] * scale);
  store_pack(y, mine.at, kPack, result);
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads) average_pool_grad(Pool p, const T* dy, T* dx) {
  using C = ComputeOf<T>;
  const MyPixel<kPack> mine(p, p.h, p.w);
  if (!mine.there) return;
  C sums[kPack] = {};
  const Pool::WindowRange rows = p.rows_over(mine.row), columns = p.columns_over(mine.column);
  for (std::int64_t oy = rows.first; oy < rows.last; ++oy)
    for (std::int64_t ox = columns.first; ox < columns.last; ++ox) {
      const C scale = C{1} / static_cast<C>(PoolWindow(p, oy, ox).count());
      const auto slope =
          load_pack<kPack>(dy, output_at(p, mine.image, oy, ox, mine.channel), kPack);
#pragma unroll
      for (int i = 0; i < kPack; ++i) sums[i] += load_as(slope.at[i]) * scale;
    }
  Pack<T, kPack> result;
#pragma unroll
  for (int i = 0; i < kPack; ++i) result.at[i] = store_as<T>(sums[i]);
  store_pack(dx, mine.at, kPack, result);
}

// Calls f(Type<T>, channels per thread as a constant, number of blocks for `size` elements).
template <class F>
void switch_channels(DType dtype, const Pool& pool, std::int64_t size, const F& f) {
  switch_floating(dtype, [&]<class T>(Type<T> type) {
    constexpr int kPack = kPackOf<T>;
    if (pool.channels % kPack == 0)
      f(type, std::integral_constant<int, kPack>(), blocks_for(size / kPack));
    else
      f(type, std::integral_constant<int, 1>(), blocks_for(size));
  });
}

void max_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  if (y.size() == 0) return;
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), x.shape);
  switch_channels(x.dtype, pool, y.size(), [&]<class T, class N>(Type<T>, N, unsigned blocks) {
    launch(c, {.blocks = blocks}, max_pool<T, N::value>, pool, x.as<const T>(), y.as<T>());
  });
}

void max_grad_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &dx = c.outputs[0];
  if (dx.size() == 0) return;
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), x.shape);
  switch_channels(x.dtype, pool, dx.size(), [&]<class T, class N>(Type<T>, N, unsigned blocks) {
    launch(c, {.blocks = blocks}, max_pool_grad<T, N::value>, pool, x.as<const T>(),
           c.inputs[1].as<const T>(), c.inputs[2].as<const T>(), dx.as<T>());
  });
}

void max_grad_grad_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &out = c.outputs[0];
  if (out.size() == 0) return;
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), x.shape);
  switch_channels(x.dtype, pool, out.size(), [&]<class T, class N>(Type<T>, N, unsigned blocks) {
    launch(c, {.blocks = blocks}, gather_maxima<T, N::value>, pool, x.as<const T>(),
           c.inputs[1].as<const T>(), c.inputs[2].as<const T>(), out.as<T>());
  });
}

void average_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  if (y.size() == 0) return;
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), x.shape);
  if (pool.oh * pool.ow == 1 &&
      PoolWindow(pool, 0, 0).count() == pool.h * pool.w) {  // one window over the whole image
    switch_floating(x.dtype, [&]<class T>(Type<T>) { reduce_on<T>(c, x, 0b0110, y, Mean()); });
    return;
  }
  switch_channels(x.dtype, pool, y.size(), [&]<class T, class N>(Type<T>, N, unsigned blocks) {
    launch(c, {.blocks = blocks}, average_pool<T, N::value>, pool, x.as<const T>(), y.as<T>());
  });
}

void average_grad_kernel(KernelContext& c) {
  const TensorView &dy = c.inputs[0], &dx = c.outputs[0];
  if (dx.size() == 0) return;
  const Pool pool = pool_of("", c.attrs<PoolAttrs>(), dx.shape);
  switch_channels(dx.dtype, pool, dx.size(), [&]<class T, class N>(Type<T>, N, unsigned blocks) {
    launch(c, {.blocks = blocks}, average_pool_grad<T, N::value>, pool, dy.as<const T>(),
           dx.as<T>());
  });
}

}  // namespace

KernelList pool_kernels() {
  static constexpr CudaKernel kernels[] = {{"MaxPool", on_gpu<max_kernel>},
                                           {"MaxPoolGrad", on_gpu<max_grad_kernel>},
                                           {"MaxPoolGradGrad", on_gpu<max_grad_grad_kernel>},
                                           {"AvgPool", on_gpu<average_kernel>},
                                           {"AvgPoolGrad", on_gpu<average_grad_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
