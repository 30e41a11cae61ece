// The kernels of softmax.cc and cross_entropy.cc on a GPU, along the last axis.
#include <limits>

#include "ops/cuda/faults.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/rows.cuh"

namespace tandem::cuda {
namespace {

struct AddUp {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};
struct Larger {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a > b || a != a ? a : b;
  }
};

// f(j, x[j]) for the columns of the calling thread.
template <class T, class F>
__device__ void for_columns(const MyRow& row, const T* x, std::int64_t columns, const F& f) {
  for (std::int64_t j = row.lane; j < columns; j += row.width) f(j, load_as(x[j]));
}

template <class C>
struct ExpSum {
  C largest, sum;  // of exp(x - largest)
};
template <class T>
__device__ ExpSum<ComputeOf<T>> exp_sum(const MyRow& row, const T* x, std::int64_t columns) {
  using C = ComputeOf<T>;
  C largest = -std::numeric_limits<C>::infinity();
  for_columns(row, x, columns, [&](std::int64_t, C v) { largest = Larger()(largest, v); });
  largest = over_row(row, largest, Larger());
  C sum = C{0};
  for_columns(row, x, columns, [&](std::int64_t, C v) { sum += ::exp(v - largest); });
  return {largest, over_row(row, sum, AddUp())};
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    softmax_rows(const T* x, T* y, std::int64_t rows, std::int64_t columns, int width, bool log) {
  using C = ComputeOf<T>;
  const MyRow row(width);
  if (row.index >= rows) return;
  x += row.index * columns;
  y += row.index * columns;
  const auto [largest, sum] = exp_sum(row, x, columns);
  const C scale = log ? ::log(sum) : C{1} / sum;
  const C shift = largest;
  for_columns(row, x, columns, [&](std::int64_t j, C v) {
    y[j] = store_as<T>(log ? (v - shift) - scale : ::exp(v - shift) * scale);
  });
}

// dx = (dy - sum(dy y)) y, or of the logarithm dy - exp(y) sum(dy).
template <class T>
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
  for_columns(row, dy, columns, [&](std::int64_t j, C v) { sum += log ? v : v * load_as(y[j]); });
  sum = over_row(row, sum, AddUp());
  for_columns(row, dy, columns, [&](std::int64_t j, C v) {
    const C of = load_as(y[j]);
    dx[j] = store_as<T>(log ? v - ::exp(of) * sum : (v - sum) * of);
  });
}

template <bool kLog>
void softmax_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  if (y.size() == 0) return;
  const std::int64_t columns = y.shape.dim(-1), rows = y.size() / columns;
  const int width = row_width(columns);
  switch_floating(y.dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = row_blocks(rows, width)}, softmax_rows<T>, x.as<const T>(), y.as<T>(),
           rows, columns, width, kLog);
  });
}
template <bool kLog>
void softmax_grad_kernel(KernelContext& c) {
  const TensorView& dx = c.outputs[0];
  if (dx.size() == 0) return;
  const std::int64_t columns = dx.shape.dim(-1), rows = dx.size() / columns;
  const int width = row_width(columns);
  switch_floating(dx.dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = row_blocks(rows, width)}, softmax_grad_rows<T>, c.inputs[0].as<const T>(),
           c.inputs[1].as<const T>(), dx.as<T>(), rows, columns, width, kLog);
  });
}

// --- cross entropy ---

// Classes, of any integer dtype, or probabilities, of the logits' dtype.
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

template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_rows(const T* x, Labels labels, T* loss, ComputeOf<T>* logs, std::int64_t rows,
                       std::int64_t columns, int width, Refusal refusal) {
  using C = ComputeOf<T>;
  const MyRow row(width);
  if (row.index >= rows) return;
  x += row.index * columns;
  const auto [largest, sum] = exp_sum(row, x, columns);
  const C log_sum = largest + ::log(sum);
  C value = C{0};
  if (labels.classes) {
    const std::int64_t label = labels.class_of(row.index);
    if (label >= 0 && label < columns)
      value = log_sum - load_as(x[label]);
    else if (row.lane == 0)
      refusal.tell(label, row.index);
  } else {
    const T* wanted = static_cast<const T*>(labels.data) + row.index * columns;
    for_columns(row, x, columns,
                [&](std::int64_t j, C v) { value += load_as(wanted[j]) * (log_sum - v); });
    value = over_row(row, value, AddUp());
  }
  if (row.lane != 0) return;
  loss[row.index] = store_as<T>(value);
  logs[row.index] = log_sum;
}

// dlogits = dloss (softmax(logits) sum(labels) - labels); of classes, the sum is 1.
template <class T>
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
    if ((label < 0 || label >= columns) && row.lane == 0) refusal.tell(label, row.index);
    for_columns(row, x, columns, [&](std::int64_t j, C v) {
      dx[j] = store_as<T>(slope * (::exp(v - log_sum) - (j == label ? C{1} : C{0})));
    });
    return;
  }
  const T* wanted = static_cast<const T*>(labels.data) + row.index * columns;
  C total = C{0};
  for_columns(row, wanted, columns, [&](std::int64_t, C v) { total += v; });
  total = over_row(row, total, AddUp());
  for_columns(row, x, columns, [&](std::int64_t j, C v) {
    dx[j] = store_as<T>(slope * (::exp(v - log_sum) * total - load_as(wanted[j])));
  });
}

template <bool kClasses>
void cross_entropy_kernel(KernelContext& c) {
  const TensorView &logits = c.inputs[0], &labels = c.inputs[1];
  const std::int64_t columns = logits.shape.dim(-1), rows = c.outputs[0].size();
  if (rows == 0) return;
  const int width = row_width(columns);
  switch_floating(logits.dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = row_blocks(rows, width)}, cross_entropy_rows<T>, logits.as<const T>(),
           Labels{labels.data, labels.dtype, kClasses}, c.outputs[0].as<T>(),
           c.outputs[1].as<ComputeOf<T>>(), rows, columns, width, Refusal(c, kNoClass, columns));
  });
}

template <bool kClasses>
void cross_entropy_grad_kernel(KernelContext& c) {
  const TensorView &logits = c.inputs[1], &labels = c.inputs[2];
  if (logits.size() == 0) return;
  const std::int64_t columns = logits.shape.dim(-1), rows = logits.size() / columns;
  const int width = row_width(columns);
  switch_floating(logits.dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = row_blocks(rows, width)}, cross_entropy_grad_rows<T>,
           c.inputs[0].as<const T>(), logits.as<const T>(),
           Labels{labels.data, labels.dtype, kClasses}, c.inputs[3].as<const ComputeOf<T>>(),
           c.outputs[0].as<T>(), rows, columns, width, Refusal(c, kNoClass, columns));
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
