// Random programs: the same operations each time they run, chosen by a seed, so that a test can
// run one eagerly and as a traced function and compare every bit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::testing {

// Shapes of a program's values are small: sizes 0 and 1 are likely, ranks go up to 4.
class RandomProgram {
 public:
  struct Options {
    DType dtype = float32;
    int operations = 12;
    bool gradients_inside = false;     // adds gradients of a tape in the program
    std::vector<std::string> devices;  // operations run on random ones of these; no scopes if empty
  };

  RandomProgram(std::uint32_t seed, Options options) : seed_(seed), options_(std::move(options)) {
    std::mt19937 random(seed);
    const int inputs = 1 + pick(random, 3);
    for (int i = 0; i < inputs; ++i) input_shapes_.push_back(random_shape(random));
    for (int i = 0; i < 2; ++i)
      variables_.emplace_back(
          random_tensor(random_shape(random), seed + 7 + i, -1.0, 1.0, options_.dtype),
          VariableOptions{.name = i == 0 ? "first" : "second"});
  }

  // New inputs for each call.
  std::vector<Tensor> inputs(std::uint32_t call) const {
    std::vector<Tensor> tensors;
    std::uint32_t seed = seed_ * 1000 + call * 10;
    for (const Shape& shape : input_shapes_)
      tensors.push_back(random_tensor(shape, ++seed, -2.0, 2.0, options_.dtype));
    return tensors;
  }

  std::vector<Variable>& variables() { return variables_; }

