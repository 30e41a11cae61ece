// GPU kernels of layer_norm.cc. Rows that are not a multiple of a pack are processed per element.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/nn/norm_attrs.h"

namespace tandem::cuda {
namespace {

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    layer_norm_rows(const T* x, const ComputeOf<T>* gamma, const ComputeOf<T>* beta, T* y,
                    ComputeOf<T>* means, ComputeOf<T>* inverses, std::int64_t rows,
                    std::int64_t columns, int width, ComputeOf<T> epsilon) {
  using C = ComputeOf<T>;
  const MyRow row(width);
  if (row.index >= rows) return;
  x += row.index * columns;
  y += row.index * columns;
  const C scale = C{1} / static_cast<C>(columns);
  C sum = C{0};
  in_packs<kPack>([&](const auto& f) { f(x); },
                  [&] {
                    for_packs<kPack>(row, columns, [&](std::int64_t j) {
                      const auto pack = load_pack<kPack>(x, j, kPack);
#pragma unroll
                      for (int i = 0; i < kPack; ++i) sum += load_as(pack.at[i]);
                    });
                  });
  const C mean = over_row(row, sum, Add()) * scale;
  C squares = C{0};
  in_packs<kPack>([&](const auto& f) { f(x); },
                  [&] {
                    for_packs<kPack>(row, columns, [&](std::int64_t j) {
                      const auto pack = load_pack<kPack>(x, j, kPack);
#pragma unroll
                      for (int i = 0; i < kPack; ++i) {
                        const C distance = load_as(pack.at[i]) - mean;
                        squares += distance * distance;
                      }
                    });
                  });
  const C inverse = C{1} / ::sqrt(over_row(row, squares, Add()) * scale + epsilon);
  const auto memory = [&](const auto& f) {
    f(x);
    f(gamma);
    f(beta);
    f(y);
  };
  in_packs<kPack>(memory, [&] {
    for_packs<kPack>(row, columns, [&](std::int64_t j) {
      auto pack = load_pack<kPack>(x, j, kPack);
      const auto scales = load_pack<kPack>(gamma, j, kPack),
                 shifts = load_pack<kPack>(beta, j, kPack);
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        pack.at[i] =
            store_as<T>((load_as(pack.at[i]) - mean) * inverse * scales.at[i] + shifts.at[i]);
      store_pack(y, j, kPack, pack);
    });
  });
  if (row.lane != 0) return;
  means[row.index] = mean;
  inverses[row.index] = inverse;
}

void layer_norm_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  if (x.size() == 0) return;
  const std::int64_t columns = x.shape.word(-1), rows = x.size() / columns;
  const int width = row_width(columns);
  switch_packs(x.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    using C = ComputeOf<T>;
    const C *gamma = converted_on<C>(c, c.inputs[1]), *beta = converted_on<C>(c, c.inputs[2]);
    launch(c, {.blocks = row_blocks(rows, width)}, layer_norm_rows<T, Pack::value>, x.as<const T>(),
           gamma, beta, y.as<T>(), c.outputs[1].as<C>(), c.outputs[2].as<C>(), rows, columns, width,
           static_cast<C>(c.attrs<NormAttrs>().epsilon));
  });
}

// dx = inverse * (dy gamma - mean(dy gamma) - normal mean(dy gamma normal)), where normal is
// (x - mean) * inverse.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    layer_norm_grad_rows(const T* dy, const T* x, const ComputeOf<T>* gamma,
                         const ComputeOf<T>* means, const ComputeOf<T>* inverses, T* dx,
                         std::int64_t rows, std::int64_t columns, int width) {
  using C = ComputeOf<T>;
  const MyRow row(width);
  if (row.index >= rows) return;
  dy += row.index * columns;
  x += row.index * columns;
  dx += row.index * columns;
  const C mean = means[row.index], inverse = inverses[row.index];
  const C scale = C{1} / static_cast<C>(columns);
  C sum = C{0}, product = C{0};
  const auto memory = [&](const auto& f) {
    f(dy);
    f(x);
    f(gamma);
    f(dx);
  };
  in_packs<kPack>(memory, [&] {
    for_packs<kPack>(row, columns, [&](std::int64_t j) {
      const auto slopes = load_pack<kPack>(dy, j, kPack), values = load_pack<kPack>(x, j, kPack);
      const auto scales = load_pack<kPack>(gamma, j, kPack);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const C slope = load_as(slopes.at[i]) * scales.at[i];
        sum += slope;
        product += slope * ((load_as(values.at[i]) - mean) * inverse);
      }
    });
  });
  sum = over_row(row, sum, Add()) * scale;
  product = over_row(row, product, Add()) * scale;
  in_packs<kPack>(memory, [&] {
    for_packs<kPack>(row, columns, [&](std::int64_t j) {
      auto pack = load_pack<kPack>(dy, j, kPack);
      const auto values = load_pack<kPack>(x, j, kPack);
      const auto scales = load_pack<kPack>(gamma, j, kPack);
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const C normal = (load_as(values.at[i]) - mean) * inverse;
        pack.at[i] =
            store_as<T>(inverse * (load_as(pack.at[i]) * scales.at[i] - sum - normal * product));
      }
      store_pack(dx, j, kPack, pack);
    });
  });
}

// Sums of dy and of dy * normal.
template <class T, int kPack>
struct GradientSums {
  using C = ComputeOf<T>;
  const T *dy, *x;
  const C *means, *inverses;
  static constexpr int kRows = 4;
  struct Columns {};
  template <class F>
  __device__ void memory(const F& f) const {
    f(dy);
    f(x);
  }
  __device__ Columns of_columns(std::int64_t) const { return {}; }
  template <int kCount>
  __device__ void add(Columns, const SomeRows<kCount>& rows, TwoSums<C>* sums) const {
    Pack<T, kPack> slopes[kCount], values[kCount];
    rows.load(dy, slopes);
    rows.load(x, values);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      const C mean = means[rows.row(n)], inverse = inverses[rows.row(n)];
#pragma unroll
      for (int i = 0; i < kPack; ++i) {
        const C slope = load_as(slopes[n].at[i]);
        sums[i].join({slope, slope * ((load_as(values[n].at[i]) - mean) * inverse)});
      }
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
  const std::int64_t columns = x.shape.word(-1), rows = x.size() / columns;
  const int width = row_width(columns);
  switch_packs(x.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    using C = ComputeOf<T>;
    if (rows > 0)
      launch(c, {.blocks = row_blocks(rows, width)}, layer_norm_grad_rows<T, Pack::value>,
             c.inputs[0].as<const T>(), x.as<const T>(), converted_on<C>(c, c.inputs[2]),
             c.inputs[3].as<const C>(), c.inputs[4].as<const C>(), c.outputs[0].as<T>(), rows,
             columns, width);
    parameter_gradients<T, Pack::value>(c, rows, columns);
  });
}

}  // namespace

KernelList layer_norm_kernels() {
  static constexpr CudaKernel kernels[] = {{"LayerNorm", on_gpu<layer_norm_kernel>},
                                           {"LayerNormGrad", on_gpu<layer_norm_grad_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
