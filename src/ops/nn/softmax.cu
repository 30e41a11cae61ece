// GPU kernels of softmax.cc and cross_entropy.cc, along the last axis. Rows that are not a multiple
// of a pack are processed per element.
#include <limits>

#include "ops/cuda/faults.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/rows.cuh"
#include "ops/nn/cross_entropy.h"

namespace tandem::cuda {
namespace {

struct Larger {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a > b || a != a ? a : b;
  }
};

// Calls f(j, x[j] of each x) for the columns of the calling thread, kPack at a time.
template <int kPack, class F, class... X>
__device__ __forceinline__ void for_columns(const MyRow& row, std::int64_t columns, const F& f,
                                            const X*... x) {
  in_packs<kPack>([&](const auto& g) { (g(x), ...); },
                  [&] {
                    for_packs<kPack>(row, columns, [&](std::int64_t j) {
                      [&](const auto&... packs) {
#pragma unroll
                        for (int i = 0; i < kPack; ++i) f(j + i, load_as(packs.at[i])...);
                      }(load_pack<kPack>(x, j, kPack)...);
                    });
                  });
}
// y[j] = f(j, x[j] of each x).
template <int kPack, class T, class F, class... X>
__device__ __forceinline__ void set_columns(const MyRow& row, std::int64_t columns, T* y,
                                            const F& f, const X*... x) {
  in_packs<kPack>([&](const auto& g) { (g(x), ...), g(y); },
                  [&] {
                    for_packs<kPack>(row, columns, [&](std::int64_t j) {
                      Pack<T, kPack> result;
                      [&](const auto&... packs) {
#pragma unroll
                        for (int i = 0; i < kPack; ++i)
                          result.at[i] = store_as<T>(f(j + i, load_as(packs.at[i])...));
                      }(load_pack<kPack>(x, j, kPack)...);
                      store_pack(y, j, kPack, result);
                    });
                  });
}

template <class C>
struct ExpSum {
  C largest, sum;  // of exp(x - largest)
};
template <int kPack, class T>
__device__ ExpSum<ComputeOf<T>> exp_sum(const MyRow& row, const T* x, std::int64_t columns) {
  using C = ComputeOf<T>;
  C largest = -std::numeric_limits<C>::infinity();
  for_columns<kPack>(
      row, columns, [&](std::int64_t, C v) { largest = Larger()(largest, v); }, x);
  largest = over_row(row, largest, Larger());
  C sum = C{0};
  for_columns<kPack>(
      row, columns, [&](std::int64_t, C v) { sum += ::exp(v - largest); }, x);
  return {largest, over_row(row, sum, Add())};
}

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    softmax_rows(const T* x, T* y, std::int64_t rows, std::int64_t columns, int width, bool log) {
  using C = ComputeOf<T>;
  const MyRow row(width);
  if (row.index >= rows) return;
  x += row.index * columns;
  y += row.index * columns;
  const auto [largest, sum] = exp_sum<kPack>(row, x, columns);
  const C scale = log ? ::log(sum) : C{1} / sum;
  const C shift = largest;
  set_columns<kPack>(
      row, columns, y,
      [&](std::int64_t, C v) { return log ? (v - shift) - scale : ::exp(v - shift) * scale; }, x);
}

// dx = (dy - sum(dy y)) y; for log_softmax, dx = dy - exp(y) sum(dy).
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    softmax_grad_rows(const T* dy, const T* y, T* dx, std::int64_t rows, std::int64_t columns,
                      int width, bool log) {
  using C = ComputeOf<T>;
  const MyRow row(width);
  if (row.index >= rows) return;
  dy += row.index * columns;
  y += row.index * columns;
  dx += row.index * columns;
  C sum = C{0};
  for_columns<kPack>(
      row, columns, [&](std::int64_t, C v, C of) { sum += log ? v : v * of; }, dy, y);
  sum = over_row(row, sum, Add());
  set_columns<kPack>(
      row, columns, dx,
      [&](std::int64_t, C v, C of) { return log ? v - ::exp(of) * sum : (v - sum) * of; }, dy, y);
}

template <bool kLog>
void softmax_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  if (y.size() == 0) return;
  const std::int64_t columns = y.shape.word(-1), rows = y.size() / columns;
  const int width = row_width(columns);
  switch_packs(y.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    launch(c, {.blocks = row_blocks(rows, width)}, softmax_rows<T, Pack::value>, x.as<const T>(),
           y.as<T>(), rows, columns, width, kLog);
  });
}
template <bool kLog>
void softmax_grad_kernel(KernelContext& c) {
  const TensorView& dx = c.outputs[0];
  if (dx.size() == 0) return;
  const std::int64_t columns = dx.shape.word(-1), rows = dx.size() / columns;
  const int width = row_width(columns);
  switch_packs(dx.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    launch(c, {.blocks = row_blocks(rows, width)}, softmax_grad_rows<T, Pack::value>,
           c.inputs[0].as<const T>(), c.inputs[1].as<const T>(), dx.as<T>(), rows, columns, width,
           kLog);
  });
}

// --- cross entropy ---

// Class indices of any integer dtype, or probabilities of the logits' dtype.
struct Labels {
  const void* data;
  DType dtype;
  bool classes;
  __device__ std::int64_t class_of(std::int64_t row) const {
    if (dtype == DType::kInt32) return static_cast<const std::int32_t*>(data)[row];
    if (dtype == DType::kInt64) return static_cast<const std::int64_t*>(data)[row];
    return static_cast<const std::uint8_t*>(data)[row];
  }
};

