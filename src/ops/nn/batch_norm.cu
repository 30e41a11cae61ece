// The kernels of batch_norm.cc on a GPU.
#include "ops/cuda/columns.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/numbers.cuh"
#include "ops/nn/norm_attrs.h"

namespace tandem::cuda {
namespace {

// f(Type<T>, a constant with the elements that a thread takes at a time).
template <class F>
void switch_packs(DType dtype, std::int64_t columns, const F& f) {
  switch_floating(dtype, [&]<class T>(Type<T> type) {
    if (in_packs<T>(columns))
      f(type, std::integral_constant<int, kPackOf<T>>());
    else
      f(type, std::integral_constant<int, 1>());
  });
}

template <class T, int kPack>
struct MomentsOf {
  using C = ComputeOf<T>;
  const T* x;
  struct Columns {};
  __device__ Columns of_columns(std::int64_t) const { return {}; }
  __device__ void add(Columns, std::int64_t, std::int64_t at, Moments<C>* sums) const {
    const auto pack = load_pack<kPack>(x, at, kPack);
    const C share = C{1} / (sums[0].count + C{1});
#pragma unroll
    for (int i = 0; i < kPack; ++i) sums[i].add(load_as(pack.at[i]), share);
  }
};

// The mean and the population variance.
template <class C>
struct StoreMoments {
  C *mean, *variance;
  __device__ void operator()(std::int64_t column, const Moments<double>& sums) const {
    mean[column] = static_cast<C>(sums.mean);
    variance[column] = static_cast<C>(sums.squares / sums.count);
  }
};

// y = (x - mean) * gamma / sqrt(variance + epsilon) + beta.
template <class T, int kPack>
struct Normalise {
  using C = ComputeOf<T>;
  const T* x;
  T* y;
  const C *gamma, *beta, *mean, *variance;
  C epsilon;
  struct Columns {
    C mean[kPack], scale[kPack], shift[kPack];
  };
  __device__ Columns of_columns(std::int64_t column) const {
    Columns own;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      own.mean[i] = mean[column + i];
      own.scale[i] = gamma[column + i] / ::sqrt(variance[column + i] + epsilon);
      own.shift[i] = beta[column + i];
    }
    return own;
  }
  __device__ void run(const Columns& own, std::int64_t at) const {
    auto pack = load_pack<kPack>(x, at, kPack);
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      pack.at[i] = store_as<T>((load_as(pack.at[i]) - own.mean[i]) * own.scale[i] + own.shift[i]);
    store_pack(y, at, kPack, pack);
  }
};

// Input 0 by the moments given, into output 0.
void normalise(KernelContext& c, const TensorView& mean, const TensorView& variance) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  const std::int64_t columns = x.shape.dim(-1), rows = x.size() / columns;
  switch_packs(x.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    using C = ComputeOf<T>;
    for_columns_on<Pack::value>(
        c, rows, columns,
        Normalise<T, Pack::value>{x.as<const T>(), y.as<T>(), converted_on<C>(c, c.inputs[1]),
                                  converted_on<C>(c, c.inputs[2]), converted_on<C>(c, mean),
                                  converted_on<C>(c, variance),
                                  static_cast<C>(c.attrs<NormAttrs>().epsilon)});
  });
}

void training_kernel(KernelContext& c) {
  const TensorView& x = c.inputs[0];
  const std::int64_t columns = x.shape.dim(-1), rows = x.size() / columns;
  switch_packs(x.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    using C = ComputeOf<T>;
    reduce_columns_on<Moments<C>, Pack::value>(
        c, rows, columns, MomentsOf<T, Pack::value>{x.as<const T>()},
        StoreMoments<C>{c.outputs[1].as<C>(), c.outputs[2].as<C>()});
  });
  normalise(c, c.outputs[1], c.outputs[2]);
}

void inference_kernel(KernelContext& c) {
  if (c.inputs[0].size() > 0) normalise(c, c.inputs[3], c.inputs[4]);
}

