// The kernels of layer_norm.cc on a GPU.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/nn/norm_attrs.h"

namespace tandem::cuda {
namespace {

struct AddUp {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};

// f(first column, count) for the packs of columns of the calling thread.
template <int kPack, class F>
__device__ void for_packs(const MyRow& row, std::int64_t columns, const F& f) {
  for (std::int64_t j = static_cast<std::int64_t>(row.lane) * kPack; j < columns;
       j += static_cast<std::int64_t>(row.width) * kPack)
    f(j, static_cast<int>(columns - j < kPack ? columns - j : kPack));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    layer_norm_rows(const T* x, const ComputeOf<T>* gamma, const ComputeOf<T>* beta, T* y,
                    ComputeOf<T>* means, ComputeOf<T>* inverses, std::int64_t rows,
                    std::int64_t columns, int width, ComputeOf<T> epsilon) {
  using C = ComputeOf<T>;
  constexpr int kPack = kPackOf<T>;
  const MyRow row(width);
  if (row.index >= rows) return;
  x += row.index * columns;
  y += row.index * columns;
  const C scale = C{1} / static_cast<C>(columns);
  C sum = C{0};
  for_packs<kPack>(row, columns, [&](std::int64_t j, int count) {
    const auto pack = load_pack<kPack>(x, j, count);
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      if (i < count) sum += load_as(pack.at[i]);
  });
  const C mean = over_row(row, sum, AddUp()) * scale;
  C squares = C{0};
  for_packs<kPack>(row, columns, [&](std::int64_t j, int count) {
    const auto pack = load_pack<kPack>(x, j, count);
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      if (i < count) {
        const C distance = load_as(pack.at[i]) - mean;
        squares += distance * distance;
      }
  });
  const C variance = over_row(row, squares, AddUp()) * scale;
  const C inverse = C{1} / ::sqrt(variance + epsilon);
  for_packs<kPack>(row, columns, [&](std::int64_t j, int count) {
    auto pack = load_pack<kPack>(x, j, count);
    const auto scales = load_pack<kPack>(gamma, j, count),
               shifts = load_pack<kPack>(beta, j, count);
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      if (i < count)
        pack.at[i] =
            store_as<T>((load_as(pack.at[i]) - mean) * inverse * scales.at[i] + shifts.at[i]);
    store_pack(y, j, count, pack);
  });
  if (row.lane != 0) return;
  means[row.index] = mean;
  inverses[row.index] = inverse;
}

void layer_norm_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  if (x.size() == 0) return;
  const std::int64_t columns = x.shape.dim(-1), rows = x.size() / columns;
  const int width = row_width(columns);
  switch_floating(x.dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    const C *gamma = converted_on<C>(c, c.inputs[1]), *beta = converted_on<C>(c, c.inputs[2]);
    launch(c, {.blocks = row_blocks(rows, width)}, layer_norm_rows<T>, x.as<const T>(), gamma, beta,
           y.as<T>(), c.outputs[1].as<C>(), c.outputs[2].as<C>(), rows, columns, width,
           static_cast<C>(c.attrs<NormAttrs>().epsilon));
  });
}

// dx = inverse * (dy gamma - mean(dy gamma) - normal mean(dy gamma normal)), where normal is
// (x - mean) * inverse.
template <class T>
__global__ void __launch_bounds__(kThreads)
    layer_norm_grad_rows(const T* dy, const T* x, const ComputeOf<T>* gamma,
                         const ComputeOf<T>* means, const ComputeOf<T>* inverses, T* dx,
                         std::int64_t rows, std::int64_t columns, int width) {
  using C = ComputeOf<T>;
  constexpr int kPack = kPackOf<T>;
  const MyRow row(width);
  if (row.index >= rows) return;
  dy += row.index * columns;
  x += row.index * columns;
  dx += row.index * columns;
  const C mean = means[row.index], inverse = inverses[row.index];
  const C scale = C{1} / static_cast<C>(columns);
  C sum = C{0}, product = C{0};
  for_packs<kPack>(row, columns, [&](std::int64_t j, int count) {
    const auto slopes = load_pack<kPack>(dy, j, count), values = load_pack<kPack>(x, j, count);
    const auto scales = load_pack<kPack>(gamma, j, count);
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      if (i < count) {
        const C slope = load_as(slopes.at[i]) * scales.at[i];
        sum += slope;
        product += slope * ((load_as(values.at[i]) - mean) * inverse);
      }
  });
  sum = over_row(row, sum, AddUp()) * scale;
  product = over_row(row, product, AddUp()) * scale;
  for_packs<kPack>(row, columns, [&](std::int64_t j, int count) {
    auto pack = load_pack<kPack>(dy, j, count);
    const auto values = load_pack<kPack>(x, j, count);
    const auto scales = load_pack<kPack>(gamma, j, count);
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      if (i < count) {
        const C normal = (load_as(values.at[i]) - mean) * inverse;
        pack.at[i] =
            store_as<T>(inverse * (load_as(pack.at[i]) * scales.at[i] - sum - normal * product));
      }
    store_pack(dx, j, count, pack);
  });
}

// Sums of dy and of dy * normal.
template <class T, int kPack>
struct GradientSums {
  using C = ComputeOf<T>;
  const T *dy, *x;
  const C *means, *inverses;
  struct Columns {};
  __device__ Columns of_columns(std::int64_t) const { return {}; }
  __device__ void add(Columns, std::int64_t row, std::int64_t at, TwoSums<C>* sums) const {
    const auto slopes = load_pack<kPack>(dy, at, kPack), values = load_pack<kPack>(x, at, kPack);
    const C mean = means[row], inverse = inverses[row];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const C slope = load_as(slopes.at[i]);
      sums[i].join({slope, slope * ((load_as(values.at[i]) - mean) * inverse)});
    }
  }
};

struct StoreGradients {
  Numbers dgamma, dbeta;
  __device__ void operator()(std::int64_t column, const TwoSums<double>& sums) const {
    dgamma.set(column, sums.second);
    dbeta.set(column, sums.first);
  }
};

template <class T, int kPack>
void parameter_gradients(KernelContext& c, std::int64_t rows, std::int64_t columns) {
  using C = ComputeOf<T>;
  reduce_columns_on<TwoSums<C>, kPack>(
      c, rows, columns,
      GradientSums<T, kPack>{c.inputs[0].as<const T>(), c.inputs[1].as<const T>(),
                             c.inputs[3].as<const C>(), c.inputs[4].as<const C>()},
      StoreGradients{Numbers(c.outputs[1]), Numbers(c.outputs[2])});
}

void layer_norm_grad_kernel(KernelContext& c) {
  const TensorView& x = c.inputs[1];
  const std::int64_t columns = x.shape.dim(-1), rows = x.size() / columns;
  const int width = row_width(columns);
  switch_floating(x.dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    if (rows > 0)
      launch(c, {.blocks = row_blocks(rows, width)}, layer_norm_grad_rows<T>,
             c.inputs[0].as<const T>(), x.as<const T>(), converted_on<C>(c, c.inputs[2]),
             c.inputs[3].as<const C>(), c.inputs[4].as<const C>(), c.outputs[0].as<T>(), rows,
             columns, width);
    if (in_packs<T>(columns))
      parameter_gradients<T, kPackOf<T>>(c, rows, columns);
    else
      parameter_gradients<T, 1>(c, rows, columns);
  });
}

}  // namespace

KernelList layer_norm_kernels() {
  static constexpr CudaKernel kernels[] = {{"LayerNorm", on_gpu<layer_norm_kernel>},
                                           {"LayerNormGrad", on_gpu<layer_norm_grad_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
