// Softmax and cross entropies over the last axis in StableHLO.
#include <limits>

#include "ops/lowering_support.h"

namespace tandem::stablehlo {
namespace {

// A value per row, repeated along the row.
Expression along_rows(const Expression& rows, const Expression& x) {
  return x.repeat(rows.value(), leading_axes(x.shape()));
}
Axes last_axis(const Expression& x) { return {x.shape().rank() - 1}; }
Expression row_sums(const Expression& x) { return x.sum(last_axis(x)); }

Expression row_max(Context& c, const Expression& x) {
  const Value least =
      c.build.constant(-std::numeric_limits<double>::infinity(), {x.element(), Shape::scalar()});
  return {c.build, c.build.reduce("maximum", x.value(), least, last_axis(x))};
}

// log(sum(exp(x))) of each row.
Expression log_sums(Context& c, const Expression& x) {
  const Expression largest = row_max(c, x);
  return largest + log(row_sums(exp(x - along_rows(largest, x))));
}

void lower_softmax(Context& c) {
  const Expression x = widened(c, 0);
  const Expression e = exp(x - along_rows(row_max(c, x), x));
  finish(c, e * along_rows(1.0 / row_sums(e), e));
}

void lower_log_softmax(Context& c) {
  const Expression x = widened(c, 0);
  const Expression shifted = x - along_rows(row_max(c, x), x);
  finish(c, shifted - along_rows(log(row_sums(exp(shifted))), x));
}

void lower_softmax_grad(Context& c) {
  const Expression dy = widened(c, 0), y = widened(c, 1);
  finish(c, (dy - along_rows(row_sums(dy * y), dy)) * y);
}

void lower_log_softmax_grad(Context& c) {
  const Expression dy = widened(c, 0), y = widened(c, 1);
  finish(c, dy - exp(y) * along_rows(row_sums(dy), dy));
}

// --- cross entropies; output 1 is log(sum(exp(logits))) ---

// Whether each element is that of its row's label. No element is, for a label that is out of range:
// a compiled program cannot throw.
Expression is_label(Context& c, const Value& labels, const Shape& logits) {
  const Value classes = c.build.iota({labels.element(), logits}, logits.rank() - 1);
  const Value repeated = c.build.broadcast(labels, logits, leading_axes(logits));
  return {c.build, c.build.compare("EQ", classes, repeated)};
}

void lower_sparse(Context& c) {
  const Expression x = widened(c, 0);
  const Expression logs = log_sums(c, x);
  const Expression chosen = x.where(is_label(c, c.input(1), x.shape()), x.like(0.0));
  finish(c, 0, (logs - row_sums(chosen)).value());
  finish(c, 1, logs.value());
}

void lower_sparse_grad(Context& c) {
  const Expression dloss = widened(c, 0), x = widened(c, 1), logs = widened(c, 3);
  const Expression p = exp(x - along_rows(logs, x));
  const Expression target = is_label(c, c.input(2), x.shape()).as(x.element());
  finish(c, along_rows(dloss, x) * (p - target));
}

void lower_dense(Context& c) {
  const Expression x = widened(c, 0), labels = widened(c, 1);
  const Expression logs = log_sums(c, x);
  finish(c, 0, row_sums(labels * (along_rows(logs, x) - x)).value());
  finish(c, 1, logs.value());
}

void lower_dense_grad(Context& c) {
  const Expression dloss = widened(c, 0), x = widened(c, 1);
  const Expression labels = widened(c, 2), logs = widened(c, 3);
  const Expression p = exp(x - along_rows(logs, x));
  finish(c, along_rows(dloss, x) * (p * along_rows(row_sums(labels), x) - labels));
}

void lower_sigmoid(Context& c) {
  const Expression x = widened(c, 0), z = widened(c, 1);
  finish(c, x.binary("maximum", x.like(0.0)) - x * z + log1p(exp(-abs(x))));
}

void lower_sigmoid_grad(Context& c) {
  const Expression g = widened(c, 0), x = widened(c, 1), z = widened(c, 2);
  finish(c, g * (sigmoid(x) - z));
}

constexpr Lowering kSoftmaxLowerings[] = {
    {"LogSoftmax", lower_log_softmax},
    {"LogSoftmaxGrad", lower_log_softmax_grad},
    {"SigmoidCrossEntropyWithLogits", lower_sigmoid},
    {"SigmoidCrossEntropyWithLogitsGrad", lower_sigmoid_grad},
    {"Softmax", lower_softmax},
    {"SoftmaxCrossEntropyWithLogits", lower_dense},
    {"SoftmaxCrossEntropyWithLogitsGrad", lower_dense_grad},
    {"SoftmaxGrad", lower_softmax_grad},
    {"SparseSoftmaxCrossEntropyWithLogits", lower_sparse},
    {"SparseSoftmaxCrossEntropyWithLogitsGrad", lower_sparse_grad},
};

}  // namespace

LoweringList softmax_lowerings() { return kSoftmaxLowerings; }

}  // namespace tandem::stablehlo
