#include <utility>

#include "core/multiversion.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/math/in_float32.h"
#include "ops/nn/cross_entropy.h"
#include "ops/nn/ctc.h"
#include "ops/nn/exp_rows.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem {
namespace {

// All four operations work along the last axis.

void infer_softmax(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  if (c.shape(0).rank() < 1)
    fail<ShapeError>("[{}] expected logits of rank 1 or more, got a scalar", c.op().name);
  c.add_output(c.dtype(0), c.shape(0));
}

// Inputs dy and y.
void infer_softmax_grad(InferContext& c) {
  infer_softmax(c);
  if (c.dtype(0) != c.dtype(1) || !dim::may_equal(c.shape(0), c.shape(1)))
    fail<InvalidArgumentError>("[{}] expected tensors of one dtype and shape, got {} {} and {} {}",
                               c.op().name, name_of(c.dtype(0)), c.shape(0).to_string(),
                               name_of(c.dtype(1)), c.shape(1).to_string());
}

// The most columns of 16-bit elements that are converted as a whole.
constexpr std::int64_t kWideColumns = 4096;

// `y` may be `x`.
template <class C>
TANDEM_INLINED void softmax_in_place(std::int64_t rows, std::int64_t columns, const C* x, C* y) {
  const bool is_short = columns < kLanes;
  for (std::int64_t r = 0; r < rows; ++r) {
    const C* row = x + r * columns;
    C* out = y + r * columns;
    const C largest = row_max<C>(columns, [row](std::int64_t j) { return row[j]; });
    if (is_short) {
      for (std::int64_t j = 0; j < columns; ++j) out[j] = row[j] - largest;
    } else {
#pragma GCC ivdep
      for (std::int64_t j = 0; j < columns; ++j) out[j] = vec::exp(row[j] - largest);
    }
  }
  if (is_short)  // in one loop, which vectorises even for few columns
    for (std::int64_t i = 0; i < rows * columns; ++i) y[i] = vec::exp(y[i]);
  for (std::int64_t r = 0; r < rows; ++r) {
    C* row = y + r * columns;
    const C scale = C(1) / row_sum<C>(columns, [row](std::int64_t j) { return row[j]; });
    for (std::int64_t j = 0; j < columns; ++j) row[j] *= scale;
  }
}

template <class T>
TANDEM_INLINED void softmax_rows(std::int64_t rows, std::int64_t columns, const T* x, T* y) {
  using C = Compute<T>;
  if constexpr (std::is_same_v<C, T>) {
    const std::int64_t group = std::max<std::int64_t>(1, kExpChunk / columns);  // in the cache
    for (std::int64_t r = 0; r < rows; r += group)
      softmax_in_place(std::min(group, rows - r), columns, x + r * columns, y + r * columns);
  } else if (columns <= kWideColumns) {
    alignas(64) C wide[kWideColumns];
    const std::int64_t group = std::max<std::int64_t>(1, kExpChunk / columns);
    for (std::int64_t r = 0; r < rows; r += group) {
      const std::int64_t count = std::min(group, rows - r);
      widen(x + r * columns, wide, count * columns);
      softmax_in_place(count, columns, wide, wide);
      narrow(wide, y + r * columns, count * columns);
    }
  } else {
    C largest[kExpRows], sums[kExpRows];
    exp_sums(rows, columns, x, largest, sums);
    for (std::int64_t r = 0; r < rows; ++r) sums[r] = C(1) / sums[r];
    for_exp(rows, columns, x, largest,
            [&](std::int64_t r, std::int64_t first, std::int64_t count, const C* e) {
              const C scale = sums[r];
              write_elements(y + r * columns + first, count,
                             [=](std::int64_t j) { return e[j] * scale; });
            });
  }
}

template <class T>
TANDEM_INLINED void log_softmax_rows(std::int64_t rows, std::int64_t columns, const T* x, T* y) {
  using C = Compute<T>;
  C largest[kExpRows], sums[kExpRows];
  exp_sums(rows, columns, x, largest, sums);
  for (std::int64_t r = 0; r < rows; ++r, x += columns, y += columns) {
    const C most = largest[r], shift = vec::log(sums[r]);
    write_elements(y, columns,
                   [=](std::int64_t j) { return (static_cast<C>(x[j]) - most) - shift; });
  }
}

template <class T>
TANDEM_INLINED void softmax_grad_rows(std::int64_t rows, std::int64_t columns, const T* dy,
                                      const T* y, T* dx) {
  using C = Compute<T>;
  for (std::int64_t r = 0; r < rows; ++r, dy += columns, y += columns, dx += columns) {
    const C sum = row_sum<C>(
        columns, [=](std::int64_t j) { return static_cast<C>(dy[j]) * static_cast<C>(y[j]); });
    write_elements(dx, columns, [=](std::int64_t j) {
      return (static_cast<C>(dy[j]) - sum) * static_cast<C>(y[j]);
    });
  }
}

template <class T>
TANDEM_INLINED void log_softmax_grad_rows(std::int64_t rows, std::int64_t columns, const T* dy,
                                          const T* y, T* dx) {
  using C = Compute<T>;
  C sums[kExpRows], none[kExpRows];
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = dy + r * columns;
    sums[r] = row_sum<C>(columns, [row](std::int64_t j) { return static_cast<C>(row[j]); });
    none[r] = C(0);
  }
  for_exp(rows, columns, y, none,
          [&](std::int64_t r, std::int64_t first, std::int64_t count, const C* e) {
            const std::int64_t at = r * columns + first;
            const T* slope = dy + at;
            const C sum = sums[r];
            write_elements(dx + at, count,
                           [=](std::int64_t j) { return static_cast<C>(slope[j]) - e[j] * sum; });
          });
}

