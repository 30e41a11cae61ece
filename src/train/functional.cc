#include "train/functional.h"

#include <algorithm>
#include <unordered_map>

#include "core/status.h"

namespace tandem {
namespace {

using LayerNode = SymbolicInput::Node;

std::vector<Shape> shapes_of(const std::vector<SymbolicInput>& inputs) {
  std::vector<Shape> shapes;
  for (const SymbolicInput& input : inputs) shapes.push_back(input.shape());
  return shapes;
}

// `output` and the nodes it depends on, in topological order. Iterative, because a model may be
// thousands of layers deep.
std::vector<const LayerNode*> in_order(const SymbolicInput& output) {
  std::vector<const LayerNode*> order;
  std::unordered_map<const LayerNode*, bool> seen;
  struct Frame {
    const LayerNode* node;
    std::size_t next_input;
  };
  std::vector<Frame> stack{{output.node().get(), 0}};
  seen[output.node().get()] = true;
  while (!stack.empty()) {
    Frame& frame = stack.back();
    if (frame.next_input < frame.node->inputs.size()) {
      const LayerNode* input = frame.node->inputs[frame.next_input++].node().get();
      if (!seen[input]) {
        seen[input] = true;
        stack.push_back({input, 0});
      }
    } else {
      order.push_back(frame.node);
      stack.pop_back();
    }
  }
  return order;
}

}  // namespace

const Shape& SymbolicInput::shape() const { return node_->shape; }

SymbolicInput Input(const Shape& shape, std::string name, std::optional<DType> dtype) {
  if (!shape.known())
    throw InvalidArgumentError("[Input] expected the shape of one example, got an unknown shape");
  auto node = std::make_shared<LayerNode>();
  node->shape = shape.with_leading(-1);
  node->name = std::move(name);
  node->dtype = dtype;
  return SymbolicInput(std::move(node));
}

Layer::Layer(const SymbolicInput& input) {
  if (input.node()->layer.defined())
    fail<InvalidArgumentError>(
        "[Layer] expected a layer or an Input(), got the result of layer '{}'; a model of the "
        "layers between an input and a result is td::Model(input, result)",
        input.node()->layer.base().label());
  *this = Layer(std::make_shared<InputLayer>(input));
}

SymbolicInput Layer::operator()(const SymbolicInput& input) const {
  return (*this)(std::vector<SymbolicInput>{input});
}

SymbolicInput Layer::operator()(const std::vector<SymbolicInput>& inputs) const {
  auto node = std::make_shared<LayerNode>();
  node->shape = base().output_shape(shapes_of(inputs));
  node->layer = *this;
  node->inputs = inputs;
  return SymbolicInput(std::move(node));
}

FunctionalLayer::FunctionalLayer(const std::vector<SymbolicInput>& inputs,
                                 const SymbolicInput& output, const std::string& name)
    : LayerBase(name), input_shapes_(shapes_of(inputs)) {
  std::unordered_map<const LayerNode*, std::size_t> slots;
  for (const SymbolicInput& input : inputs) {
    if (input.node()->layer.defined())
      fail<InvalidArgumentError>(
          "[Functional] expected Input()s as inputs, got the result of layer '{}'",
          input.node()->layer.name());
    if (!slots.emplace(input.node().get(), slots.size()).second)
      fail<InvalidArgumentError>("[Functional] an input of shape {} is given twice",
                                 input.shape().to_string());
  }
  for (const SymbolicInput& input : inputs) input_dtypes_.push_back(input.node()->dtype);
  for (const LayerNode* node : in_order(output)) {
    if (slots.contains(node)) continue;
    if (!node->layer.defined())
      fail<InvalidArgumentError>(
          "[Functional] the output depends on an Input() '{}' of shape {} that is not among the "
          "inputs",
          node->name, node->shape.to_string());
    LayerCall& call = calls_.emplace_back();
    call.layer = node->layer;
    for (const SymbolicInput& input : node->inputs)
      call.inputs.push_back(slots.at(input.node().get()));
    slots.emplace(node, slots.size());
  }
  if (calls_.empty())
    throw InvalidArgumentError("[Functional] expected layers between input and output, got none");
  std::vector<bool> used(slots.size(), false);
  for (auto call = calls_.rbegin(); call != calls_.rend(); ++call) {
    for (std::size_t slot : call->inputs) {
      if (!used[slot]) call->last_uses.push_back(slot);
      used[slot] = true;
    }
  }
  if (input_shapes_.size() == 1) declare_input_shape(input_shapes_.front().without_leading(1));
}

template <class Value>
std::vector<Value> FunctionalLayer::gather(const std::vector<Value>& slots,
                                           const LayerCall& call) const {
  std::vector<Value> values;
  for (std::size_t slot : call.inputs) values.push_back(slots[slot]);
  return values;
}

void FunctionalLayer::build(std::span<const Shape> input_shapes) {
  std::vector<Shape> slots(input_shapes.begin(), input_shapes.end());
  for (const LayerCall& call : calls_) {
    const std::vector<Shape> shapes = gather(slots, call);
    call.layer.base().ensure_built(shapes);
    slots.push_back(call.layer.base().output_shape(shapes));
  }
}

Tensor FunctionalLayer::call(std::span<const Tensor> inputs, const CallOptions& options) {
  if (inputs.size() != input_shapes_.size())
    fail<InvalidArgumentError>("[{}] expected {} inputs, got {}", label(), input_shapes_.size(),
                               inputs.size());
  std::vector<Tensor> slots(inputs.begin(), inputs.end());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (input_dtypes_[i]) slots[i] = cast(slots[i], *input_dtypes_[i]);
  for (const LayerCall& call : calls_) {
    slots.push_back(call.layer(gather(slots, call), options));
    for (std::size_t slot : call.last_uses) slots[slot] = {};
  }
  return slots.back();
}

Shape FunctionalLayer::output_shape(std::span<const Shape> input_shapes) const {
  if (input_shapes.size() != input_shapes_.size())
    fail<InvalidArgumentError>("[{}] expected {} inputs, got {}", label(), input_shapes_.size(),
                               input_shapes.size());
  return propagate(input_shapes).back();
}

std::vector<Shape> FunctionalLayer::propagate(std::span<const Shape> input_shapes) const {
  std::vector<Shape> slots(input_shapes.begin(), input_shapes.end());
  for (const LayerCall& call : calls_)
    slots.push_back(call.layer.base().output_shape(gather(slots, call)));
  return slots;
}

std::vector<Shape> FunctionalLayer::layer_output_shapes() const {
  const std::vector<Shape> slots = propagate(input_shapes_);
  std::vector<Shape> shapes;
  for (const Layer& layer : children())
    for (std::size_t i = 0; i < calls_.size(); ++i)
      if (calls_[i].layer.shared() == layer.shared()) {
        shapes.push_back(slots[input_shapes_.size() + i]);
        break;
      }
  return shapes;
}

std::vector<Layer> FunctionalLayer::children() const {
  std::vector<Layer> layers;
  for (const LayerCall& call : calls_) {
    const bool shared = std::any_of(layers.begin(), layers.end(), [&](const Layer& layer) {
      return layer.shared() == call.layer.shared();
    });
    if (!shared) layers.push_back(call.layer);
  }
  return layers;
}

}  // namespace tandem
