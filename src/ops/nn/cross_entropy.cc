#include "ops/nn/cross_entropy.h"

#include <vector>

#include "core/multiversion.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/formula/functions.h"
#include "ops/math/in_float32.h"
#include "ops/nn/exp_rows.h"
#include "ops/nn/norm_math.h"
#include "runtime/dispatch.h"
#include "runtime/replica_context.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem {
namespace {

Shape shape_of_labels(const Shape& logits) {
  Dims dims;
  for (int i = 0; i + 1 < logits.rank(); ++i) dims.push_back(logits.word(i));
  return Shape(dims);
}

void check_logits(InferContext& c, int input) {
  check_dtype(c.op().name, kFloating, c.dtype(input));
  const Shape& logits = c.shape(input);
  if (logits.rank() < 1 || logits.word(-1) == 0)
    fail<ShapeError>("[{}] expected logits [..., classes], got shape {}", c.op().name,
                     logits.to_string());
}

// Checks labels that are class indices.
void check_classes(InferContext& c, int labels, const Shape& logits) {
  if (!is_integer(c.dtype(labels)))
    fail<DTypeError>("[{}] expected labels of an integer dtype, got {}", c.op().name,
                     name_of(c.dtype(labels)));
  if (!dim::may_equal(c.shape(labels), shape_of_labels(logits)))
    fail<ShapeError>("[{}] expected labels of shape {} for logits of shape {}, got {}", c.op().name,
                     shape_of_labels(logits).to_string(), logits.to_string(),
                     c.shape(labels).to_string());
}

// Checks labels that are probabilities.
void check_probabilities(InferContext& c, int labels, int logits) {
  if (c.dtype(labels) != c.dtype(logits) || !dim::may_equal(c.shape(labels), c.shape(logits)))
    fail<InvalidArgumentError>("[{}] expected labels like the logits, {} {}, got {} {}",
                               c.op().name, name_of(c.dtype(logits)), c.shape(logits).to_string(),
                               name_of(c.dtype(labels)), c.shape(labels).to_string());
}

void add_loss_outputs(InferContext& c) {
  c.add_output(c.dtype(0), shape_of_labels(c.shape(0)));
  c.add_output(statistics_dtype(c.dtype(0)), shape_of_labels(c.shape(0)));
}

void check_position(InferContext& c) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;  // so that a product with rows fits
  const auto& attrs = c.attrs<LabelPositionAttrs>();
  if (!dim::may_be_at_most(0, attrs.first_example) ||
      !dim::may_be_at_most(attrs.first_example, kMost) || !dim::may_be_at_most(0, attrs.examples))
    fail<InvalidArgumentError>(
        "[{}] expected first_example in [0, {}] and examples >= 0, got {} and {}", c.op().name,
        kMost, dim::text(attrs.first_example), dim::text(attrs.examples));
}

void infer_sparse(InferContext& c) {
  check_position(c);
  check_logits(c, 0);
  check_classes(c, 1, c.shape(0));
  add_loss_outputs(c);
}

void infer_dense(InferContext& c) {
  check_logits(c, 0);
  check_probabilities(c, 1, 0);
  add_loss_outputs(c);
}

void check_rows(InferContext& c) {
  const Shape rows = shape_of_labels(c.shape(1));
  if (c.dtype(0) != c.dtype(1) || !dim::may_equal(c.shape(0), rows) ||
      !dim::may_equal(c.shape(3), rows) || c.dtype(3) != statistics_dtype(c.dtype(1)))
    fail<InvalidArgumentError>("[{}] expected a gradient of {} {}, got {} {}", c.op().name,
                               name_of(c.dtype(1)), rows.to_string(), name_of(c.dtype(0)),
                               c.shape(0).to_string());
  c.add_output(c.dtype(1), c.shape(1));
}

void infer_sparse_grad(InferContext& c) {
  check_position(c);
  check_logits(c, 1);
  check_classes(c, 2, c.shape(1));
  check_rows(c);
}

void infer_dense_grad(InferContext& c) {
  check_logits(c, 1);
  check_probabilities(c, 2, 1);
  check_rows(c);
}

