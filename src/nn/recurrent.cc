// Recurrent layers: calls with states, and the layers of one direction.
#include "nn/recurrent.h"

#include <functional>
#include <utility>

#include "core/dim.h"
#include "core/scoped.h"
#include "ops/math/of_size.h"
#include "ops/nn/lstm.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

constexpr const char* kStepAxes = "(batch, steps, features)";

// Where the call_with_state() on this thread waits for the state of the layer that it calls.
thread_local layers::RecurrentResult* open_result = nullptr;

}  // namespace

RecurrentBase& recurrent_of(const std::string& what, const Layer& layer) {
  auto* const recurrent = dynamic_cast<RecurrentBase*>(&layer.base());
  if (!recurrent)
    fail<InvalidArgumentError>("[{}] expected a recurrent layer, got '{}'", what,
                               layer.base().label());
  return *recurrent;
}

RecurrentBase::Call RecurrentBase::parts_of(std::span<const Tensor> inputs, bool training) const {
  const bool masked = inputs.size() > 1 && inputs.back().dtype() == bool_;
  const std::size_t rest = inputs.size() - (masked ? 1 : 0);
  if (rest != 1 && rest != 1 + num_states())
    fail<InvalidArgumentError>(
        "[{}] expected a sequence, then {} tensors of the first state or none, then a bool mask or "
        "none, got {} inputs",
        label(), num_states(), inputs.size());
  Call call{.sequence = inputs.front(), .training = training};
  call.state.assign(inputs.begin() + 1, inputs.begin() + static_cast<std::ptrdiff_t>(rest));
  if (masked) call.mask = inputs.back();
  const Shape& x = call.sequence.shape();
  if (x.word(1) == 0) reject("at least one step", x);
  if (masked && !may_agree(call.mask.shape(), Shape({x.word(0), x.word(1)})))
    reject(fmt::format("a mask (batch, steps) of a sequence of shape {}", x.to_string()),
           call.mask.shape());
  if (masked)
    call.mask = of_shape(label(), "a mask of shape", call.mask, Shape({x.word(0), x.word(1)}));
  return call;
}

Tensor RecurrentBase::call(std::span<const Tensor> inputs, const CallOptions& options) {
  layers::RecurrentResult* const wanted = std::exchange(open_result, nullptr);
  if (!inputs.empty()) static_cast<void>(infer(inputs.front().shape()));
  layers::RecurrentResult result = run(parts_of(inputs, options.training));
  if (wanted) wanted->state = std::move(result.state);
  return result.output;
}

Shape RecurrentBase::output_shape(std::span<const Shape> input_shapes) const {
  if (input_shapes.empty() || input_shapes.size() > 2 + num_states())
    fail<InvalidArgumentError>("[{}] expected 1 to {} inputs, got {}", label(), 2 + num_states(),
                               input_shapes.size());
  return infer(input_shapes.front());
}

namespace layers {

RecurrentResult Recurrent::call_with_state(const Tensor& sequence,
                                           const RecurrentCallOptions& options) const {
  if (options.mask.defined() && options.mask.dtype() != bool_)
    fail<InvalidArgumentError>("[{}] expected a bool mask, got {}", base().label(),
                               name_of(options.mask.dtype()));
  std::vector<Tensor> inputs{sequence};
  inputs.insert(inputs.end(), options.initial_state.begin(), options.initial_state.end());
  if (options.mask.defined()) inputs.push_back(options.mask);
  RecurrentResult result;
  const Scoped open(open_result, &result);
  result.output =
      options.training ? (*this)(inputs, {.training = *options.training}) : (*this)(inputs);
  return result;
}

namespace {

using States = std::vector<Tensor>;
// The states after a step, the first of which is its output, from the products of its inputs
// [batch, gates * units] and the states before it.
using Step = std::function<States(const Tensor& x, const States& state)>;

// x . kernel + bias for all gates. Each gate has its own dropout of x if there are several masks.
class GateProduct {
 public:
  GateProduct() = default;
  GateProduct(const Tensor& kernel, Tensor bias, std::vector<Tensor> masks)
      : bias_(std::move(bias)), masks_(std::move(masks)) {
    if (masks_.size() > 1)
      kernels_ = split(kernel, static_cast<std::int64_t>(masks_.size()), {.axis = 1});
    else
      kernels_ = {kernel};
  }

  Tensor operator()(const Tensor& x) const {
    if (masks_.size() <= 1)
      return nn::dense(masks_.empty() ? x : x * masks_[0], kernels_[0], bias_);
    std::vector<Tensor> products;
    for (std::size_t gate = 0; gate < masks_.size(); ++gate)
      products.push_back(nn::dense(x * masks_[gate], kernels_[gate]));
    const Tensor product = concat(products, -1);
    return bias_.defined() ? nn::bias_add(product, bias_) : product;
  }

