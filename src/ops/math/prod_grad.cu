// The kernels of prod_grad.cc on a GPU.
#include "ops/math/prod_grad.h"

#include <cmath>

#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

// Data [a, length, inner] in blocks of `block` along axis 1: one thread per block and column.
struct ProductBlocks {
  std::int64_t length, inner, block, blocks, threads;

  explicit ProductBlocks(const Shape& shape) : length(shape[1]), inner(shape[2]) {
    // As many blocks as elements of a block, which the second kernel walks through.
    block = std::max<std::int64_t>(64, std::llround(std::sqrt(static_cast<double>(length))));
    blocks = (length + block - 1) / block;
    threads = shape[0] * blocks * inner;
  }
  // The first element of a thread, and its number of elements, `inner` apart.
  __device__ std::int64_t begin(std::int64_t thread) const {
    const std::int64_t row = thread / inner;
    return (row / blocks * length + row % blocks * block) * inner + thread % inner;
  }
  __device__ std::int64_t count(std::int64_t thread) const {
    const std::int64_t left = length - thread / inner % blocks * block;
    return left < block ? left : block;
  }
};

__device__ __forceinline__ std::int64_t my_thread() {
  return static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    block_products(const T* x, ComputeOf<T>* products, ProductBlocks of) {
  const std::int64_t thread = my_thread();
  if (thread >= of.threads) return;
  x += of.begin(thread);
  ComputeOf<T> product{1};
  for (std::int64_t left = of.count(thread); left > 0; --left, x += of.inner)
    product *= load_as(*x);
  products[thread] = product;
}

// Replaces the product of each block by that of the others, times dy. One thread per column.
template <class T>
__global__ void __launch_bounds__(kThreads)
    products_of_other_blocks(const ComputeOf<T>* products, const T* dy, ComputeOf<T>* others,
                             ProductBlocks of, std::int64_t columns) {
  using C = ComputeOf<T>;
  const std::int64_t column = my_thread();
  if (column >= columns) return;
  const std::int64_t first = column / of.inner * of.blocks * of.inner + column % of.inner;
  C product{1};
  for (std::int64_t i = 0; i < of.blocks; ++i) {
    others[first + i * of.inner] = product;
    product *= products[first + i * of.inner];
  }
  product = load_as(dy[column]);
  for (std::int64_t i = of.blocks - 1; i >= 0; --i) {
    others[first + i * of.inner] *= product;
    product *= products[first + i * of.inner];
  }
}

// `before` has space for an element's product of those before it; it may be dx.
template <class T>
__global__ void __launch_bounds__(kThreads)
    products_of_other_elements(const T* x, const ComputeOf<T>* others, ComputeOf<T>* before, T* dx,
                               ProductBlocks of) {
  using C = ComputeOf<T>;
  const std::int64_t thread = my_thread();
  if (thread >= of.threads) return;
  const std::int64_t begin = of.begin(thread), end = begin + of.count(thread) * of.inner;
  C product{1};
  for (std::int64_t i = begin; i < end; i += of.inner) {
    before[i] = product;
    product *= load_as(x[i]);
  }
  product = others[thread];
  for (std::int64_t i = end - of.inner; i >= begin; i -= of.inner) {
    const C own = load_as(x[i]);
    dx[i] = store_as<T>(before[i] * product);
    product *= own;
  }
}

void prod_grad_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &dy = c.inputs[1];
  if (x.size() == 0) return;
  const ProductBlocks of(x.shape);
  switch_floating(x.dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    const auto take = [&](std::int64_t count) {
      return static_cast<C*>(c.scratch(static_cast<std::size_t>(count) * sizeof(C)));
    };
    C *products = take(of.threads), *others = take(of.threads), *before;
    if constexpr (is_16_bit<T>)
      before = take(x.size());
    else
      before = c.outputs[0].as<T>();
    launch(c, {.blocks = blocks_for(of.threads)}, block_products<T>, x.as<const T>(), products, of);
    launch(c, {.blocks = blocks_for(dy.size())}, products_of_other_blocks<T>,
           static_cast<const C*>(products), dy.as<const T>(), others, of, dy.size());
    launch(c, {.blocks = blocks_for(of.threads)}, products_of_other_elements<T>, x.as<const T>(),
           static_cast<const C*>(others), before, c.outputs[0].as<T>(), of);
  });
}

}  // namespace

KernelList prod_grad_kernels() {
  static constexpr CudaKernel kernels[] = {{"ProdGrad", on_gpu<prod_grad_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