// Checks the labels and converts them to int64 in scratch memory.
const std::int64_t* classes_of(KernelContext& c, const TensorView& labels, std::int64_t classes) {
  std::int64_t* copy = take<std::int64_t>(c, labels.size());
  switch_numeric(labels.dtype, [&]<class L>(TypeTag<L>) {
    const L* from = labels.as<const L>();
    for (std::int64_t i = 0; i < labels.size(); ++i) {
      copy[i] = static_cast<std::int64_t>(from[i]);
      if (copy[i] < 0 || copy[i] >= classes)
        fail<InvalidArgumentError>(
            "[{}] label {} at position {} is outside the valid range [0, {})", c.op->name, copy[i],
            c.attrs<LabelPositionAttrs>().first_row(labels.size()) + i, classes);
    }
  });
  return copy;
}

template <class T>
TANDEM_INLINED void log_sums(std::int64_t rows, std::int64_t columns, const T* x,
                             Compute<T>* logs) {
  using C = Compute<T>;
  C largest[kExpRows], sums[kExpRows];
  exp_sums(rows, columns, x, largest, sums);
  for (std::int64_t r = 0; r < rows; ++r) logs[r] = largest[r] + vec::log(sums[r]);
}

template <class T>
TANDEM_INLINED void dense_losses(std::int64_t rows, std::int64_t columns, const T* x,
                                 const T* labels, const Compute<T>* logs, T* loss) {
  using C = Compute<T>;
  for (std::int64_t r = 0; r < rows; ++r, x += columns, labels += columns)
    loss[r] = store_as<T>(row_sum<C>(columns, [=](std::int64_t j) {
      return static_cast<C>(labels[j]) * (logs[r] - static_cast<C>(x[j]));
    }));
}

// dlogits = dloss * (softmax(logits) - 1 at the label).
template <class T>
TANDEM_INLINED void sparse_grad_rows(std::int64_t rows, std::int64_t columns, const T* dloss,
                                     const T* x, const std::int64_t* labels, const Compute<T>* logs,
                                     T* dx) {
  using C = Compute<T>;
  for_exp(rows, columns, x, logs,
          [=](std::int64_t r, std::int64_t first, std::int64_t count, const C* p) {
            const C slope = static_cast<C>(dloss[r]);
            T* out = dx + r * columns + first;
            write_elements(out, count, [=](std::int64_t j) { return slope * p[j]; });
            const std::int64_t label = labels[r] - first;
            if (label >= 0 && label < count) out[label] = store_as<T>(slope * (p[label] - C(1)));
          });
}

// dlogits = dloss * (softmax(logits) * sum(labels) - labels).
template <class T>
TANDEM_INLINED void dense_grad_rows(std::int64_t rows, std::int64_t columns, const T* dloss,
                                    const T* x, const T* labels, const Compute<T>* logs, T* dx) {
  using C = Compute<T>;
  C totals[kExpRows];
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* row = labels + r * columns;
    totals[r] = row_sum<C>(columns, [row](std::int64_t j) { return static_cast<C>(row[j]); });
  }
  for_exp(rows, columns, x, logs,
          [&](std::int64_t r, std::int64_t first, std::int64_t count, const C* p) {
            const C slope = static_cast<C>(dloss[r]);
            const C total = totals[r];
            const T* label = labels + r * columns + first;
            write_elements(dx + r * columns + first, count, [=](std::int64_t j) {
              return slope * (p[j] * total - static_cast<C>(label[j]));
            });
          });
}

void sparse_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const TensorView &logits = c.inputs[0], &loss = c.outputs[0];
  const std::int64_t columns = logits.shape.word(-1);
  const std::int64_t* labels = classes_of(c, c.inputs[1], columns);
  switch_floating(logits.dtype, [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    const T* x = logits.as<const T>();
    C* logs = c.outputs[1].as<C>();
    for_row_blocks(loss.size(), columns, [&](std::int64_t first, std::int64_t rows) {
      run_loop<T, log_sums<T>>(rows, columns, x + first * columns, logs + first);
      for (std::int64_t r = first; r < first + rows; ++r)
        loss.as<T>()[r] = store_as<T>(logs[r] - static_cast<C>(x[r * columns + labels[r]]));
    });
  });
}

void sparse_grad_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const TensorView& logits = c.inputs[1];
  const std::int64_t columns = logits.shape.word(-1);
  const std::int64_t* labels = classes_of(c, c.inputs[2], columns);
  switch_floating(logits.dtype, [&]<class T>(TypeTag<T>) {
    for_row_blocks(row_count(logits.shape), columns, [&](std::int64_t first, std::int64_t rows) {
      run_loop<T, sparse_grad_rows<T>>(rows, columns, c.inputs[0].as<const T>() + first,
                                       logits.as<const T>() + first * columns, labels + first,
                                       c.inputs[3].as<const Compute<T>>() + first,
                                       c.outputs[0].as<T>() + first * columns);
    });
  });
}

