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

// The layers between inputs and an output, as one layer. call() is thread-safe if that of the
// layers is.
class FunctionalLayer final : public LayerBase {
 public:
  // Throws InvalidArgumentError if an element of `inputs` is not an Input() or is given twice, or
  // if the output depends on an Input() that is not among them.
  FunctionalLayer(const std::vector<SymbolicInput>& inputs, const SymbolicInput& output,
                  const std::string& name);

  std::string kind() const override { return "functional"; }
  void build(std::span<const Shape> input_shapes) override;
  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) override;
  Shape output_shape(std::span<const Shape> input_shapes) const override;
  std::vector<Layer> children() const override;
  bool casts_inputs() const override { return false; }

  const std::vector<Shape>& input_shapes() const { return input_shapes_; }
  // The output shape of each of children(), at its first use.
  std::vector<Shape> layer_output_shapes() const;

 private:
  // Values are stored in slots: first those of the inputs, then one per call.
  struct LayerCall {
    Layer layer;
    std::vector<std::size_t> inputs;
    std::vector<std::size_t> last_uses;  // slots that no later call reads
  };

  std::vector<Shape> propagate(std::span<const Shape> input_shapes) const;
  template <class Value>
  std::vector<Value> gather(const std::vector<Value>& slots, const LayerCall& call) const;

  std::vector<Shape> input_shapes_;
  std::vector<std::optional<DType>> input_dtypes_;
  std::vector<LayerCall> calls_;
};

}  // namespace tandem
