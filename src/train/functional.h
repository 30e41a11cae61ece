// Models as graphs of layers (Keras' functional API).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tandem/math.h"
#include "tandem/model.h"

namespace tandem {

struct SymbolicInput::Node {
  Layer layer;  // undefined for an input of a model
  std::vector<SymbolicInput> inputs;
  Shape shape;                 // batch axis -1
  std::string name;            // of an input of a model
  std::optional<DType> dtype;  // to which an input of a model is cast
};

// An Input() as an element of a Sequential: declares the input's shape.
class InputLayer final : public LayerBase {
 public:
  explicit InputLayer(const SymbolicInput& input) : LayerBase(input.node()->name) {
    declare_input_shape(input.shape().without_leading(1));
    dtype_ = input.node()->dtype;
  }
  std::string kind() const override { return "input"; }
  Tensor call(std::span<const Tensor> inputs, const CallOptions&) override {
    return dtype_ ? cast(inputs.front(), *dtype_) : inputs.front();
  }
  bool casts() const { return dtype_.has_value(); }  // whether call() does something
  Shape output_shape(std::span<const Shape> input_shapes) const override {
    return input_shapes.front();
  }
  bool casts_inputs() const override { return false; }

 private:
  std::optional<DType> dtype_;
};

// The layers between inputs and outputs, as one layer. call() is thread-safe if that of the
// layers is.
class FunctionalLayer final : public LayerBase {
 public:
  // Throws InvalidArgumentError if an element of `inputs` is not an Input() or is given twice, if
  // an output depends on an Input() that is not among them, and without outputs.
  FunctionalLayer(const std::vector<SymbolicInput>& inputs,
                  const std::vector<SymbolicInput>& outputs, const std::string& name);

  std::string kind() const override { return "functional"; }
  void build(std::span<const Shape> input_shapes) override;
  // Throw InvalidArgumentError if there are several outputs.
  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) override;
  Shape output_shape(std::span<const Shape> input_shapes) const override;
  std::vector<Layer> children() const override;
  bool casts_inputs() const override { return false; }

  std::vector<Shape> output_shapes(std::span<const Shape> input_shapes) const;
  const std::vector<Shape>& input_shapes() const { return input_shapes_; }
  std::size_t num_outputs() const { return outputs_.size(); }
  // Those of the layers that have made the outputs; the second of equal names has "_1" at its end.
  // REQUIRES: the layers have names.
  std::vector<std::string> output_names() const;
  const std::vector<std::string>& input_names() const { return input_names_; }
  // The output shape of each of children(), at its first use.
  std::vector<Shape> layer_output_shapes() const;

 private:
  // Values are stored in slots: first those of the inputs, then one per call.
  struct LayerCall {
    Layer layer;
    std::vector<std::size_t> inputs;
    std::vector<std::size_t> last_uses;  // slots that no later call reads
  };

  void expect_one_output() const;
  std::vector<Shape> propagate(std::span<const Shape> input_shapes) const;
  template <class Value>
  std::vector<Value> gather(const std::vector<Value>& slots, const LayerCall& call) const;

  std::vector<Shape> input_shapes_;
  std::vector<std::optional<DType>> input_dtypes_;
  std::vector<std::string> input_names_;
  std::vector<LayerCall> calls_;
  std::vector<std::size_t> outputs_;  // slots
};

// A call of a model's layer, with all of its outputs in order.
std::vector<Tensor> call_all_outputs(const Layer& layer, TensorList inputs,
                                     const CallOptions& options);
// The shapes of all outputs of a model's layer.
std::vector<Shape> all_output_shapes(const Layer& layer, std::span<const Shape> input_shapes);

}  // namespace tandem
