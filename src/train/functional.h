// Models as graphs of layers.
#pragma once

#include <memory>
#include <vector>

#include "tandem/model.h"

namespace tandem {

struct SymbolicInput::Node {
  Layer layer;  // undefined: an input of a model
  std::vector<SymbolicInput> inputs;
  Shape shape;       // batch axis -1
  std::string name;  // of an input
};

// The layers between some inputs and an output, as one layer. Calls may run side by side.
class FunctionalLayer final : public LayerBase {
 public:
  // Throws InvalidArgumentError when one of `inputs` is no Input(), is given twice, or when the
  // output depends on an Input() that is not among them.
  FunctionalLayer(const std::vector<SymbolicInput>& inputs, const SymbolicInput& output);

  std::string kind() const override { return "functional"; }
  void build(std::span<const Shape> input_shapes) override;
  Tensor call(std::span<const Tensor> inputs, const CallOptions& options) override;
  Shape output_shape(std::span<const Shape> input_shapes) const override;
  std::vector<Layer> children() const override;

  const std::vector<Shape>& input_shapes() const { return input_shapes_; }
  // What each of children() gives, where it is first used.
  std::vector<Shape> layer_output_shapes() const;

 private:
  // Values live in slots: first those of the inputs, then one a step.
  struct Step {
    Layer layer;
    std::vector<std::size_t> inputs;
    std::vector<std::size_t> last_uses;  // slots that nothing behind this step reads
  };

  std::vector<Shape> propagate(std::span<const Shape> input_shapes) const;
  template <class Value>
  std::vector<Value> gather(const std::vector<Value>& slots, const Step& step) const;

  std::vector<Shape> input_shapes_;
  std::vector<Step> steps_;
};

}  // namespace tandem