  // Runs the program; choices depend on the seed and on shapes and dtypes alone.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs) {
    std::mt19937 random(seed_ + 1);
    if (!options_.gradients_inside) return run(random, inputs);
    GradientTape tape({.persistent = true});
    for (const Tensor& input : inputs) tape.watch(input);
    std::vector<Tensor> results = run(random, inputs);
    const Tensor loss = total(results);
    for (const Tensor& gradient :
         tape.gradient(loss, inputs, {.unconnected_gradients = UnconnectedGradients::kZero}))
      results.push_back(gradient);
    for (const Tensor& gradient : tape.gradient(loss, variables_))
      if (gradient.defined()) results.push_back(gradient);
    return results;
  }

  // The sum of all elements of all results of the program's own dtype.
  Tensor total(const std::vector<Tensor>& results) const {
    Tensor sum = zeros({}, {.dtype = options_.dtype});
    for (const Tensor& result : results)
      if (result.dtype() == options_.dtype) sum = sum + reduce_sum(result);
    return sum;
  }

 private:
  static int pick(std::mt19937& random, int count) {
    return static_cast<int>(random() % static_cast<std::uint32_t>(count));
  }
  static Shape random_shape(std::mt19937& random) {
    static constexpr std::int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 16, 33, 1, 2, 3, 0};
    Dims sizes;
    for (int axis = pick(random, 4); axis >= 0; --axis)
      sizes.push_back(kSizes[pick(random, std::size(kSizes))]);
    return Shape(sizes);
  }
  // A value of the program's dtype, by position.
  const Tensor& operand(std::mt19937& random, const std::vector<Tensor>& values) const {
    return values[static_cast<std::size_t>(pick(random, static_cast<int>(values.size())))];
  }

  std::vector<Tensor> run(std::mt19937& random, const std::vector<Tensor>& inputs) {
    std::vector<Tensor> values = inputs;
    for (int i = 0; i < options_.operations; ++i) {
      const int device = options_.devices.empty()
                             ? -1
                             : pick(random, static_cast<int>(options_.devices.size()) + 1) - 1;
      if (device >= 0) {
        const DeviceScope scope(options_.devices[static_cast<std::size_t>(device)]);
        values.push_back(step(random, values));
      } else {
        values.push_back(step(random, values));
      }
    }
    // The results are late values and one early value.
    std::vector<Tensor> results(values.end() - std::min<std::ptrdiff_t>(3, std::ssize(values)),
                                values.end());
    results.push_back(operand(random, values));
    return results;
  }

  Tensor step(std::mt19937& random, const std::vector<Tensor>& values) {
    const Tensor& x = operand(random, values);
    const Tensor& y = operand(random, values);
    switch (pick(random, 8)) {
      case 0: return binary(random, x, y);
      case 1: return reduce(random, x);
      case 2: return rearrange(random, x, y);
      case 3: return product(random, x);
      case 4: return normalise(random, x);
      case 5: return variable(random, x);
      default: return unary(random, x);
    }
  }

  Tensor unary(std::mt19937& random, const Tensor& x) const {
    switch (pick(random, 14)) {
      case 0: return tanh(x);
      case 1: return sigmoid(x);
      case 2: return exp(clip_by_value(x, -4.0, 4.0));
      case 3: return sqrt(abs(x));
      case 4: return log1p(square(x));
      case 5: return sin(x);
      case 6: return erf(x);
      case 7: return nn::relu(x);
      case 8: return nn::gelu(x);
      case 9: return floor(x) + x * 0.5;
      case 10: return cast(cast(x, float16), options_.dtype);
      case 11: return where(greater(x, 0.25), x, negative(x));
      case 12: return x * 1.5 - 0.25;
      default: return 2.0 - x / 3.0;
    }
  }

  // Uses both values if their shapes broadcast; otherwise one, and a scalar made of the other.
  static bool broadcasts(const Tensor& x, const Tensor& y) {
    for (int i = 1; i <= std::min(x.rank(), y.rank()); ++i) {
      const std::int64_t a = x.dim(-i), b = y.dim(-i);
      if (a != b && a != 1 && b != 1) return false;
    }
    return true;
  }
  static Tensor binary(std::mt19937& random, const Tensor& x, const Tensor& other) {
    const Tensor y = broadcasts(x, other) ? other : reduce_mean(tanh(other) + 0.0);
    switch (pick(random, 7)) {
      case 0: return x + y;
      case 1: return x - y;
      case 2: return x * y;
      case 3: return x / (abs(y) + 1.0);
      case 4: return maximum(x, y);
      case 5: return squared_difference(x, y);
      default: return where(less(x, y), x, y);
    }
  }

  static Tensor reduce(std::mt19937& random, const Tensor& x) {
    ReduceOptions options{.keepdims = pick(random, 2) == 0};
    if (x.rank() > 0 && pick(random, 3) > 0) options.axis = Dims{pick(random, x.rank())};
    switch (pick(random, 5)) {
      case 0: return reduce_sum(x, options);
      case 1: return reduce_mean(tanh(x), options);
      case 2: return x.shape().num_elements() > 0 ? reduce_max(x, options) : reduce_sum(x, options);
      case 3: return reduce_logsumexp(clip_by_value(x, -9.0, 9.0), options);
      default: return x.rank() > 0 ? cumsum(x, pick(random, x.rank())) : x;
    }
  }

  static Tensor rearrange(std::mt19937& random, const Tensor& x, const Tensor& y) {
    switch (pick(random, 9)) {
      case 0: return reshape(x, {-1});
      case 1: return transpose(x);
      case 2: return x.rank() > 0 ? slice_rows(x, 0, (x.dim(0) + 1) / 2) : x;
      case 3: return x.rank() > 0 && x.rank() < 4 ? concat({x, x}, pick(random, x.rank())) : x;
      case 4: return x.shape() == y.shape() ? stack({x, y}) : expand_dims(x, 0);
      case 5: return x.rank() > 0 ? reverse(x, {pick(random, x.rank())}) : x;
      case 6: return x.rank() == 2 ? pad(x, {{1, 0}, {0, 2}}) : identity(x);
      case 7: return x.rank() > 0 && x.dim(0) > 1 ? gather(x, range(2)) : x;
      default:
        return x.rank() == 2 && x.shape().num_elements() < 4096 ? tile(x, {2, 1}) : squeeze(x);
    }
  }

  static Tensor product(std::mt19937& random, const Tensor& x) {
    if (x.rank() < 2) return x + 1.0;
    return pick(random, 2) == 0 ? matmul(x, x, {.transpose_b = true})
                                : matmul(x, x, {.transpose_a = true});
  }

  static Tensor normalise(std::mt19937& random, const Tensor& x) {
    if (x.rank() == 0) return x;
    switch (pick(random, 4)) {
      case 0: return nn::softmax(x);
      case 1: return nn::log_softmax(x);
      case 2: return nn::dropout(x, 0.3);
      default: {
        const Tensor scale = ones({x.dim(-1)}, {.dtype = x.dtype()});
        return nn::layer_norm(x, scale, scale * 0.5);
      }
    }
  }

  Tensor variable(std::mt19937& random, const Tensor& x) {
    Variable& chosen = variables_[static_cast<std::size_t>(pick(random, 2))];
    switch (pick(random, 3)) {
      case 0: chosen.assign(chosen.value() * 0.5 + 0.125); return chosen.value();
      case 1: {
        const Tensor read = chosen.value();
        chosen.assign_add(reduce_mean(tanh(x) + 0.0) * 0.0 + ones_like(read));
        return read;
      }
      default: return binary(random, x, chosen.value());
    }
  }

  std::uint32_t seed_;
  Options options_;
  std::vector<Shape> input_shapes_;
  std::vector<Variable> variables_;
};

}  // namespace tandem::testing