 private:
  std::vector<Tensor> kernels_;
  Tensor bias_;
  std::vector<Tensor> masks_;
};

// Choices of dropout for tensors of the shape of `example`.
std::vector<Tensor> dropout_masks(const Tensor& example, double rate, std::int64_t count) {
  std::vector<Tensor> masks;
  for (std::int64_t i = 0; i < count; ++i) masks.push_back(nn::dropout(ones_like(example), rate));
  return masks;
}

// A layer of one direction. `Options` are those of the public class.
template <class Options>
class DirectedLayer : public RecurrentBase {
 public:
  DirectedLayer(const char* kind, std::int64_t units, std::int64_t gates, const Options& options)
      : RecurrentBase(kind, options),
        units_(units),
        gates_(gates),
        options_(options),
        activation_(nn::activation_from_name(options.activation)) {
    if (units <= 0)
      fail<InvalidArgumentError>("[{}] expected a positive number of units, got {}", label(),
                                 units);
    for (const double rate : {options.dropout, options.recurrent_dropout})
      if (!(rate >= 0.0 && rate < 1.0))
        fail<InvalidArgumentError>("[{}] expected dropout rates in [0, 1), got {}", label(), rate);
  }

  bool go_backwards() const final { return options_.go_backwards; }
  bool return_sequences() const final { return options_.return_sequences; }
  std::size_t num_states() const override { return 1; }

  void build(std::span<const Shape> input_shapes) final {
    static_cast<void>(output_shape(input_shapes));
    const std::int64_t features = input_shapes.front().word(2);
    if (features < 0) reject("a known number of features", input_shapes.front());
    const std::string cell = kind() + "_cell/";
    kernel_ = add_weight(cell + "kernel", {features, gates_ * units_}, options_.kernel_initializer);
    regularize(kernel_, options_.kernel_regularizer);
    recurrent_kernel_ = add_weight(cell + "recurrent_kernel", {units_, gates_ * units_},
                                   options_.recurrent_initializer);
    regularize(recurrent_kernel_, options_.recurrent_regularizer);
    if (!options_.use_bias) return;
    bias_ = add_weight(cell + "bias", bias_shape(), bias_initializer());
    regularize(bias_, options_.bias_regularizer);
  }

 protected:
  virtual Shape bias_shape() const { return {gates_ * units_}; }
  virtual Initializer bias_initializer() const { return options_.bias_initializer; }
  // The biases of the inputs' and of the state's product; undefined: none.
  virtual std::pair<Tensor, Tensor> biases() const {
    return {bias_.defined() ? bias_.value() : Tensor(), Tensor()};
  }
  virtual Step make_step(const Tensor& recurrent_kernel, const Tensor& recurrent_bias,
                         const std::vector<Tensor>& masks) const = 0;

  template <class Made>
  std::shared_ptr<RecurrentBase> copy(const std::string& name, bool go_backwards,
                                      bool zero_output_for_mask) const {
    Options options = options_;
    options.name = name;
    options.go_backwards = go_backwards;
    options.zero_output_for_mask = zero_output_for_mask;
    return std::make_shared<Made>(units_, options);
  }

  Shape infer(const Shape& x) const final {
    if (x.rank() != 3) reject(std::string("a sequence of shape ") + kStepAxes, x);
    if (kernel_.defined() && x.word(2) >= 0 && x.word(2) != kernel_.shape().word(0))
      reject(fmt::format("an input whose last axis has {} elements", kernel_.shape().word(0)), x);
    if (options_.return_sequences) return {x.word(0), x.word(1), units_};
    return {x.word(0), units_};
  }

  RecurrentResult run(const Call& call) final {
    const auto [bias, recurrent_bias] = biases();
    Tensor products = products_of(call, bias);
    States state = first_state(call, products);
    const double rate = call.training ? options_.recurrent_dropout : 0.0;
    if (has_operation(products) && rate == 0.0 && !call.mask.defined())
      return run_operation(std::move(products), state);
    if (call.sequence.size_word(1) < 0)
      reject("a known number of steps, since a trace has the operations of each step",
             call.sequence.shape());
    const std::vector<Tensor> steps = unstack(products, 1);
    const Step step = make_step(recurrent_kernel_, recurrent_bias,
                                dropout_masks(state.front(), rate, rate > 0.0 ? gates_ : 0));
    std::vector<Tensor> masks, outputs;
    if (call.mask.defined()) masks = unstack(expand_dims(call.mask, -1), 1);
    Tensor output = state.front();
    if (!masks.empty()) output = zeros_like(output);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const std::size_t t = options_.go_backwards ? steps.size() - 1 - i : i;
      States next = step(steps[t], state);
      if (masks.empty())
        output = next.front();
      else
        output = keep(masks[t], next, state, output);
      state = std::move(next);
      if (options_.return_sequences) outputs.push_back(output);
    }
    return {options_.return_sequences ? stack(outputs, 1) : output, std::move(state)};
  }

