#include "ops/nn/lstm.h"

#include <algorithm>
#include <utility>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"
#include "core/vector_math.h"
#include "device/device_manager.h"
#include "op/record.h"
#include "ops/math/elementwise.h"
#include "ops/math/gemm.h"
#include "ops/math/in_float32.h"
#include "ops/nn/norm_math.h"
#include "ops/onednn/onednn.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "runtime/gradient_buffer.h"
#include "runtime/placement.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

int lstm_time_axis(const LstmAttrs& attrs) { return attrs.time_major ? 0 : 1; }

// --- shapes ---

void expect_lstm_input(InferContext& c, int input, const char* what, const Shape& shape) {
  if (c.dtype(input) != c.dtype(0))
    fail<DTypeError>("[{}] expected one dtype, got {} and {}", c.op().name, name_of(c.dtype(0)),
                     name_of(c.dtype(input)));
  if (!dim::may_equal(c.shape(input), shape))
    fail<ShapeError>("[{}] expected {} of shape {}, got {}", c.op().name, what, shape.to_string(),
                     c.shape(input).to_string());
}

// Checks a sequence [batch, steps, 4 units], and returns the shapes of its states.
struct LstmShapes {
  Shape all, one;  // of all steps and of one
};
LstmShapes lstm_shapes(InferContext& c, int sequence, std::int64_t units) {
  const Shape& x = c.shape(sequence);
  const int time = lstm_time_axis(c.attrs<LstmAttrs>());
  check_dtype(c.op().name, kFloating, c.dtype(0));
  if (x.rank() != 3 || !dim::may_be_at_most(1, units) ||
      !dim::may_equal(x.word(2), c.product(4, units)) || !dim::may_be_at_most(1, x.word(time)))
    fail<ShapeError>("[{}] expected a sequence of 1 or more steps of 4 x {} gates, got shape {}",
                     c.op().name, dim::text(units), x.to_string());
  return {{x.word(0), x.word(1), units}, {x.word(1 - time), units}};
}

void infer_lstm(InferContext& c) {
  if (c.shape(3).rank() != 2)
    fail<ShapeError>("[{}] expected a recurrent kernel (units, 4 units), got shape {}", c.op().name,
                     c.shape(3).to_string());
  const std::int64_t units = c.shape(3).word(0);
  const LstmShapes shapes = lstm_shapes(c, 0, units);
  expect_lstm_input(c, 1, "a first hidden state", shapes.one);
  expect_lstm_input(c, 2, "a first cell", shapes.one);
  expect_lstm_input(c, 3, "a recurrent kernel", {units, c.product(4, units)});
  c.add_output(c.dtype(0), c.shape(0));
  for (int i = 0; i < 2; ++i) c.add_output(c.dtype(0), shapes.all);
}

void infer_lstm_grad(InferContext& c) {
  if (c.shape(0).rank() != 3)
    fail<ShapeError>("[{}] expected a gradient of three axes, got shape {}", c.op().name,
                     c.shape(0).to_string());
  const std::int64_t units = c.shape(0).word(2);
  const LstmShapes shapes = lstm_shapes(c, 1, units);
  expect_lstm_input(c, 0, "a gradient", shapes.all);
  expect_lstm_input(c, 2, "cells", shapes.all);
  expect_lstm_input(c, 3, "a first cell", shapes.one);
  expect_lstm_input(c, 4, "a transposed kernel", {c.product(4, units), units});
  if (c.num_inputs() > 5) expect_lstm_input(c, 5, "a gradient of cells", shapes.all);
  if (c.num_inputs() > 6) expect_lstm_input(c, 6, "a gradient of gates", c.shape(1));
  c.add_output(c.dtype(1), c.shape(1));
  for (int i = 0; i < 2; ++i) c.add_output(c.dtype(1), shapes.one);
}

// --- kernels ---

// The order of the steps, and where their rows are.
struct LstmOrder {
  LstmAttrs attrs;
  std::int64_t batch, steps, units;

  LstmOrder(const LstmAttrs& given, const Shape& states)
      : attrs(given),
        batch(states.word(1 - lstm_time_axis(given))),
        steps(states.word(lstm_time_axis(given))),
        units(states.word(2)) {}

  // The row of step `i` of an example.
  std::int64_t row(std::int64_t example, std::int64_t i) const {
    const std::int64_t t = attrs.go_backwards ? steps - 1 - i : i;
    return attrs.time_major ? t * batch + example : example * steps + t;
  }
  // The cell before step `i`.
  template <class T>
  const T* before(const T* first, const T* cells, std::int64_t example, std::int64_t i) const {
    return i == 0 ? first + example * units : cells + row(example, i - 1) * units;
  }
  // Calls body(example) in parallel.
  template <class Body>
  void for_examples(const Body& body) const {
    parallel_for(batch, std::max<std::int64_t>(1, kElementwiseGrain / (4 * units)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t example = begin; example < end; ++example) body(example);
                 });
  }
};

