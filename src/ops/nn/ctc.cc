#include "ops/nn/ctc.h"

#include <algorithm>
#include <limits>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"
#include "core/vector_math.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/math/elementwise.h"
#include "ops/math/rows.h"
#include "ops/nn/norm_math.h"
#include "runtime/dispatch.h"

namespace tandem {
namespace {

template <class T>
constexpr T kNoPath = -std::numeric_limits<T>::infinity();

// --- shapes ---

// `first`: the input that holds log-probabilities. The others follow.
void check_ctc(InferContext& c, int first) {
  const DType dtype = c.dtype(first);
  if (dtype != float32 && dtype != float64)
    fail<DTypeError>("[{}] expected log-probabilities of float32 or float64, got {}", c.op().name,
                     name_of(dtype));
  const Shape &log_probs = c.shape(first), &targets = c.shape(first + 1);
  if (log_probs.rank() != 3 || !dim::may_be_at_most(1, log_probs.word(2)))
    fail<ShapeError>("[{}] expected log-probabilities [time, batch, classes], got shape {}",
                     c.op().name, log_probs.to_string());
  const std::int64_t blank = c.attrs<CtcAttrs>().blank;
  if (blank < 0 || !dim::may_be_at_most(blank + 1, log_probs.word(2)))
    fail<InvalidArgumentError>("[{}] expected a blank in [0, {}), got {}", c.op().name,
                               dim::text(log_probs.word(2)), blank);
  const Shape batch = {log_probs.word(1)};
  const bool padded = targets.rank() == 2 && dim::may_equal(targets.word(0), log_probs.word(1));
  if (targets.rank() != 1 && !padded)
    fail<ShapeError>(
        "[{}] expected targets [{}, most labels] or all labels as a vector, got shape {}",
        c.op().name, dim::text(log_probs.word(1)), targets.to_string());
  for (const int lengths : {first + 2, first + 3})
    if (!dim::may_equal(c.shape(lengths), batch))
      fail<ShapeError>("[{}] expected {} of shape {}, one per example, got {}", c.op().name,
                       lengths == first + 2 ? "input_lengths" : "target_lengths", batch.to_string(),
                       c.shape(lengths).to_string());
  for (int i = first + 1; i < first + 4; ++i)
    if (!is_integer(c.dtype(i)))
      fail<DTypeError>("[{}] expected targets and lengths of an integer dtype, got {}", c.op().name,
                       name_of(c.dtype(i)));
}

void infer_ctc(InferContext& c) {
  check_ctc(c, 0);
  c.add_output(c.dtype(0), {c.shape(0).word(1)});
}

void infer_ctc_grad(InferContext& c) {
  check_ctc(c, 1);
  if (c.dtype(0) != c.dtype(1) || !dim::may_equal(c.shape(0), Shape{c.shape(1).word(1)}))
    fail<InvalidArgumentError>("[{}] expected a gradient of {} ({}), got {} {}", c.op().name,
                               name_of(c.dtype(1)), dim::text(c.shape(1).word(1)),
                               name_of(c.dtype(0)), c.shape(0).to_string());
  c.add_output(c.dtype(1), c.shape(1));
}

// --- the arguments of kernels ---

// Integers in memory of the kernel, as int64.
const std::int64_t* integers_of(KernelContext& c, const TensorView& x) {
  auto* const copy = take<std::int64_t>(c, x.size());
  switch_numeric(x.dtype, [&]<class I>(TypeTag<I>) {
    std::transform(x.as<const I>(), x.as<const I>() + x.size(), copy,
                   [](I each) { return static_cast<std::int64_t>(each); });
  });
  return copy;
}

struct CtcBatch {
  std::int64_t steps, examples, classes, blank;
  const std::int64_t *targets, *input_lengths, *target_lengths;
  std::int64_t stride;           // between examples' labels; 0: they follow each other
  std::int64_t most_labels = 0;  // of an example
};

void check_length(const KernelContext& c, const char* what, std::int64_t example,
                  std::int64_t length, std::int64_t most) {
  if (length < 0 || length > most)
    fail<InvalidArgumentError>("[{}] expected {} in [0, {}], got {} for example {}", c.op->name,
                               what, most, length, example);
}

// Reads and checks the inputs from `first` on.
CtcBatch ctc_batch(KernelContext& c, int first) {
  const Shape& shape = c.inputs[first].shape;
  const TensorView& targets = c.inputs[first + 1];
  const bool padded = targets.shape.rank() == 2;
  CtcBatch batch{.steps = shape.word(0),
                 .examples = shape.word(1),
                 .classes = shape.word(2),
                 .blank = c.attrs<CtcAttrs>().blank,
                 .targets = integers_of(c, targets),
                 .input_lengths = integers_of(c, c.inputs[first + 2]),
                 .target_lengths = integers_of(c, c.inputs[first + 3]),
                 .stride = padded ? targets.shape.word(1) : 0};
  const std::int64_t* label = batch.targets;
  for (std::int64_t i = 0; i < batch.examples; ++i) {
    const std::int64_t labels = batch.target_lengths[i];
    check_length(c, "input_lengths", i, batch.input_lengths[i], batch.steps);
    check_length(c, "target_lengths", i, labels,
                 padded ? batch.stride : batch.targets + targets.size() - label);
    batch.most_labels = std::max(batch.most_labels, labels);
    for (std::int64_t j = 0; j < labels; ++j)
      if (label[j] < 0 || label[j] >= batch.classes || label[j] == batch.blank)
        fail<InvalidArgumentError>(
            "[{}] expected labels in [0, {}) other than the blank {}, got {} as label {} of "
            "example {}",
            c.op->name, batch.classes, batch.blank, label[j], j, i);
    label += padded ? batch.stride : labels;
  }
  if (!padded && label != batch.targets + targets.size())
    fail<InvalidArgumentError>(
        "[{}] expected as many targets as the sum of target_lengths, {}, "
        "got {}",
        c.op->name, label - batch.targets, targets.size());
  return batch;
}

// --- paths ---

// The positions of an example: its labels, with blanks before, between and after them.
template <class T>
struct CtcPath {
  std::int64_t steps = 0, positions = 0;
  const T* log_probs = nullptr;  // of the first step
  std::int64_t stride = 0;       // between steps
  std::int64_t* classes = nullptr;
  T* skips = nullptr;  // 0 where a path may come from two positions before, else -infinity
};

template <class T>
CtcPath<T> path_of(const CtcBatch& batch, std::int64_t example, const T* log_probs,
                   std::int64_t* classes, T* skips) {
  const std::int64_t* labels = batch.targets + example * batch.stride;
  if (batch.stride == 0)
    for (std::int64_t i = 0; i < example; ++i) labels += batch.target_lengths[i];
  CtcPath<T> path{.steps = batch.input_lengths[example],
                  .positions = 2 * batch.target_lengths[example] + 1,
                  .log_probs = log_probs + example * batch.classes,
                  .stride = batch.examples * batch.classes,
                  .classes = classes,
                  .skips = skips};
  for (std::int64_t s = 0; s < path.positions; ++s) {
    const bool label = s % 2 == 1;
    classes[s] = label ? labels[s / 2] : batch.blank;
    skips[s] = label && s > 1 && classes[s] != classes[s - 2] ? T(0) : kNoPath<T>;
  }
  return path;
}

// The same path from its end to its start.
template <class T>
CtcPath<T> reversed(const CtcPath<T>& path, std::int64_t* classes, T* skips) {
  CtcPath<T> result = path;
  result.log_probs += (path.steps - 1) * path.stride;
  result.stride = -path.stride;
  result.classes = classes;
  result.skips = skips;
  std::reverse_copy(path.classes, path.classes + path.positions, classes);
  for (std::int64_t s = 0; s < path.positions; ++s)
    skips[s] = s < 2 ? kNoPath<T> : path.skips[path.positions + 1 - s];
  return result;
}

// The logarithms of the sums over all paths that reach each position at each step, without that
// step's probability, in `rows` (`keep`), and with it for the last step in now[0, positions). Each
// row is relative to a number of its own; *scale is set to that of the last row. REQUIRES: now[-2]
// and now[-1] may be written.
template <class T>
TANDEM_INLINED void scan_paths(CtcPath<T> path, T* rows, bool keep, T* now, double* scale) {
  now[-2] = now[-1] = kNoPath<T>;
  *scale = 0;
  for (std::int64_t t = 0; t < path.steps; ++t) {
    T* const row = rows + (keep ? t * path.positions : 0);
    if (t == 0) {
      for (std::int64_t s = 0; s < path.positions; ++s) row[s] = s < 2 ? T(0) : kNoPath<T>;
    } else {
      for (std::int64_t s = 0; s < path.positions; ++s) {
        const T stay = now[s], next = now[s - 1], skip = now[s - 2] + path.skips[s];
        const T most = std::max(stay, std::max(next, skip));
        const T base = most > kNoPath<T> ? most : T(0);
        row[s] =
            vec::log(vec::exp(stay - base) + vec::exp(next - base) + vec::exp(skip - base)) + base;
      }
    }
    const T* const log_probs = path.log_probs + t * path.stride;
    for (std::int64_t s = 0; s < path.positions; ++s) now[s] = row[s] + log_probs[path.classes[s]];
    const T most = row_max<T>(path.positions, [now](std::int64_t s) { return now[s]; });
    if (most > kNoPath<T>) {
      for (std::int64_t s = 0; s < path.positions; ++s) now[s] -= most;
      *scale += static_cast<double>(most);
    }
  }
}

template <class T>
T loss_of(const CtcPath<T>& path, const T* now, double scale) {
  if (path.steps == 0) return path.positions == 1 ? T(0) : -kNoPath<T>;
  const T last = now[path.positions - 1], before = now[path.positions - 2];
  const T most = std::max(last, before);
  if (most == kNoPath<T>) return -kNoPath<T>;
  return static_cast<T>(-scale - most - std::log(std::exp(last - most) + std::exp(before - most)));
}

// Subtracts slope times the probability of each position at a step, given that the path ends, from
// the gradient of its class. NaN if no path ends.
template <class T>
TANDEM_INLINED void subtract_shares(CtcPath<T> path, const T* reaching, const T* remaining,
                                    const T* log_probs, T slope, T* shares, T* gradient,
                                    std::int64_t classes) {
  const std::int64_t last = path.positions - 1;
  for (std::int64_t s = 0; s <= last; ++s)
    shares[s] = reaching[s] + remaining[last - s] + log_probs[path.classes[s]];
  const T most = row_max<T>(path.positions, [shares](std::int64_t s) { return shares[s]; });
  if (most == kNoPath<T>) {
    std::fill_n(gradient, classes, std::numeric_limits<T>::quiet_NaN());
    return;
  }
  for (std::int64_t s = 0; s <= last; ++s) shares[s] = vec::exp(shares[s] - most);
  const T factor =
      slope / row_sum<T>(path.positions, [shares](std::int64_t s) { return shares[s]; });
  for (std::int64_t s = 0; s <= last; ++s) gradient[path.classes[s]] -= factor * shares[s];
}

// Memory of one thread: rows of floating-point numbers and of classes.
template <class T>
struct CtcMemory {
  T *reaching, *remaining, *now, *skips, *back_skips;
  std::int64_t *classes, *back_classes;
};

template <class T>
TANDEM_INLINED void gradient_of_path(CtcPath<T> path, CtcMemory<T> memory, T slope, T* gradient,
                                     std::int64_t classes) {
  double scale = 0;
  const CtcPath<T> back = reversed(path, memory.back_classes, memory.back_skips);
  scan_paths(path, memory.reaching, true, memory.now, &scale);
  scan_paths(back, memory.remaining, true, memory.now, &scale);
  for (std::int64_t t = 0; t < path.steps; ++t)
    subtract_shares(path, memory.reaching + t * path.positions,
                    memory.remaining + (path.steps - 1 - t) * path.positions,
                    path.log_probs + t * path.stride, slope, memory.now, gradient + t * path.stride,
                    classes);
}

// --- kernels ---

// Calls body(example, memory) for each example, in parallel. `rows`: of reaching and remaining.
template <class T, class Body>
void for_examples(KernelContext& c, const CtcBatch& batch, std::int64_t rows, const Body& body) {
  const std::int64_t width = 2 * batch.most_labels + 3;  // two before the positions
  const std::int64_t threads = std::clamp<std::int64_t>(intra_op_threads(), 1, batch.examples);
  const std::int64_t floats = (2 * rows + 3) * width;
  T* const numbers = take<T>(c, threads * floats);
  auto* const classes = take<std::int64_t>(c, threads * 2 * width);
  parallel_for(threads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t thread = begin; thread < end; ++thread) {
      T* const at = numbers + thread * floats;
      std::int64_t* const of_thread = classes + thread * 2 * width;
      const CtcMemory<T> memory{.reaching = at + 3 * width,
                                .remaining = at + (3 + rows) * width,
                                .now = at + 2,
                                .skips = at + width,
                                .back_skips = at + 2 * width,
                                .classes = of_thread,
                                .back_classes = of_thread + width};
      for (std::int64_t example = thread; example < batch.examples; example += threads)
        body(example, memory);
    }
  });
}

