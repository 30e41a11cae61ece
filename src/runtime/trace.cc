#include "runtime/trace.h"

#include "graph/structural_ops.h"
#include "op/record.h"
#include "runtime/generator.h"
#include "runtime/placement.h"

namespace tandem {

namespace {

// Draw n of the trace is, in each run, draw n from where the thread's generator then stands.
std::shared_ptr<const Renewal> redraw(const OpDef& op, const Node& node) {
  const auto copy = op.attrs().copy(node.attrs.get());
  const Draw traced = op.exchange_draw(const_cast<void*>(copy.get()), {});
  return std::make_shared<const Renewal>([&op, traced](void* attrs) {
    const random::GeneratorState now = Generator::current().state();
    op.exchange_draw(attrs, {now.seed, now.draws + traced.number, traced.stream});
  });
}

}  // namespace

std::vector<Tensor> trace_op(const OpDef& op, std::span<const Tensor* const> inputs,
                             AttrsRef attrs) {
  GraphImpl& graph = *building;
  std::vector<Node::Input> sources;
  sources.reserve(inputs.size());
  for (const Tensor* input : inputs) sources.push_back(graph.input_of(*input));
  const NodeOptions options = node_options();
  Node& node = graph.add(op, attrs, sources, options);
  if (op.exchange_draw) node.renewal = redraw(op, node);
  std::vector<Tensor> outputs;
  outputs.reserve(node.outputs.size());
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    outputs.push_back(graph.tensor(node, static_cast<int>(i)));

  bool tracked = false;
  for (const Tensor* input : inputs) tracked = tracked || is_tracked(*input);
  if (grad_mode && op.gradient && tracked) {
    OpNode& recorded = record(op, attrs, inputs, outputs, nullptr);
    if (options.requested)
      recorded.requested = std::make_shared<const PlacementRequest>(
          PlacementRequest{*options.requested, std::string(options.requested_text)});
  }
  return outputs;
}

Tensor new_constant(const Shape& shape, DType dtype, const void* host, std::string_view name) {
  if (!building) return from_host(place_constant("Const"), shape, dtype, host);
  Node& node = building->add(kConst, SpecAttrs{dtype, shape}, {}, node_options(name));
  const auto* bytes = static_cast<const std::byte*>(host);
  node.literal.assign(bytes,
                      bytes + static_cast<std::size_t>(shape.num_elements()) * size_of(dtype));
  return building->tensor(node);
}

Tensor named(Tensor tensor, std::string_view name) {
  if (!name.empty() && is_symbolic(tensor)) {
    const Symbol& symbol = symbol_of(tensor);
    symbol.node->graph->rename(*symbol.node, name);
  }
  return tensor;
}

}  // namespace tandem