// Products a[m, k] . b[k, n] with one b.
template <class T>
auto lstm_product(KernelContext& c, std::int64_t m, const TensorView& b) {
  const std::int64_t k = b.shape.word(0), n = b.shape.word(1);
  if constexpr (std::is_same_v<T, float>)
    return onednn::PackedProduct(c, m, n, k, b);
  else
    return [m, n, k, data = b.as<const T>()](const T* a, T* to) {
      gemm<T>(m, n, k, {a, k, 1}, {data, n, 1}, to);
    };
}

// A step of one example: rows of `units` numbers, or of the four gates.
template <class T>
struct LstmStep {
  const T *products, *sums, *before;
  T *gates, *hidden, *state, *cells;
};

template <class T>
TANDEM_INLINED void lstm_step(std::int64_t units, LstmStep<T> s) {
  const std::int64_t f = units, g = 2 * units, o = 3 * units;
#pragma GCC ivdep
  for (std::int64_t j = 0; j < units; ++j) {
    const T input = vec::sigmoid(s.products[j] + s.sums[j]);
    const T forget = vec::sigmoid(s.products[f + j] + s.sums[f + j]);
    const T candidate = vec::tanh(s.products[g + j] + s.sums[g + j]);
    const T output = vec::sigmoid(s.products[o + j] + s.sums[o + j]);
    const T cell = forget * s.before[j] + input * candidate;
    s.gates[j] = input;
    s.gates[f + j] = forget;
    s.gates[g + j] = candidate;
    s.gates[o + j] = output;
    s.cells[j] = cell;
    s.state[j] = s.hidden[j] = output * vec::tanh(cell);
  }
}

// Its gradient. `hidden` and `cell` hold the gradients from the later steps; `cell` is replaced.
template <class T>
struct LstmSlopes {
  const T *output, *gates, *cells, *before, *hidden;
  const T *of_cells, *of_gates;  // null: zeros
  T *cell, *products, *dense;    // the last two get the same
};

template <class T>
TANDEM_INLINED void lstm_step_back(std::int64_t units, LstmSlopes<T> s) {
  const std::int64_t f = units, g = 2 * units, o = 3 * units;
  for (std::int64_t j = 0; s.of_cells && j < units; ++j) s.cell[j] += s.of_cells[j];
#pragma GCC ivdep
  for (std::int64_t j = 0; j < units; ++j) {
    const T input = s.gates[j], forget = s.gates[f + j], candidate = s.gates[g + j];
    const T output = s.gates[o + j], squashed = vec::tanh(s.cells[j]);
    const T hidden = s.output[j] + s.hidden[j];
    const T cell = s.cell[j] + hidden * output * (T(1) - squashed * squashed);
    s.dense[j] = cell * candidate * (input * (T(1) - input));
    s.dense[f + j] = cell * s.before[j] * (forget * (T(1) - forget));
    s.dense[g + j] = cell * input * (T(1) - candidate * candidate);
    s.dense[o + j] = hidden * squashed * (output * (T(1) - output));
    s.cell[j] = cell * forget;
  }
  for (std::int64_t j = 0; s.of_gates && j < 4 * units; ++j) {
    const T gate = s.gates[j];
    s.dense[j] += s.of_gates[j] * (j / units == 2 ? T(1) - gate * gate : gate * (T(1) - gate));
  }
  std::copy_n(s.dense, 4 * units, s.products);
}

// Calls f with the element type. float16 and bfloat16 are converted before (InFloat32).
template <class F>
void switch_lstm(DType dtype, const F& f) {
  if (dtype == float64)
    f(TypeTag<double>());
  else
    f(TypeTag<float>());
}