  // Whether run_operation() computes all steps.
  virtual bool has_operation(const Tensor&) const { return false; }
  virtual RecurrentResult run_operation(Tensor, const States&) const { return {}; }
  std::int64_t units_, gates_;
  Options options_;
  nn::Activation activation_;
  Variable kernel_, recurrent_kernel_, bias_;

 private:
  // The products of all steps' inputs [batch, steps, gates * units].
  Tensor products_of(const Call& call, const Tensor& bias) const {
    const Tensor& x = call.sequence;
    const double rate = call.training ? options_.dropout : 0.0;
    std::vector<Tensor> masks;
    if (rate > 0.0)
      masks = dropout_masks(slice(x, {0, 0, 0}, {-1, 1, -1}), rate,
                            options_.recurrent_dropout > 0.0 ? gates_ : 1);
    return GateProduct(kernel_, bias, std::move(masks))(x);
  }

  // The given state, or zeros.
  States first_state(const Call& call, const Tensor& products) const {
    const Tensor step =
        reshape(slice(products, {0, 0, 0}, {-1, 1, units_}), {products.size_word(0), units_});
    States states;
    for (const Tensor& given : call.state) {
      const Shape expected({step.size_word(0), units_});
      if (!may_agree(given.shape(), expected))
        reject(fmt::format("a first state of shape (batch, {}) for a sequence of shape {}", units_,
                           call.sequence.shape().to_string()),
               given.shape());
      const Tensor state = of_shape(label(), "a first state of shape", given, expected);
      states.push_back(state.dtype() == step.dtype() ? state : cast(state, step.dtype()));
    }
    if (states.empty()) states.assign(num_states(), zeros_like(step));
    return states;
  }

  // Where a step is left out, `next` becomes the state before it. Returns the output.
  Tensor keep(const Tensor& mask, States& next, const States& state, const Tensor& output) const {
    const Tensor shown = options_.zero_output_for_mask ? where(mask, next.front(), 0.0)
                                                       : where(mask, next.front(), output);
    for (std::size_t i = 0; i < next.size(); ++i) next[i] = where(mask, next[i], state[i]);
    return shown;
  }
};

class LSTMLayer final : public DirectedLayer<LSTMOptions> {
 public:
  LSTMLayer(std::int64_t units, const LSTMOptions& options)
      : DirectedLayer("lstm", units, 4, options),
        gate_(nn::activation_from_name(options.recurrent_activation)) {}
  std::size_t num_states() const override { return 2; }
  std::shared_ptr<RecurrentBase> with(const std::string& name, bool go_backwards,
                                      bool zero_output_for_mask) const override {
    return copy<LSTMLayer>(name, go_backwards, zero_output_for_mask);
  }

 private:
  Initializer bias_initializer() const override {
    const Initializer& given = options_.bias_initializer;
    if (!options_.unit_forget_bias) return given;
    return {"unit_forget_bias", [given, units = units_](const Shape&, DType dtype) {
              return concat({given({units}, dtype), ones({units}, {.dtype = dtype}),
                             given({2 * units}, dtype)},
                            0);
            }};
  }

  bool has_operation(const Tensor& products) const override {
    return activation_ == nn::Activation::kTanh && gate_ == nn::Activation::kSigmoid &&
           has_lstm_steps(products.dtype(), products.size_word(1));
  }
  RecurrentResult run_operation(Tensor products, const States& state) const override {
    const bool backwards = options_.go_backwards;
    const auto [hidden, last_hidden, last_cell] = lstm_steps(
        std::move(products), state[0], state[1], recurrent_kernel_, {.go_backwards = backwards});
    const Tensor output = !options_.return_sequences ? last_hidden
                          : backwards                ? reverse(hidden, {1})
                                                     : hidden;
    return {output, {last_hidden, last_cell}};
  }