// Calls rows(row count, columns, inputs..., output) for blocks of rows.
template <class Rows>
void for_rows(KernelContext& c, const Rows& rows) {
  const TensorView& y = c.outputs[0];
  if (y.size() == 0) return;
  const InFloat32 in_float32(c);
  const std::int64_t columns = y.shape.word(-1);
  switch_floating(y.dtype, [&]<class T>(TypeTag<T> tag) {
    for_row_blocks(row_count(y.shape), columns, [&](std::int64_t first, std::int64_t count) {
      rows(tag, count, columns, first * columns);
    });
  });
}

void softmax_kernel(KernelContext& c) {
  for_rows(c, [&]<class T>(TypeTag<T>, std::int64_t rows, std::int64_t columns, std::int64_t at) {
    run_loop<T, softmax_rows<T>>(rows, columns, c.inputs[0].as<const T>() + at,
                                 c.outputs[0].as<T>() + at);
  });
}
void log_softmax_kernel(KernelContext& c) {
  for_rows(c, [&]<class T>(TypeTag<T>, std::int64_t rows, std::int64_t columns, std::int64_t at) {
    run_loop<T, log_softmax_rows<T>>(rows, columns, c.inputs[0].as<const T>() + at,
                                     c.outputs[0].as<T>() + at);
  });
}
void softmax_grad_kernel(KernelContext& c) {
  for_rows(c, [&]<class T>(TypeTag<T>, std::int64_t rows, std::int64_t columns, std::int64_t at) {
    run_loop<T, softmax_grad_rows<T>>(rows, columns, c.inputs[0].as<const T>() + at,
                                      c.inputs[1].as<const T>() + at, c.outputs[0].as<T>() + at);
  });
}
void log_softmax_grad_kernel(KernelContext& c) {
  for_rows(c, [&]<class T>(TypeTag<T>, std::int64_t rows, std::int64_t columns, std::int64_t at) {
    run_loop<T, log_softmax_grad_rows<T>>(rows, columns, c.inputs[0].as<const T>() + at,
                                          c.inputs[1].as<const T>() + at,
                                          c.outputs[0].as<T>() + at);
  });
}

extern const OpDef kSoftmax, kSoftmaxGrad, kLogSoftmax, kLogSoftmaxGrad;