void ctc_kernel(KernelContext& c) {
  const CtcBatch batch = ctc_batch(c, 0);
  if (batch.examples == 0) return;
  switch_floating(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_floating_point_v<T>)
      for_examples<T>(c, batch, 1, [&](std::int64_t example, const CtcMemory<T>& memory) {
        const CtcPath<T> path =
            path_of(batch, example, c.inputs[0].as<const T>(), memory.classes, memory.skips);
        double scale = 0;
        run_loop<T, scan_paths<T>>(path, memory.reaching, false, memory.now, &scale);
        c.outputs[0].as<T>()[example] = loss_of(path, memory.now, scale);
      });
  });
}

void ctc_grad_kernel(KernelContext& c) {
  const CtcBatch batch = ctc_batch(c, 1);
  switch_floating(c.inputs[1].dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_floating_point_v<T>) {
      T* const gradient = c.outputs[0].as<T>();
      std::fill_n(gradient, c.outputs[0].size(), T(0));
      if (c.outputs[0].size() == 0) return;
      for_examples<T>(c, batch, batch.steps, [&](std::int64_t example, const CtcMemory<T>& memory) {
        const T slope = c.inputs[0].as<const T>()[example];
        if (slope == T(0)) return;  // also of an infinite loss
        const CtcPath<T> path =
            path_of(batch, example, c.inputs[1].as<const T>(), memory.classes, memory.skips);
        run_loop<T, gradient_of_path<T>>(path, memory, slope, gradient + example * batch.classes,
                                         batch.classes);
      });
    }
  });
}

void ctc_gradient(GradContext& c) {
  c.set_grad(0, run(kCtcLossGrad, {&c.grad(), &c.input(0), &c.input(1), &c.input(2), &c.input(3)},
                    c.attrs<CtcAttrs>()));
}

void refuse_second_order(GradContext& c) {
  fail<UnimplementedError>(
      "[{}] has no gradient: the second derivative of ctc_loss() is not supported", c.op().name);
}

}  // namespace

const OpDef kCtcLoss = {.name = "CTCLoss",
                        .attrs = &attrs_type<CtcAttrs>,
                        .infer = infer_ctc,
                        .gradient = ctc_gradient,
                        .cpu_kernel = ctc_kernel,
                        .gpu = false,
                        .autocast = kAutocastFloat32,
                        .saved_inputs = 0b1111};
const OpDef kCtcLossGrad = {.name = "CTCLossGrad",
                            .attrs = &attrs_type<CtcAttrs>,
                            .infer = infer_ctc_grad,
                            .gradient = refuse_second_order,
                            .cpu_kernel = ctc_grad_kernel,
                            .gpu = false};

}  // namespace tandem
