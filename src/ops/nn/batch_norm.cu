// The kernels of batch_norm.cc on a GPU.
#include <string_view>

#include "graph/passes/fused_tiled.h"
#include "op/cuda_kernels.h"
#include "ops/cuda/columns.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/numbers.cuh"
#include "ops/nn/batch_norm_ends.cuh"
#include "ops/nn/norm_attrs.h"

namespace tandem::cuda {
namespace {

template <class T, int kPack>
struct MomentsOf {
  using C = ComputeOf<T>;
  const T* x;
  static constexpr int kRows = 4;
  struct Columns {};
  template <class F>
  __device__ void memory(const F& f) const {
    f(x);
  }
  __device__ Columns of_columns(std::int64_t) const { return {}; }
  template <int kCount>
  __device__ void add(Columns, const SomeRows<kCount>& rows, Moments<C>* sums) const {
    Pack<T, kPack> packs[kCount];
    rows.load(x, packs);
    constexpr C kNumber = kCount;
    const C share = kNumber / (sums[0].count + kNumber);
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      C mean = C{0}, squares = C{0};
#pragma unroll
      for (const Pack<T, kPack>& pack : packs) mean += load_as(pack.at[i]);
      mean /= kNumber;
#pragma unroll
      for (const Pack<T, kPack>& pack : packs) {
        const C distance = load_as(pack.at[i]) - mean;
        squares += distance * distance;
      }
      sums[i].join({kNumber, mean, squares}, share);
    }
  }
};

// Computes the mean and the population variance of a column.
template <class C>
struct StoreMoments {
  C *mean, *variance;
  __device__ void operator()(std::int64_t column, const Moments<double>& sums) const {
    mean[column] = static_cast<C>(sums.mean);
    variance[column] = static_cast<C>(sums.squares / sums.count);
  }
};

// y = (x - mean) * gamma / sqrt(variance + epsilon) + beta.
template <class T, int kPack, class To>
struct Normalise {
  using C = ComputeOf<T>;
  const T* x;
  To to;
  const C *gamma, *beta, *mean, *variance;
  C epsilon;
  static constexpr int kRows = To::kRows;
  struct Columns {
    C mean[kPack], scale[kPack], shift[kPack];
  };
  template <class F>
  __device__ void memory(const F& f) const {
    f(x);
    to.memory(f);
  }
  __device__ Columns of_columns(std::int64_t column) const {
    Columns own;
    C variances[kPack];
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      own.mean[i] = mean[column + i];
      own.scale[i] = gamma[column + i];
      own.shift[i] = beta[column + i];
      variances[i] = variance[column + i];
    }
#pragma unroll
    for (int i = 0; i < kPack; ++i) own.scale[i] *= ::rsqrt(variances[i] + epsilon);
    return own;
  }
  template <int kCount>
  __device__ void run(const Columns& own, const SomeRows<kCount>& rows) const {
    Pack<T, kPack> packs[kCount];
    rows.load(x, packs);
    const auto loaded = rows.loaded(to);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      auto& element = packs[n].at;
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        element[i] = store_as<T>((load_as(element[i]) - own.mean[i]) * own.scale[i] + own.shift[i]);
      to.store(rows.at(n), loaded.of[n], packs[n]);
    }
  }
};

// The operations below are templates of `Ends`: how input 0 is loaded and output 0 is stored.
// PlainEnds uses memory. ChainedEnds applies fused element-wise operations
// (graph/passes/fused_tiled.h).
struct PlainEnds {
  KernelContext& c;
  const NormAttrs& attrs() const { return c.attrs<NormAttrs>(); }
  const TensorView& input(int i) const { return c.inputs[i]; }
  template <class F>
  void switch_packs(DType dtype, std::int64_t columns, const F& f) const {
    cuda::switch_packs(dtype, columns, f);
  }
  template <class T, int kPack>
  Plain<T, kPack> from() const {
    return {c.inputs[0].as<const T>()};
  }
  template <class T, int kPack>
  PlainResult<T, kPack> to() const {
    return {c.outputs[0].as<T>()};
  }
};

class ChainedEnds {
 public:
  KernelContext& c;