void lstm_kernel(KernelContext& c) {
  const InFloat32 in_float32(c, true);
  const LstmOrder order(c.attrs<LstmAttrs>(), c.outputs[1].shape);
  if (order.batch == 0) return;
  switch_lstm(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    const std::int64_t units = order.units;
    T* const state = take<T>(c, order.batch * units);
    T* const sums = take<T>(c, order.batch * 4 * units);
    std::copy_n(c.inputs[1].as<const T>(), order.batch * units, state);
    const auto product = lstm_product<T>(c, order.batch, c.inputs[3]);
    for (std::int64_t i = 0; i < order.steps; ++i) {
      product(state, sums);
      order.for_examples([&](std::int64_t example) {
        const std::int64_t at = order.row(example, i) * units;
        T* const cells = c.outputs[2].as<T>();
        run_loop<T, lstm_step<T>>(
            units,
            LstmStep<T>{.products = c.inputs[0].as<const T>() + 4 * at,
                        .sums = sums + example * 4 * units,
                        .before = order.before<T>(c.inputs[2].as<const T>(), cells, example, i),
                        .gates = c.outputs[0].as<T>() + 4 * at,
                        .hidden = c.outputs[1].as<T>() + at,
                        .state = state + example * units,
                        .cells = cells + at});
      });
    }
  });
}

void lstm_grad_kernel(KernelContext& c) {
  const InFloat32 in_float32(c, true);
  const LstmOrder order(c.attrs<LstmAttrs>(), c.inputs[0].shape);
  if (order.batch == 0) return;
  switch_lstm(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    const std::int64_t units = order.units;
    const auto at_row = [&](int input, std::int64_t at) {
      return c.inputs.size() > input ? c.inputs[input].as<const T>() + at : nullptr;
    };
    T *const hidden = c.outputs[1].as<T>(), *const cell = c.outputs[2].as<T>();
    T* const dense = take<T>(c, order.batch * 4 * units);
    std::fill_n(hidden, order.batch * units, T(0));
    std::fill_n(cell, order.batch * units, T(0));
    const auto product = lstm_product<T>(c, order.batch, c.inputs[4]);
    for (std::int64_t i = order.steps; i-- > 0;) {
      order.for_examples([&](std::int64_t example) {
        const std::int64_t at = order.row(example, i) * units;
        run_loop<T, lstm_step_back<T>>(
            units, LstmSlopes<T>{.output = at_row(0, at),
                                 .gates = at_row(1, 4 * at),
                                 .cells = at_row(2, at),
                                 .before = order.before<T>(at_row(3, 0), at_row(2, 0), example, i),
                                 .hidden = hidden + example * units,
                                 .of_cells = at_row(5, at),
                                 .of_gates = at_row(6, 4 * at),
                                 .cell = cell + example * units,
                                 .products = c.outputs[0].as<T>() + 4 * at,
                                 .dense = dense + example * 4 * units});
      });
      product(dense, hidden);
    }
  });
}

// --- gradients ---

// The states before each step, of those after it.
Tensor lstm_before(const LstmAttrs& attrs, const Tensor& first, const Tensor& states) {
  const int time = lstm_time_axis(attrs);
  Dims begin{0, 0, 0}, size{-1, -1, -1};
  begin[time] = attrs.go_backwards ? 1 : 0;
  size[time] = dim::difference(states.size_word(time), 1);
  const Tensor front = expand_dims(first, time), rest = slice(states, begin, size);
  return attrs.go_backwards ? concat({rest, front}, time) : concat({front, rest}, time);
}

// The gradients that the kernel computes, composed of operations that have gradients themselves.
std::vector<Tensor> composed_lstm_gradient(GradContext& c, const Tensor& of_hidden) {
  const auto& attrs = c.attrs<LstmAttrs>();
  const int time = lstm_time_axis(attrs);
  const auto steps = static_cast<std::size_t>(dim::known(
      c.op().name, of_hidden.size_word(time), "the number of operations of a second derivative"));
  const std::vector<Tensor> gates = split(c.output(0), 4, {.axis = 2});
  const Tensor &input = gates[0], &forget = gates[1], &candidate = gates[2], &output = gates[3];
  const Tensor cells = c.output(2), squashed = tanh(cells);
  const auto of_sigmoid = [](const Tensor& y) { return y * subtract(1.0, y); };
  const auto of_tanh = [](const Tensor& y) { return subtract(1.0, square(y)); };
  const std::vector<Tensor> slopes = {of_sigmoid(input), of_sigmoid(forget), of_tanh(candidate),
                                      of_sigmoid(output)};
  // The derivatives of a step's cell by its first three products, and of its hidden state by the
  // last one and by the cell.
  const auto of_cell =
      unstack(concat({candidate * slopes[0], lstm_before(attrs, c.input(2), cells) * slopes[1],
                      input * slopes[2]},
                     2),
              time);
  const auto of_output = unstack(squashed * slopes[3], time);
  const auto by_cell = unstack(output * of_tanh(squashed), time), forgets = unstack(forget, time);
  const auto hiddens = unstack(of_hidden, time);
  std::vector<Tensor> of_cells, of_gates, products(steps);
  if (c.grad(2).defined()) of_cells = unstack(c.grad(2), time);
  if (c.grad(0).defined()) of_gates = unstack(c.grad(0) * concat(slopes, 2), time);
  Tensor hidden = zeros_like(c.input(1)), cell = zeros_like(c.input(2));
  for (std::size_t i = steps; i-- > 0;) {
    const std::size_t t = attrs.go_backwards ? steps - 1 - i : i;
    hidden = hidden + hiddens[t];
    cell = cell + hidden * by_cell[t];
    if (!of_cells.empty()) cell = cell + of_cells[t];
    products[t] = concat({concat({cell, cell, cell}, 1) * of_cell[t], hidden * of_output[t]}, 1);
    if (!of_gates.empty()) products[t] = products[t] + of_gates[t];
    hidden = matmul(products[t], c.input(3), {.transpose_b = true});
    cell = cell * forgets[t];
  }
  return {stack(products, time), hidden, cell};
}