void dense_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const TensorView &logits = c.inputs[0], &loss = c.outputs[0];
  const std::int64_t columns = logits.shape.word(-1);
  switch_floating(logits.dtype, [&]<class T>(TypeTag<T>) {
    const T *x = logits.as<const T>(), *labels = c.inputs[1].as<const T>();
    auto* logs = c.outputs[1].as<Compute<T>>();
    for_row_blocks(loss.size(), columns, [&](std::int64_t first, std::int64_t rows) {
      run_loop<T, log_sums<T>>(rows, columns, x + first * columns, logs + first);
      run_loop<T, dense_losses<T>>(rows, columns, x + first * columns, labels + first * columns,
                                   logs + first, loss.as<T>() + first);
    });
  });
}

void dense_grad_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const TensorView& logits = c.inputs[1];
  const std::int64_t columns = logits.shape.word(-1);
  switch_floating(logits.dtype, [&]<class T>(TypeTag<T>) {
    for_row_blocks(row_count(logits.shape), columns, [&](std::int64_t first, std::int64_t rows) {
      const std::int64_t at = first * columns;
      run_loop<T, dense_grad_rows<T>>(rows, columns, c.inputs[0].as<const T>() + first,
                                      logits.as<const T>() + at, c.inputs[2].as<const T>() + at,
                                      c.inputs[3].as<const Compute<T>>() + first,
                                      c.outputs[0].as<T>() + at);
    });
  });
}

// A backward pass that is itself recorded is composed of differentiable operations.

void sparse_gradient(GradContext& c) {
  const Tensor &logits = c.input(0), &labels = c.input(1), &dloss = c.grad(0);
  if (context.records) {
    const Tensor target = one_hot(labels, logits.size_word(-1), {.dtype = logits.dtype()});
    c.set_grad(0, expand_dims(dloss, -1) * (nn::softmax(logits) - target));
    return;
  }
  const Tensor logs = c.output(1);
  c.set_grad(0, run(kSparseSoftmaxCrossEntropyGrad, {&dloss, &logits, &labels, &logs},
                    c.attrs<LabelPositionAttrs>()));
}

void dense_gradient(GradContext& c) {
  const Tensor &logits = c.input(0), &labels = c.input(1), &dloss = c.grad(0);
  if (c.needs_grad(0)) {
    if (context.records) {
      const Tensor total = reduce_sum(labels, {.axis = Dims{-1}, .keepdims = true});
      c.set_grad(0, expand_dims(dloss, -1) * (nn::softmax(logits) * total - labels));
    } else {
      const Tensor logs = c.output(1);
      c.set_grad(0, run(kSoftmaxCrossEntropyGrad, {&dloss, &logits, &labels, &logs}));
    }
  }
  if (c.needs_grad(1)) c.set_grad(1, -expand_dims(dloss, -1) * nn::log_softmax(logits));
}

// --- sigmoid ---

void infer_sigmoid(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  check_probabilities(c, 1, 0);
  c.add_output(c.dtype(0), c.shape(0));
}

template <class T>
TANDEM_INLINED void sigmoid_range(const T* logits, const T* labels, T* loss, std::int64_t count) {
  using C = Compute<T>;
  write_elements(loss, count, [=](std::int64_t i) {
    return cpu::SigmoidCrossEntropy()(static_cast<C>(logits[i]), static_cast<C>(labels[i]));
  });
}

void sigmoid_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  switch_floating(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    const T *logits = c.inputs[0].as<const T>(), *labels = c.inputs[1].as<const T>();
    parallel_for(c.outputs[0].size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      run_loop<T, sigmoid_range<T>>(logits + begin, labels + begin, c.outputs[0].as<T>() + begin,
                                    end - begin);
    });
  });
}

void infer_sigmoid_grad(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  check_probabilities(c, 1, 0);
  check_probabilities(c, 2, 0);
  c.add_output(c.dtype(0), c.shape(0));
}