  explicit ChainedEnds(KernelContext& whole)
      : c(whole), fused_(whole.attrs<TiledAttrs>()), own_(std::max(fused_.before_inputs, 1)) {}
  const NormAttrs& attrs() const {
    return *static_cast<const NormAttrs*>(fused_.inner.attrs.get());
  }
  // REQUIRES: i > 0.
  const TensorView& input(int i) const { return c.inputs[own_ + i - 1]; }
  // Calls f for the dtypes that takes_chains() permits.
  template <class F>
  void switch_packs(DType dtype, std::int64_t, const F& f) const {
    const auto in_packs = [&]<class T>(Type<T> type) {
      f(type, std::integral_constant<int, kPackOf<T>>());
    };
    switch (dtype) {
      case DType::kFloat16: return in_packs(Type<__half>());
      case DType::kBFloat16: return in_packs(Type<__nv_bfloat16>());
      default: return in_packs(Type<float>());
    }
  }
  template <class T, int kPack>
  Chained<T, kPack> from() const {
    return {
        chain_of(fused_.before, nullptr, {c.inputs.begin(), static_cast<std::size_t>(own_)}, true)};
  }
  template <class T, int kPack>
  ChainedResult<T, kPack> to() const {
    const auto count = static_cast<std::size_t>(fused_.after_inputs);
    return {chain_of(fused_.after, &c.outputs[0], {c.inputs.end() - count, count}, true),
            c.outputs[0].as<T>()};
  }

 private:
  const TiledAttrs& fused_;
  int own_;  // the index of the operation's input 1; the inputs before it belong to `before`
};

// Normalises `x` by the given moments into output 0.
template <class Ends>
void normalise(const Ends& ends, const TensorView& x, const TensorView& mean,
               const TensorView& variance) {
  KernelContext& c = ends.c;
  const std::int64_t columns = x.shape.word(-1), rows = x.size() / columns;
  ends.switch_packs(x.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    using C = ComputeOf<T>;
    const auto to = ends.template to<T, Pack::value>();
    for_columns_on<Pack::value>(
        c, rows, columns,
        Normalise<T, Pack::value, std::remove_const_t<decltype(to)>>{
            x.as<const T>(), to, converted_on<C>(c, ends.input(1)),
            converted_on<C>(c, ends.input(2)), converted_on<C>(c, mean),
            converted_on<C>(c, variance), static_cast<C>(ends.attrs().epsilon)});
  });
}

void set_to_zero(KernelContext& c, const TensorView& view) {
  check(cudaMemsetAsync(view.data, 0, static_cast<std::size_t>(view.size()) * size_of(view.dtype),
                        stream_of(c)),
        "cudaMemsetAsync");
}

// Computes the moments of input 0, which are 0 for no rows.
void compute_moments(KernelContext& c, const TensorView& mean, const TensorView& variance) {
  const TensorView& x = c.inputs[0];
  if (x.size() == 0) {
    set_to_zero(c, mean);
    return set_to_zero(c, variance);
  }
  const std::int64_t columns = x.shape.word(-1), rows = x.size() / columns;
  switch_packs(x.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    using C = ComputeOf<T>;
    reduce_columns_on<Moments<C>, Pack::value>(c, rows, columns,
                                               MomentsOf<T, Pack::value>{x.as<const T>()},
                                               StoreMoments<C>{mean.as<C>(), variance.as<C>()});
  });
}

template <class Ends>
void train(const Ends& ends) {
  KernelContext& c = ends.c;
  const TensorView& x = c.inputs[0];  // never fused with a chain, since the gradient reads it
  compute_moments(c, c.outputs[1], c.outputs[2]);
  if (x.size() > 0) normalise(ends, x, c.outputs[1], c.outputs[2]);
}

template <class Ends>
void infer(const Ends& ends) {
  if (ends.c.inputs[0].size() > 0) normalise(ends, ends.c.inputs[0], ends.input(3), ends.input(4));
}

// Sums of dy and of dy * (x - mean).
template <class T, int kPack, class From>
struct GradientSums {
  using C = ComputeOf<T>;
  From dy;
  const T* x;
  const C* mean;
  static constexpr int kRows = From::kRows;
  struct Columns {
    C mean[kPack];
  };
  template <class F>
  __device__ void memory(const F& f) const {
    f(x);
    dy.memory(f);
  }
  __device__ Columns of_columns(std::int64_t column) const {
    Columns own;
#pragma unroll
    for (int i = 0; i < kPack; ++i) own.mean[i] = mean[column + i];
    return own;
  }
  template <int kCount>
  __device__ void add(const Columns& own, const SomeRows<kCount>& rows, TwoSums<C>* sums) const {
    Pack<T, kPack> values[kCount];
    rows.load(x, values);
    const auto loaded = rows.loaded(dy);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      C slopes[kPack];
      dy.numbers(loaded.of[n], slopes);
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        sums[i].join({slopes[i], slopes[i] * (load_as(values[n].at[i]) - own.mean[i])});
    }
  }
};

