// Random programs: the same operations each time they run, chosen by a seed, so that a test can
// run one in several ways and compare every bit.
#pragma once

#include <memory>
#include <string>

#include "function/random_network_steps.h"
#include "support/tensors.h"

namespace tandem::testing {

// Shapes of a program's values are small: sizes 0 and 1 are likely, ranks go up to 4.
class RandomProgram {
 public:
  struct Options {
    DType dtype = float32;
    int operations = 16;
    bool gradients_inside = false;  // adds gradients of a tape in the program
    // A session runs what is fetched, so that random numbers that are not change the others.
    bool random_numbers = true;
    bool every_value = false;          // all values are results
    std::vector<std::string> devices;  // operations run on random ones of these; no scopes if empty
  };

  // Makes the variables, in the graph that is being built if there is one.
  RandomProgram(std::uint32_t seed, Options options) : seed_(seed), options_(std::move(options)) {
    Choices choices(seed);
    const int inputs = 1 + choices.pick(3);
    for (int i = 0; i < inputs; ++i) input_shapes_.push_back(choices.shape());
    for (int i = 0; i < 2; ++i)
      variables_.emplace_back(random_tensor(choices.shape(), seed + 7 + static_cast<unsigned>(i),
                                            -1.0, 1.0, options_.dtype),
                              VariableOptions{.name = i == 0 ? "first" : "second"});
  }

  // New inputs for each call.
  Tensors inputs(std::uint32_t call) const {
    Tensors tensors;
    std::uint32_t seed = seed_ * 1000 + call * 10;
    for (const Shape& shape : input_shapes_)
      tensors.push_back(random_tensor(shape, ++seed, -2.0, 2.0, options_.dtype));
    return tensors;
  }

  const std::vector<Shape>& input_shapes() const { return input_shapes_; }
  std::vector<Variable>& variables() { return variables_; }

  // Runs the program; choices depend on the seed and on shapes and dtypes alone.
  Tensors operator()(const Tensors& inputs) {
    Choices choices(seed_ + 1);
    choices.random_numbers = options_.random_numbers;
    if (!options_.gradients_inside) return run(choices, inputs);
    // Gradients of a persistent tape are composed of differentiable operations, others are fused,
    // and so are those in branches and loops of a graph.
    const int sources = choices.pick(3);
    choices.control_flow = sources > 0;
    GradientTape tape({.persistent = sources == 0});
    for (const Tensor& input : inputs) tape.watch(input);
    Tensors results = run(choices, inputs);
    const Tensor loss = total(results);
    const GradientOptions zero = {.unconnected_gradients = UnconnectedGradients::kZero};
    if (sources < 2)
      for (const Tensor& gradient : tape.gradient(loss, inputs, zero)) results.push_back(gradient);
    if (sources != 1)
      for (const Tensor& gradient : tape.gradient(loss, variables_, zero))
        results.push_back(gradient);
    return results;
  }

  // The sum of all elements of all results of the program's own dtype.
  Tensor total(const Tensors& results) const {
    Tensor sum = zeros({}, {.dtype = options_.dtype});
    for (const Tensor& result : results)
      if (result.dtype() == options_.dtype) sum = sum + reduce_sum(result);
    return sum;
  }

 private:
  Tensors run(Choices& choices, const Tensors& inputs) {
    Tensors values = inputs;
    variables_[0].assign(variables_[0].value() * 0.5);  // every program writes a variable
    for (int i = 0; i < options_.operations; ++i) {
      std::unique_ptr<DeviceScope> scope;
      if (!options_.devices.empty() && choices.pick(4) > 0)
        scope = std::make_unique<DeviceScope>(choices.of(options_.devices));
      for (const Tensor& value : step(choices, values)) values.push_back(value);
    }
    if (options_.every_value) return values;
    // The results are late values and one early value.
    Tensors results(values.end() - std::min<std::ptrdiff_t>(3, std::ssize(values)), values.end());
    results.push_back(choices.of(values));
    return results;
  }

  // Late values are more likely, so that most of the program has a gradient.
  static Tensor operand(Choices& choices, const Tensors& values) {
    const int late = std::min(3, static_cast<int>(values.size()));
    return choices.pick(2) == 0
               ? choices.of(values)
               : values[values.size() - 1 - static_cast<std::size_t>(choices.pick(late))];
  }

  Tensors step(Choices& choices, const Tensors& values) {
    const Tensor x = operand(choices, values), y = operand(choices, values);
    switch (choices.pick(19)) {
      case 0:
      case 1: return {binary_step(choices, x, y)};
      case 2: return {reduce_step(choices, x)};
      case 3:
      case 4: return rearrange_step(choices, x, y);
      case 5: return {product_step(choices, x, y)};
      case 6:
      case 7: return normalise_step(choices, x, values);
      case 8: return {variable_step(choices, x)};
      case 9: return {sum_step(choices, x, values)};
      case 10: return {image_step(choices, x, y)};
      case 11: return {attention_step(choices, x, y)};
      case 12: return {loss_step(choices, x, y)};
      case 13: return {create_step(choices, x)};
      case 14: return {random_step(choices, x)};
      case 15: return {control_step(choices, x, y)};
      default: return {unary_step(choices, x)};
    }
  }

  Tensor variable_step(Choices& choices, const Tensor& x) {
    Variable& chosen = variables_[static_cast<std::size_t>(choices.pick(2))];
    switch (choices.pick(4)) {
      case 0: chosen.assign(chosen.value() * 0.5 + 0.125); return chosen.value();
      case 1: {
        const Tensor read = chosen.value();
        chosen.assign_add(scalar_of(x) * 0.0 + ones_like(read));
        return read;
      }
      case 2: chosen.assign_sub(like(tanh(x), chosen.value())); return chosen.value() * 0.5;
      default: return binary_step(choices, x, chosen.value());
    }
  }

  std::uint32_t seed_;
  Options options_;
  std::vector<Shape> input_shapes_;
  std::vector<Variable> variables_;
};

}  // namespace tandem::testing