  Step make_step(const Tensor& kernel, const Tensor& bias,
                 const std::vector<Tensor>& masks) const override {
    return [recurrent = GateProduct(kernel, bias, masks), activation = activation_, gate = gate_](
               const Tensor& x, const States& state) -> States {
      const std::vector<Tensor> z = split(x + recurrent(state[0]), 4, {.axis = 1});
      const Tensor c = nn::activate(z[1], gate) * state[1] +
                       nn::activate(z[0], gate) * nn::activate(z[2], activation);
      return {nn::activate(z[3], gate) * nn::activate(c, activation), c};
    };
  }

  nn::Activation gate_;
};

class GRULayer final : public DirectedLayer<GRUOptions> {
 public:
  GRULayer(std::int64_t units, const GRUOptions& options)
      : DirectedLayer("gru", units, 3, options),
        gate_(nn::activation_from_name(options.recurrent_activation)) {}
  std::shared_ptr<RecurrentBase> with(const std::string& name, bool go_backwards,
                                      bool zero_output_for_mask) const override {
    return copy<GRULayer>(name, go_backwards, zero_output_for_mask);
  }

 private:
  Shape bias_shape() const override {
    if (options_.reset_after) return {2, 3 * units_};
    return {3 * units_};
  }
  std::pair<Tensor, Tensor> biases() const override {
    if (!options_.reset_after || !bias_.defined()) return DirectedLayer::biases();
    const std::vector<Tensor> rows = unstack(bias_.value(), 0);
    return {rows[0], rows[1]};
  }

  Step make_step(const Tensor& kernel, const Tensor& bias,
                 const std::vector<Tensor>& masks) const override {
    return options_.reset_after ? reset_after(GateProduct(kernel, bias, masks))
                                : reset_before(kernel, masks);
  }

  Step reset_after(const GateProduct& recurrent) const {
    return [recurrent, activation = activation_, gate = gate_](const Tensor& x,
                                                               const States& state) -> States {
      const std::vector<Tensor> a = split(x, 3, {.axis = 1});
      const std::vector<Tensor> b = split(recurrent(state[0]), 3, {.axis = 1});
      const Tensor z = nn::activate(a[0] + b[0], gate), r = nn::activate(a[1] + b[1], gate);
      const Tensor n = nn::activate(a[2] + r * b[2], activation);
      return {z * state[0] + subtract(1.0, z) * n};
    };
  }

  Step reset_before(const Tensor& kernel, const std::vector<Tensor>& masks) const {
    const std::vector<Tensor> kernels = split(kernel, {2 * units_, units_}, 1);
    std::vector<Tensor> of_gates, of_candidate;
    if (!masks.empty()) of_gates = {masks[0], masks[1]}, of_candidate = {masks[2]};
    return [gates = GateProduct(kernels[0], {}, of_gates),
            candidate = GateProduct(kernels[1], {}, of_candidate), activation = activation_,
            gate = gate_](const Tensor& x, const States& state) -> States {
      const std::vector<Tensor> a = split(x, 3, {.axis = 1});
      const std::vector<Tensor> b = split(gates(state[0]), 2, {.axis = 1});
      const Tensor z = nn::activate(a[0] + b[0], gate), r = nn::activate(a[1] + b[1], gate);
      const Tensor n = nn::activate(a[2] + candidate(r * state[0]), activation);
      return {z * state[0] + subtract(1.0, z) * n};
    };
  }

  nn::Activation gate_;
};

class SimpleRNNLayer final : public DirectedLayer<SimpleRNNOptions> {
 public:
  SimpleRNNLayer(std::int64_t units, const SimpleRNNOptions& options)
      : DirectedLayer("simple_rnn", units, 1, options) {}
  std::shared_ptr<RecurrentBase> with(const std::string& name, bool go_backwards,
                                      bool zero_output_for_mask) const override {
    return copy<SimpleRNNLayer>(name, go_backwards, zero_output_for_mask);
  }

 private:
  Step make_step(const Tensor& kernel, const Tensor& bias,
                 const std::vector<Tensor>& masks) const override {
    return [recurrent = GateProduct(kernel, bias, masks), activation = activation_](
               const Tensor& x, const States& state) -> States {
      return {nn::activate(x + recurrent(state[0]), activation)};
    };
  }
};

}  // namespace

LSTM::LSTM(std::int64_t units, const LSTMOptions& options)
    : Recurrent(std::make_shared<LSTMLayer>(units, options)) {}

GRU::GRU(std::int64_t units, const GRUOptions& options)
    : Recurrent(std::make_shared<GRULayer>(units, options)) {}

SimpleRNN::SimpleRNN(std::int64_t units, const SimpleRNNOptions& options)
    : Recurrent(std::make_shared<SimpleRNNLayer>(units, options)) {}

}  // namespace layers
}  // namespace tandem