constexpr const char* kNoClass =
    "[{op}] label {value} at position {position} is outside the valid range [0, {limit})";

template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_rows(const T* x, Labels labels, T* loss, ComputeOf<T>* logs, std::int64_t rows,
                       std::int64_t columns, int width, Refusal refusal) {
  using C = ComputeOf<T>;
  const MyRow row(width);
  if (row.index >= rows) return;
  x += row.index * columns;
  const auto [largest, sum] = exp_sum<kPack>(row, x, columns);
  const C log_sum = largest + ::log(sum);
  C value = C{0};
  if (labels.classes) {
    const std::int64_t label = labels.class_of(row.index);
    if (label >= 0 && label < columns)
      value = log_sum - load_as(x[label]);
    else if (row.lane == 0)
      refusal.report(label, row.index);
  } else {
    const T* wanted = static_cast<const T*>(labels.data) + row.index * columns;
    for_columns<kPack>(
        row, columns, [&](std::int64_t, C v, C want) { value += want * (log_sum - v); }, x, wanted);
    value = over_row(row, value, Add());
  }
  if (row.lane != 0) return;
  loss[row.index] = store_as<T>(value);
  logs[row.index] = log_sum;
}

// dlogits = dloss (softmax(logits) sum(labels) - labels). For class indices the sum is 1.
template <class T, int kPack>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_grad_rows(const T* dloss, const T* x, Labels labels, const ComputeOf<T>* logs,
                            T* dx, std::int64_t rows, std::int64_t columns, int width,
                            Refusal refusal) {
  using C = ComputeOf<T>;
  const MyRow row(width);
  if (row.index >= rows) return;
  x += row.index * columns;
  dx += row.index * columns;
  const C slope = load_as(dloss[row.index]), log_sum = logs[row.index];
  if (labels.classes) {
    const std::int64_t label = labels.class_of(row.index);
    if ((label < 0 || label >= columns) && row.lane == 0) refusal.report(label, row.index);
    set_columns<kPack>(
        row, columns, dx,
        [&](std::int64_t j, C v) {
          return slope * (::exp(v - log_sum) - (j == label ? C{1} : C{0}));
        },
        x);
    return;
  }
  const T* wanted = static_cast<const T*>(labels.data) + row.index * columns;
  C total = C{0};
  for_columns<kPack>(
      row, columns, [&](std::int64_t, C v) { total += v; }, wanted);
  total = over_row(row, total, Add());
  set_columns<kPack>(
      row, columns, dx,
      [&](std::int64_t, C v, C want) { return slope * (::exp(v - log_sum) * total - want); }, x,
      wanted);
}

template <bool kClasses>
Refusal refusal_of(const KernelContext& c, std::int64_t columns, std::int64_t rows) {
  std::int64_t first = 0;
  if constexpr (kClasses) first = c.attrs<LabelPositionAttrs>().first_row(rows);
  return {c, kNoClass, columns, first};
}

template <bool kClasses>
void cross_entropy_kernel(KernelContext& c) {
  const TensorView &logits = c.inputs[0], &labels = c.inputs[1];
  const std::int64_t columns = logits.shape.word(-1), rows = c.outputs[0].size();
  if (rows == 0) return;
  const int width = row_width(columns);
  const Refusal refusal = refusal_of<kClasses>(c, columns, rows);
  switch_packs(logits.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    launch(c, {.blocks = row_blocks(rows, width)}, cross_entropy_rows<T, Pack::value>,
           logits.as<const T>(), Labels{labels.data, labels.dtype, kClasses}, c.outputs[0].as<T>(),
           c.outputs[1].as<ComputeOf<T>>(), rows, columns, width, refusal);
  });
}

template <bool kClasses>
void cross_entropy_grad_kernel(KernelContext& c) {
  const TensorView &logits = c.inputs[1], &labels = c.inputs[2];
  if (logits.size() == 0) return;
  const std::int64_t columns = logits.shape.word(-1), rows = logits.size() / columns;
  const int width = row_width(columns);
  const Refusal refusal = refusal_of<kClasses>(c, columns, rows);
  switch_packs(logits.dtype, columns, [&]<class T, class Pack>(Type<T>, Pack) {
    launch(c, {.blocks = row_blocks(rows, width)}, cross_entropy_grad_rows<T, Pack::value>,
           c.inputs[0].as<const T>(), logits.as<const T>(),
           Labels{labels.data, labels.dtype, kClasses}, c.inputs[3].as<const ComputeOf<T>>(),
           c.outputs[0].as<T>(), rows, columns, width, refusal);
  });
}

}  // namespace

KernelList softmax_kernels() {
  static constexpr CudaKernel kernels[] = {
      {"Softmax", on_gpu<softmax_kernel<false>>},
      {"SoftmaxGrad", on_gpu<softmax_grad_kernel<false>>},
      {"LogSoftmax", on_gpu<softmax_kernel<true>>},
      {"LogSoftmaxGrad", on_gpu<softmax_grad_kernel<true>>},
      {"SparseSoftmaxCrossEntropyWithLogits", on_gpu<cross_entropy_kernel<true>>},
      {"SparseSoftmaxCrossEntropyWithLogitsGrad", on_gpu<cross_entropy_grad_kernel<true>>},
      {"SoftmaxCrossEntropyWithLogits", on_gpu<cross_entropy_kernel<false>>},
      {"SoftmaxCrossEntropyWithLogitsGrad", on_gpu<cross_entropy_grad_kernel<false>>}};
  return kernels;
}

}  // namespace tandem::cuda
