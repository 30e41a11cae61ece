// Layers of several inputs.
#include "nn/layer_base.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem::layers {
namespace {

class MergingLayer : public KindLayer {
 public:
  using KindLayer::KindLayer;

  Tensor call(std::span<const Tensor> inputs, const CallOptions&) final {
    check_count(inputs.size());
    for (std::size_t i = 1; i < inputs.size(); ++i)
      static_cast<void>(merged(inputs[0].shape(), inputs[i].shape()));
    return merge(inputs);
  }

  Shape output_shape(std::span<const Shape> input_shapes) const final {
    check_count(input_shapes.size());
    Shape result = input_shapes.front();
    for (const Shape& shape : input_shapes.subspan(1)) result = merged(result, shape);
    return result;
  }

 protected:
  virtual Tensor merge(std::span<const Tensor> inputs) const = 0;
  // The shape of the result of merging inputs of shapes `a` and `b`.
  virtual Shape merged(const Shape& a, const Shape& b) const = 0;

  [[noreturn]] void reject_pair(const char* expected, const Shape& a, const Shape& b) const {
    fail<InvalidArgumentError>("[{}] expected {}, got {} and {}", label(), expected, a.to_string(),
                               b.to_string());
  }

 private:
  void check_count(std::size_t count) const {
    if (count < 2)
      fail<InvalidArgumentError>("[{}] expected two or more inputs, got {}", label(), count);
  }
};

// Sums and products. All inputs must have one shape: broadcasting along the batch would be a
// mistake, and along other axes it is rarely intended.
class ArithmeticLayer final : public MergingLayer {
 public:
  using Function = Tensor (*)(std::span<const Tensor> inputs);
  ArithmeticLayer(const char* kind, Function function, const SimpleOptions& options)
      : MergingLayer(kind, options), function_(function) {}

 private:
  Tensor merge(std::span<const Tensor> inputs) const override {
    std::vector<Tensor> same(inputs.begin(), inputs.end());
    for (Tensor& input : same)
      input = of_shape(label(), "inputs of one shape:", input, inputs[0].shape());
    return function_(same);
  }

  Shape merged(const Shape& a, const Shape& b) const override {
    if (a.rank() != b.rank()) reject_pair("inputs of one shape", a, b);
    Shape result = a;
    for (int axis = 0; axis < a.rank(); ++axis) {
      if (a.word(axis) >= 0 && b.word(axis) >= 0 && a.word(axis) != b.word(axis))
        reject_pair("inputs of one shape", a, b);
      if (a.word(axis) < 0) result.set(axis, b.word(axis));
    }
    return result;
  }

  Function function_;
};

class ConcatenateLayer final : public MergingLayer {
 public:
  explicit ConcatenateLayer(const ConcatenateOptions& options)
      : MergingLayer("concatenate", options), axis_(options.axis) {}

 private:
  Tensor merge(std::span<const Tensor> inputs) const override { return concat(inputs, axis_); }

  Shape merged(const Shape& a, const Shape& b) const override {
    const int axis = static_cast<int>(axis_ < 0 ? axis_ + a.rank() : axis_);
    if (axis < 1 || axis >= a.rank())
      fail<InvalidArgumentError>("[{}] expected inputs with an axis {} besides the batch, got {}",
                                 label(), axis_, a.to_string());
    if (a.rank() != b.rank())
      reject_pair("inputs that differ only along the concatenated axis", a, b);
    Shape result = a;
    for (int i = 0; i < a.rank(); ++i) {
      const bool known = a.word(i) >= 0 && b.word(i) >= 0;
      if (i == axis) {
        result.set(i, known ? a.word(i) + b.word(i) : -1);
      } else if (known && a.word(i) != b.word(i)) {
        reject_pair("inputs that differ only along the concatenated axis", a, b);
      } else if (a.word(i) < 0) {
        result.set(i, b.word(i));
      }
    }
    return result;
  }

  std::int64_t axis_;
};

}  // namespace

Add::Add(const SimpleOptions& options)
    : tandem::Layer(std::make_shared<ArithmeticLayer>(
          "add", [](std::span<const Tensor> inputs) { return add_n(inputs); }, options)) {}

Multiply::Multiply(const SimpleOptions& options)
    : tandem::Layer(std::make_shared<ArithmeticLayer>(
          "multiply",
          [](std::span<const Tensor> inputs) {
            Tensor product = inputs.front();
            for (const Tensor& input : inputs.subspan(1)) product = product * input;
            return product;
          },
          options)) {}

Subtract::Subtract(const SimpleOptions& options)
    : tandem::Layer(std::make_shared<ArithmeticLayer>(
          "subtract",
          [](std::span<const Tensor> inputs) {
            if (inputs.size() != 2)
              fail<InvalidArgumentError>("[subtract] expected two inputs, got {}", inputs.size());
            return inputs[0] - inputs[1];
          },
          options)) {}

Average::Average(const SimpleOptions& options)
    : tandem::Layer(std::make_shared<ArithmeticLayer>(
          "average",
          [](std::span<const Tensor> inputs) {
            return add_n(inputs) / static_cast<double>(inputs.size());
          },
          options)) {}

Maximum::Maximum(const SimpleOptions& options)
    : tandem::Layer(std::make_shared<ArithmeticLayer>(
          "maximum",
          [](std::span<const Tensor> inputs) {
            Tensor largest = inputs.front();
            for (const Tensor& input : inputs.subspan(1)) largest = maximum(largest, input);
            return largest;
          },
          options)) {}

Concatenate::Concatenate(const ConcatenateOptions& options)
    : tandem::Layer(std::make_shared<ConcatenateLayer>(options)) {}

}  // namespace tandem::layers