// Sums of dy and of dy * (x - mean).
template <class T, int kPack>
struct GradientSums {
  using C = ComputeOf<T>;
  const T *dy, *x;
  const C* mean;
  struct Columns {
    C mean[kPack];
  };
  __device__ Columns of_columns(std::int64_t column) const {
    Columns own;
#pragma unroll
    for (int i = 0; i < kPack; ++i) own.mean[i] = mean[column + i];
    return own;
  }
  __device__ void add(const Columns& own, std::int64_t, std::int64_t at, TwoSums<C>* sums) const {
    const auto slopes = load_pack<kPack>(dy, at, kPack), values = load_pack<kPack>(x, at, kPack);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const C slope = load_as(slopes.at[i]);
      sums[i].join({slope, slope * (load_as(values.at[i]) - own.mean[i])});
    }
  }
};

// dx = scale * dy + slope * (x - mean) + shift, of numbers a column.
template <class C>
struct GradientOfColumns {
  C *scale, *slope, *shift;
};

template <class C>
struct StoreGradients {
  GradientOfColumns<C> of;
  Numbers gamma, variance, dgamma, dbeta;
  double rows, epsilon;
  __device__ void operator()(std::int64_t column, const TwoSums<double>& sums) const {
    const double inverse = 1.0 / ::sqrt(variance.at<double>(column) + epsilon),
                 scale = gamma.at<double>(column) * inverse;
    of.scale[column] = static_cast<C>(scale);
    of.slope[column] = static_cast<C>(-scale * inverse * inverse * sums.second / rows);
    of.shift[column] = static_cast<C>(-scale * sums.first / rows);
    dgamma.set(column, sums.second * inverse);
    dbeta.set(column, sums.first);
  }
};

// dx may be dy.
template <class T, int kPack>
struct DataGradient {
  using C = ComputeOf<T>;
  const T *dy, *x;
  T* dx;
  const C* mean;
  GradientOfColumns<C> of;
  struct Columns {
    C mean[kPack], scale[kPack], slope[kPack], shift[kPack];
  };
  __device__ Columns of_columns(std::int64_t column) const {
    Columns own;
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      own.mean[i] = mean[column + i];
      own.scale[i] = of.scale[column + i];
      own.slope[i] = of.slope[column + i];
      own.shift[i] = of.shift[column + i];
    }
    return own;
  }
  __device__ void run(const Columns& own, std::int64_t at) const {
    auto pack = load_pack<kPack>(dy, at, kPack);
    const auto values = load_pack<kPack>(x, at, kPack);
#pragma unroll
    for (int i = 0; i < kPack; ++i)
      pack.at[i] = store_as<T>(load_as(pack.at[i]) * own.scale[i] +
                               (load_as(values.at[i]) - own.mean[i]) * own.slope[i] + own.shift[i]);
    store_pack(dx, at, kPack, pack);
  }
};

void training_grad_kernel(KernelContext& c) {
  const TensorView &dy = c.inputs[0], &x = c.inputs[1], &dx = c.outputs[0];
  const std::int64_t columns = x.shape.dim(-1);
  if (columns == 0) return;
  const std::int64_t rows = x.size() / columns;
  switch_packs(x.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    using C = ComputeOf<T>;
    C* numbers = static_cast<C*>(c.scratch(static_cast<std::size_t>(3 * columns) * sizeof(C)));
    const GradientOfColumns<C> of = {numbers, numbers + columns, numbers + 2 * columns};
    const C* mean = converted_on<C>(c, c.inputs[3]);
    reduce_columns_on<TwoSums<C>, Pack::value>(
        c, rows, columns, GradientSums<T, Pack::value>{dy.as<const T>(), x.as<const T>(), mean},
        StoreGradients<C>{of, Numbers(c.inputs[2]), Numbers(c.inputs[4]), Numbers(c.outputs[1]),
                          Numbers(c.outputs[2]), static_cast<double>(rows),
                          c.attrs<NormAttrs>().epsilon});
    for_columns_on<Pack::value>(
        c, rows, columns,
        DataGradient<T, Pack::value>{dy.as<const T>(), x.as<const T>(), dx.as<T>(), mean, of});
  });
}

}  // namespace

KernelList batch_norm_kernels() {
  static constexpr CudaKernel kernels[] = {{"FusedBatchNormV3", on_gpu<training_kernel>},
                                           {"FusedBatchNormGradV3", on_gpu<training_grad_kernel>},
                                           {"BatchNormInference", on_gpu<inference_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