// The per-column parameters of dx = scale * dy + slope * (x - mean) + shift.
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
template <class T, int kPack, class From, class To>
struct DataGradient {
  using C = ComputeOf<T>;
  From dy;
  const T* x;
  To dx;
  const C* mean;
  GradientOfColumns<C> of;
  static constexpr int kRows = From::kRows < To::kRows ? From::kRows : To::kRows;
  struct Columns {
    C mean[kPack], scale[kPack], slope[kPack], shift[kPack];
  };
  template <class F>
  __device__ void memory(const F& f) const {
    f(x);
    dy.memory(f);
    dx.memory(f);
  }
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
  template <int kCount>
  __device__ void run(const Columns& own, const SomeRows<kCount>& rows) const {
    Pack<T, kPack> packs[kCount];
    rows.load(x, packs);
    const auto loaded_dy = rows.loaded(dy);
    const auto loaded_dx = rows.loaded(dx);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      C slopes[kPack];
      dy.numbers(loaded_dy.of[n], slopes);
      auto& element = packs[n].at;
#pragma unroll
      for (int i = 0; i < kPack; ++i)
        element[i] = store_as<T>(slopes[i] * own.scale[i] +
                                 (load_as(element[i]) - own.mean[i]) * own.slope[i] + own.shift[i]);
      dx.store(rows.at(n), loaded_dx.of[n], packs[n]);
    }
  }
};

template <class Ends>
void train_backward(const Ends& ends) {
  KernelContext& c = ends.c;
  const TensorView& x = ends.input(1);
  if (x.size() == 0) {
    set_to_zero(c, c.outputs[1]);
    return set_to_zero(c, c.outputs[2]);
  }
  const std::int64_t columns = x.shape.word(-1), rows = x.size() / columns;
  ends.switch_packs(x.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    using C = ComputeOf<T>;
    constexpr int kPack = Pack::value;
    C* numbers = static_cast<C*>(c.scratch(static_cast<std::size_t>(3 * columns) * sizeof(C)));
    const GradientOfColumns<C> of = {numbers, numbers + columns, numbers + 2 * columns};
    const C* mean = converted_on<C>(c, ends.input(3));
    const auto dy = ends.template from<T, kPack>();
    const auto dx = ends.template to<T, kPack>();
    using From = std::remove_const_t<decltype(dy)>;
    using To = std::remove_const_t<decltype(dx)>;
    reduce_columns_on<TwoSums<C>, kPack>(
        c, rows, columns, GradientSums<T, kPack, From>{dy, x.as<const T>(), mean},
        StoreGradients<C>{of, Numbers(ends.input(2)), Numbers(ends.input(4)), Numbers(c.outputs[1]),
                          Numbers(c.outputs[2]), ends.attrs().divisor(static_cast<double>(rows)),
                          ends.attrs().epsilon});
    for_columns_on<kPack>(c, rows, columns,
                          DataGradient<T, kPack, From, To>{dy, x.as<const T>(), dx, mean, of});
  });
}

void moments_kernel(KernelContext& c) { compute_moments(c, c.outputs[0], c.outputs[1]); }
void training_kernel(KernelContext& c) { train(PlainEnds{c}); }
void training_grad_kernel(KernelContext& c) { train_backward(PlainEnds{c}); }
void inference_kernel(KernelContext& c) { infer(PlainEnds{c}); }

struct Fused {
  std::string_view op;
  void (*run)(const ChainedEnds&);
};
constexpr Fused kFused[] = {{"FusedBatchNormV3", train<ChainedEnds>},
                            {"FusedBatchNormGradV3", train_backward<ChainedEnds>},
                            {"BatchNormInference", infer<ChainedEnds>}};

const Fused* fused_of(const OpDef& op) {
  for (const Fused& each : kFused)
    if (each.op == op.name) return &each;
  return nullptr;
}

void fused_kernel(KernelContext& c) {
  fused_of(*c.attrs<TiledAttrs>().inner.op)->run(ChainedEnds(c));
}

}  // namespace

KernelList batch_norm_kernels() {
  static constexpr CudaKernel kernels[] = {{"FusedBatchNormV3", on_gpu<training_kernel>},
                                           {"FusedBatchNormGradV3", on_gpu<training_grad_kernel>},
                                           {"BatchNormMoments", on_gpu<moments_kernel>},
                                           {"BatchNormInference", on_gpu<inference_kernel>}};
  return kernels;
}

// Whether chains can be fused into the operation: its elements must be processed in packs.
bool takes_chains(const BlockOperation& operation) {
  const TensorType& y = operation.outputs[0]->spec;
  const std::int64_t columns = y.shape.word(-1);
  return fused_of(*operation.op) && in_chains(y.dtype) &&
         columns % (16 / static_cast<std::int64_t>(size_of(y.dtype))) == 0;
}

void register_fused_tiled() {
  register_cuda_kernel(kFusedTiled, on_gpu<fused_kernel>);
  register_cuda_kernel(kFusedTiledInPlace, on_gpu<fused_kernel>);
}

}  // namespace tandem::cuda
