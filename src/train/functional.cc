#include "train/functional.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/status.h"
#include "op/context.h"

namespace tandem {
namespace {

using LayerNode = SymbolicInput::Node;

std::vector<Shape> shapes_of(const std::vector<SymbolicInput>& inputs) {
  std::vector<Shape> shapes;
  for (const SymbolicInput& input : inputs) shapes.push_back(input.shape());
  return shapes;
}

// `outputs` and the nodes they depend on, in topological order. Iterative, because a model may be
// thousands of layers deep.
std::vector<const LayerNode*> in_order(const std::vector<SymbolicInput>& outputs) {
  std::vector<const LayerNode*> order;
  std::unordered_map<const LayerNode*, bool> seen;
  struct Frame {
    const LayerNode* node;
    std::size_t next_input;
  };
  std::vector<Frame> stack;
  const auto visit = [&](const SymbolicInput& value) {
    if (!std::exchange(seen[value.node().get()], true)) stack.push_back({value.node().get(), 0});
  };
  for (const SymbolicInput& output : outputs) {
    visit(output);
    while (!stack.empty()) {
      Frame& frame = stack.back();
      if (frame.next_input < frame.node->inputs.size()) {
        visit(frame.node->inputs[frame.next_input++]);
      } else {
        order.push_back(frame.node);
        stack.pop_back();
      }
    }
  }
  return order;
}

// Where call_all_outputs() waits for the outputs of the layer that it calls.
thread_local std::vector<Tensor>* awaited = nullptr;

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
                                 const std::vector<SymbolicInput>& outputs, const std::string& name)
    : LayerBase(name), input_shapes_(shapes_of(inputs)) {
  if (outputs.empty()) throw InvalidArgumentError("[Functional] expected outputs, got none");
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
  for (const SymbolicInput& input : inputs) {
    input_dtypes_.push_back(input.node()->dtype);
    input_names_.push_back(input.node()->name);
  }
  for (const LayerNode* node : in_order(outputs)) {
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
  for (const SymbolicInput& output : outputs) {
    outputs_.push_back(slots.at(output.node().get()));
    used[outputs_.back()] = true;
  }
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
  std::vector<Tensor>* const sink = std::exchange(awaited, nullptr);  // not of layers in here
  if (!sink) expect_one_output();
  std::vector<Tensor> slots(inputs.begin(), inputs.end());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (input_dtypes_[i]) slots[i] = cast(slots[i], *input_dtypes_[i]);
  for (const LayerCall& call : calls_) {
    slots.push_back(call.layer(gather(slots, call), options));
    for (std::size_t slot : call.last_uses) slots[slot] = {};
  }
  if (!sink) return slots[outputs_.front()];
  for (const std::size_t slot : outputs_) sink->push_back(slots[slot]);
  return sink->front();
}

std::vector<Tensor> call_all_outputs(const Layer& layer, TensorList inputs,
                                     const CallOptions& options) {
  const auto* graph = dynamic_cast<const FunctionalLayer*>(&layer.base());
  if (!graph || graph->num_outputs() == 1) return {layer(inputs, options)};
  std::vector<Tensor> outputs;
  {
    const Scoped waiting(awaited, &outputs);
    static_cast<void>(layer(inputs, options));
  }
  const std::optional<DType>& dtype = graph->output_dtype();
  for (Tensor& output : outputs)
    if (dtype && is_floating(output.dtype())) output = cast(output, *dtype);
  return outputs;
}

std::vector<Shape> all_output_shapes(const Layer& layer, std::span<const Shape> input_shapes) {
  const auto* graph = dynamic_cast<const FunctionalLayer*>(&layer.base());
  if (!graph) return {layer.base().output_shape(input_shapes)};
  return graph->output_shapes(input_shapes);
}

void FunctionalLayer::expect_one_output() const {
  if (outputs_.size() > 1)
    fail<InvalidArgumentError>(
        "[{}] expected a model of one output, got {}: call_all(), predict() and fit() of a "
        "td::Model return or train several; in another model use the layers before them",
        label(), outputs_.size());
}

std::vector<std::string> FunctionalLayer::output_names() const {
  std::vector<std::string> names;
  for (const std::size_t slot : outputs_) {
    const std::string name = slot < input_shapes_.size()
                                 ? input_names_[slot]
                                 : calls_[slot - input_shapes_.size()].layer.name();
    std::string unique = name;
    for (int i = 1; std::ranges::find(names, unique) != names.end(); ++i)
      unique = fmt::format("{}_{}", name, i);
    names.push_back(unique);
  }
  return names;
}

Shape FunctionalLayer::output_shape(std::span<const Shape> input_shapes) const {
  expect_one_output();
  return output_shapes(input_shapes).front();
}

std::vector<Shape> FunctionalLayer::output_shapes(std::span<const Shape> input_shapes) const {
  if (input_shapes.size() != input_shapes_.size())
    fail<InvalidArgumentError>("[{}] expected {} inputs, got {}", label(), input_shapes_.size(),
                               input_shapes.size());
  const std::vector<Shape> slots = propagate(input_shapes);
  std::vector<Shape> shapes;
  for (const std::size_t slot : outputs_) shapes.push_back(slots[slot]);
  return shapes;
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
