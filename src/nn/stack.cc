// Sequential layers as one layer.
#include "nn/layer_base.h"
#include "nn/naming.h"

namespace tandem::layers {
namespace {

class StackLayer final : public UnaryLayer {
 public:
  StackLayer(const std::vector<tandem::Layer>& layers, const SimpleOptions& options)
      : UnaryLayer("sequential", options), layers_(layers) {
    if (layers.empty())
      fail<InvalidArgumentError>("[sequential] expected at least one layer, got none");
    assign_unique_names(layers_, label());
    const Shape& first = layers_.front().base().declared_input_shape();
    if (!options.input_shape.known()) declare_input_shape(first);
  }

  std::vector<tandem::Layer> children() const override { return layers_; }
  bool casts_inputs() const override { return false; }
  bool makes_logits() const override {
    const auto* last = dynamic_cast<const KindLayer*>(&layers_.back().base());
    return last && last->makes_logits();
  }

 private:
  void make_weights(const Shape& x) override {
    Shape shape = x;
    for (const tandem::Layer& layer : layers_) {
      layer.base().ensure_built(std::span(&shape, 1));
      shape = layer.base().output_shape(std::span(&shape, 1));
    }
  }

  Tensor run(const Tensor& x, const CallOptions& options) override {
    Tensor value = x;
    for (const tandem::Layer& layer : layers_) value = layer(value, options);
    return value;
  }

  Shape infer(const Shape& x) const override {
    Shape shape = x;
    for (const tandem::Layer& layer : layers_)
      shape = layer.base().output_shape(std::span(&shape, 1));
    return shape;
  }

  void check(const Shape&) const override {}  // the layers check their own inputs

  std::vector<tandem::Layer> layers_;
};

}  // namespace

Stack::Stack(const std::vector<tandem::Layer>& layers, const SimpleOptions& options)
    : tandem::Layer(std::make_shared<StackLayer>(layers, options)) {}

}  // namespace tandem::layers