template <class T>
TANDEM_INLINED void sigmoid_grad_range(const T* dloss, const T* logits, const T* labels, T* dx,
                                       std::int64_t count) {
  using C = Compute<T>;
  write_elements(dx, count, [=](std::int64_t i) {
    return cpu::SigmoidCrossEntropyGrad()(static_cast<C>(dloss[i]), static_cast<C>(logits[i]),
                                          static_cast<C>(labels[i]));
  });
}

void sigmoid_grad_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  switch_floating(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    const auto *dloss = c.inputs[0].as<const T>(), *logits = c.inputs[1].as<const T>(),
               *labels = c.inputs[2].as<const T>();
    parallel_for(c.outputs[0].size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      run_loop<T, sigmoid_grad_range<T>>(dloss + begin, logits + begin, labels + begin,
                                         c.outputs[0].as<T>() + begin, end - begin);
    });
  });
}

void sigmoid_gradient(GradContext& c) {
  const Tensor &x = c.input(0), &z = c.input(1), &g = c.grad();
  if (c.needs_grad(0))
    c.set_grad(
        0, context.records ? g * (sigmoid(x) - z) : run(kSigmoidCrossEntropyGrad, {&g, &x, &z}));
  if (c.needs_grad(1)) c.set_grad(1, -(g * x));
}

}  // namespace

const OpDef kSparseSoftmaxCrossEntropy = {.name = "SparseSoftmaxCrossEntropyWithLogits",
                                          .attrs = &attrs_type<LabelPositionAttrs>,
                                          .infer = infer_sparse,
                                          .gradient = sparse_gradient,
                                          .cpu_kernel = sparse_kernel,
                                          .autocast = kAutocastFloat32,
                                          .saved_inputs = 0b11,
                                          .saved_outputs = 0b10};
const OpDef kSparseSoftmaxCrossEntropyGrad = {.name = "SparseSoftmaxCrossEntropyWithLogitsGrad",
                                              .attrs = &attrs_type<LabelPositionAttrs>,
                                              .infer = infer_sparse_grad,
                                              .cpu_kernel = sparse_grad_kernel};
const OpDef kSoftmaxCrossEntropy = {.name = "SoftmaxCrossEntropyWithLogits",
                                    .infer = infer_dense,
                                    .gradient = dense_gradient,
                                    .cpu_kernel = dense_kernel,
                                    .autocast = kAutocastFloat32,
                                    .saved_inputs = 0b11,
                                    .saved_outputs = 0b10};
const OpDef kSoftmaxCrossEntropyGrad = {.name = "SoftmaxCrossEntropyWithLogitsGrad",
                                        .infer = infer_dense_grad,
                                        .cpu_kernel = dense_grad_kernel};
const OpDef kSigmoidCrossEntropy = {.name = "SigmoidCrossEntropyWithLogits",
                                    .infer = infer_sigmoid,
                                    .gradient = sigmoid_gradient,
                                    .cpu_kernel = sigmoid_kernel,
                                    .traits = kElementwise | kInPlace,
                                    .autocast = kAutocastFloat32,
                                    .chain = {ChainOp::kSigmoidCrossEntropy},
                                    .saved_inputs = 0b11};
const OpDef kSigmoidCrossEntropyGrad = {.name = "SigmoidCrossEntropyWithLogitsGrad",
                                        .infer = infer_sigmoid_grad,
                                        .cpu_kernel = sigmoid_grad_kernel,
                                        .traits = kElementwise | kInPlace,
                                        .chain = {ChainOp::kSigmoidCrossEntropyGrad}};

namespace nn {

Tensor sparse_softmax_cross_entropy(const Tensor& labels, const Tensor& logits) {
  const Tensor* inputs[] = {&logits, &labels};
  LabelPositionAttrs attrs;
  const ReplicaContext* replica = ReplicaContext::current();
  if (replica && replica->example_offset() > 0)
    attrs = {.first_example = replica->example_offset(), .examples = replica->local_examples()};
  return std::move(run_op(kSparseSoftmaxCrossEntropy, inputs, attrs)[0]);
}

Tensor softmax_cross_entropy(const Tensor& labels, const Tensor& logits) {
  const Tensor* inputs[] = {&logits, &labels};
  return std::move(run_op(kSoftmaxCrossEntropy, inputs)[0]);
}

Tensor sigmoid_cross_entropy(const Tensor& labels, const Tensor& logits) {
  return run(kSigmoidCrossEntropy, {&logits, &labels});
}

}  // namespace nn
}  // namespace tandem