Tensor sum_rows(const Tensor& x) { return reduce_sum(x, {.axis = Dims{-1}, .keepdims = true}); }

void softmax_gradient(GradContext& c) {
  const Tensor y = c.output(0);
  c.set_grad(0, run(kSoftmaxGrad, {&c.grad(), &y}));
}
// dx = (dy - sum(dy y)) y.
void softmax_grad_gradient(GradContext& c) {
  const Tensor &g = c.grad(), &dy = c.input(0), &y = c.input(1);
  if (c.needs_grad(0)) c.set_grad(0, run(kSoftmaxGrad, {&g, &y}));
  if (c.needs_grad(1)) c.set_grad(1, g * (dy - sum_rows(dy * y)) - dy * sum_rows(g * y));
}
void log_softmax_gradient(GradContext& c) {
  const Tensor y = c.output(0);
  c.set_grad(0, run(kLogSoftmaxGrad, {&c.grad(), &y}));
}
// dx = dy - exp(y) sum(dy).
void log_softmax_grad_gradient(GradContext& c) {
  const Tensor &g = c.grad(), &dy = c.input(0), &y = c.input(1);
  const Tensor p = exp(y);
  if (c.needs_grad(0)) c.set_grad(0, g - sum_rows(g * p));
  if (c.needs_grad(1)) c.set_grad(1, -g * p * sum_rows(dy));
}

const OpDef kSoftmax = {.name = "Softmax",
                        .infer = infer_softmax,
                        .gradient = softmax_gradient,
                        .cpu_kernel = softmax_kernel,
                        .autocast = kAutocastFloat32OnGpus,
                        .saved_outputs = 0b1};
const OpDef kSoftmaxGrad = {.name = "SoftmaxGrad",
                            .infer = infer_softmax_grad,
                            .gradient = softmax_grad_gradient,
                            .cpu_kernel = softmax_grad_kernel,
                            .saved_inputs = 0b11};
const OpDef kLogSoftmax = {.name = "LogSoftmax",
                           .infer = infer_softmax,
                           .gradient = log_softmax_gradient,
                           .cpu_kernel = log_softmax_kernel,
                           .autocast = kAutocastFloat32OnGpus,
                           .saved_outputs = 0b1};
const OpDef kLogSoftmaxGrad = {.name = "LogSoftmaxGrad",
                               .infer = infer_softmax_grad,
                               .gradient = log_softmax_grad_gradient,
                               .cpu_kernel = log_softmax_grad_kernel,
                               .saved_inputs = 0b11};

// Any other axis is transposed to the last place and back.
Tensor along_axis(const OpDef& op, const Tensor& x, std::int64_t axis) {
  const int rank = x.rank();
  if (rank > 0 && (axis < -rank || axis >= rank))
    fail<ShapeError>("[{}] expected an axis in [{}, {}), got {}", op.name, -rank, rank, axis);
  if (axis < 0) axis += rank;
  if (axis + 1 >= rank) return run(op, {&x});
  Dims permutation;
  for (int i = 0; i < rank; ++i) permutation.push_back(i);
  std::swap(permutation[static_cast<int>(axis)], permutation[rank - 1]);
  const Tensor moved = transpose(x, permutation);
  return transpose(run(op, {&moved}), permutation);
}

}  // namespace

OpList softmax_ops() {
  return list_of<kSoftmax, kSoftmaxGrad, kLogSoftmax, kLogSoftmaxGrad, kSparseSoftmaxCrossEntropy,
                 kSparseSoftmaxCrossEntropyGrad, kSoftmaxCrossEntropy, kSoftmaxCrossEntropyGrad,
                 kSigmoidCrossEntropy, kSigmoidCrossEntropyGrad, kCtcLoss, kCtcLossGrad>();
}

namespace nn {

Tensor softmax(const Tensor& logits, std::int64_t axis) {
  return along_axis(kSoftmax, logits, axis);
}
Tensor log_softmax(const Tensor& logits, std::int64_t axis) {
  return along_axis(kLogSoftmax, logits, axis);
}

}  // namespace nn
}  // namespace tandem