void lstm_gradient(GradContext& c) {
  const auto& attrs = c.attrs<LstmAttrs>();
  const Tensor gates = c.output(0), hidden = c.output(1), cells = c.output(2);
  const Tensor of_hidden = c.grad(1).defined() ? c.grad(1) : zeros_like(hidden);
  std::vector<Tensor> grads;
  if (context.records) {
    grads = composed_lstm_gradient(c, of_hidden);
  } else {
    const Tensor transposed = transpose(c.input(3));
    std::vector<const Tensor*> inputs = {&of_hidden, &gates, &cells, &c.input(2), &transposed};
    const Tensor of_cells =
        c.grad(2).defined() || !c.grad(0).defined() ? c.grad(2) : zeros_like(cells);
    if (of_cells.defined()) inputs.push_back(&of_cells);
    if (c.grad(0).defined()) inputs.push_back(&c.grad(0));
    grads = run_op(kLstmStepsGrad, inputs, attrs);
  }
  for (int i = 0; i < 3; ++i) c.set_grad(i, grads[static_cast<std::size_t>(i)]);
  if (!c.needs_grad(3)) return;
  const auto rows = [](const Tensor& x) {
    return reshape(x, {dim::product(x.size_word(0), x.size_word(1)), x.size_word(2)});
  };
  const Tensor before = rows(lstm_before(attrs, c.input(1), hidden)), products = rows(grads[0]);
  const GradientBufferScope place(c, 3);
  c.set_grad(3, matmul(before, products, {.transpose_a = true}));
}

}  // namespace

const OpDef kLstmSteps = {.name = "LstmSteps",
                          .attrs = &attrs_type<LstmAttrs>,
                          .infer = infer_lstm,
                          .gradient = lstm_gradient,
                          .cpu_kernel = lstm_kernel,
                          .gpu = false,
                          .traits = kInPlace,
                          .autocast = kAutocastLower,
                          .saved_inputs = 0b1110,
                          .saved_outputs = 0b111};
// Has no gradient: a backward pass that is itself recorded is composed of differentiable
// operations.
const OpDef kLstmStepsGrad = {.name = "LstmStepsGrad",
                              .attrs = &attrs_type<LstmAttrs>,
                              .infer = infer_lstm_grad,
                              .cpu_kernel = lstm_grad_kernel,
                              .gpu = false};

OpList lstm_ops() { return list_of<kLstmSteps, kLstmStepsGrad>(); }

bool has_lstm_steps(DType dtype, std::int64_t steps) {
  if (dtype == bfloat16 && onednn::computes(bfloat16) && !dim::is_unknown(steps)) return false;
  if (context.placement && context.placement->name->type)
    return *context.placement->name->type == "CPU";
  return DeviceManager::get().devices(DeviceType::kGpu, kLstmSteps.name).empty();
}

LstmStates lstm_steps(Tensor products, const Tensor& hidden, const Tensor& cell,
                      const Tensor& recurrent_kernel, const LstmAttrs& attrs) {
  std::vector<Tensor> outputs =
      run_op_in_place(kLstmSteps, std::move(products), {&hidden, &cell, &recurrent_kernel}, attrs);
  const int time = lstm_time_axis(attrs);
  Dims last{0, 0, 0}, one{-1, -1, -1};
  last[time] = attrs.go_backwards ? 0 : dim::difference(outputs[1].size_word(time), 1);
  one[time] = 1;
  const auto last_of = [&](const Tensor& states) {
    return reshape(slice(states, last, one), hidden.shape());
  };
  return {outputs[1], last_of(outputs[1]), last_of(outputs[2])};
}

}  // namespace tandem
