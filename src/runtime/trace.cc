#include "runtime/trace.h"

#include <algorithm>

#include "core/status.h"
#include "graph/check_numerics.h"
#include "graph/structural_ops.h"
#include "op/numerics.h"
#include "op/record.h"
#include "runtime/check_results.h"
#include "runtime/generator.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "runtime/variable_name.h"

namespace tandem {

namespace {

void set_key_update(const OpDef& op, Node& node) {
  const auto copy = op.attrs().copy(node.attrs.get());
  const RandomKey traced = op.exchange_key(const_cast<void*>(copy.get()), {});
  const ReplicaContext* replica = ReplicaContext::current();
  const std::uint64_t replica_id = replica ? static_cast<std::uint64_t>(replica->replica_id()) : 0;
  node.random_before = node.graph->random_before
                           .try_emplace({traced.number, traced.stream, replica_id},
                                        Generator::current().last_random())
                           .first->second;
  node.attr_update = key_update(op, traced, node.random_before);
}

// The name of the variable that a symbolic tensor was read from, or of the argument that it is.
std::string name_of_source(const Tensor& tensor) {
  if (!is_symbolic(tensor)) return "a constant";
  const Node& node = *symbol_of(tensor).node;
  if (!node.inputs.empty() && node.inputs[0].node->resource)
    return "variable " + quoted_name(node.inputs[0].node->resource->name(),
                                     node.inputs[0].node->resource->spec());
  return node.inputs.empty() ? node.name : std::string();
}

// Replaces the floating outputs of an operation that was traced with those of nodes that check them
// in each run.
void trace_checks(const OpDef& op, std::span<const Tensor* const> inputs,
                  std::span<Tensor> outputs) {
  if (!has_checked_results(op, inputs)) return;
  CheckNumericsAttrs what{.operation = describe_operation(op), .inputs = {}};
  for (const Tensor* input : inputs) what.inputs += name_of_source(*input) + '\n';
  for (Tensor& output : outputs) {
    if (!is_floating(output.dtype())) continue;
    std::vector<const Tensor*> all = {&output};
    all.insert(all.end(), inputs.begin(), inputs.end());
    output = trace_op(kCheckNumerics, all, what).front();
  }
}

}  // namespace

std::shared_ptr<const AttrUpdate> key_update(const OpDef& op, const RandomKey& traced,
                                             std::shared_ptr<const RandomSequence> before) {
  return std::make_shared<const AttrUpdate>(
      [&op, traced, before = std::move(before)](void* attrs, std::int64_t) {
        const random::GeneratorState now = Generator::current().state();
        const std::uint64_t number =
            now.offset + traced.number + (before ? before->total() : std::uint64_t{0});
        op.exchange_key(attrs, {now.seed, number, traced.stream});
      });
}

std::vector<Tensor> trace_op(const OpDef& op, std::span<const Tensor* const> inputs,
                             AttrsRef attrs) {
  GraphImpl& graph = *context.graph;
  std::vector<Node::Input> sources;
  sources.reserve(inputs.size());
  // In a body, captured tensors are recorded with their edges inside.
  std::vector<Tensor> local;
  std::vector<const Tensor*> local_inputs;
  if (graph.outer()) {
    local.reserve(inputs.size());
    for (const Tensor* input : inputs)
      local_inputs.push_back(&local.emplace_back(graph.local(*input)));
    inputs = local_inputs;
  }
  for (const Tensor* input : inputs) sources.push_back(graph.input_of(*input));
  const NodeOptions options = node_options();
  Node& node = graph.add(op, attrs, sources, options);
  if (op.exchange_key) set_key_update(op, node);
  std::vector<Tensor> outputs;
  outputs.reserve(node.outputs.size());
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    outputs.push_back(graph.tensor(node, static_cast<int>(i)));

  bool tracked = false;
  for (const Tensor* input : inputs) tracked = tracked || is_tracked(*input);
  if (context.records && op.gradient && tracked) {
    const RefPtr<OpNode> recorded = record(op, attrs, inputs, outputs, nullptr);
    if (options.requested)
      recorded->requested = std::make_shared<const PlacementRequest>(
          PlacementRequest{*options.requested, std::string(options.requested_text)});
  }
  if (checks_numerics()) trace_checks(op, inputs, outputs);
  return outputs;
}

Tensor new_constant(const Shape& shape, DType dtype, const void* host, std::string_view name) {
  if (!context.graph) {
    DeviceImpl& device = place_constant("Const");
    log_execution("_EagerConst", device);
    return from_host(device, shape, dtype, host);
  }
  if (!name.empty()) expect_operation_name(name);
  Node& node = context.graph->add(kConst, SpecAttrs{dtype, shape}, {}, node_options(name));
  const auto* bytes = static_cast<const std::byte*>(host);
  node.literal.assign(bytes,
                      bytes + static_cast<std::size_t>(shape.num_elements()) * size_of(dtype));
  return context.graph->tensor(node);
}

std::vector<Tensor> traced_element(const std::shared_ptr<ElementPass>& pass,
                                   std::span<const TensorType> specs) {
  if (context.graph->outer())
    fail<UnimplementedError>(
        "[Iterator] next() was called in a branch or in the body of a loop, which a traced "
        "function "
        "cannot do: call it before, or use for_each(dataset, ...)");
  if (!context.trace)
    fail<UnimplementedError>(
        "[Iterator] next() was called in the graph of a session, which cannot take elements: feed "
        "the element in each run");
  TracedElement& element = context.trace->elements.emplace_back();
  const auto& passes = context.trace->passes;
  element.argument =
      static_cast<std::size_t>(std::find(passes.begin(), passes.end(), pass) - passes.begin());
  if (element.argument == passes.size()) element.captured = pass;
  for (std::size_t i = 0; i < specs.size(); ++i)
    element.tensors.push_back(context.graph->tensor(
        context.graph->add(kPlaceholder, SpecAttrs{specs[i].dtype, specs[i].shape}, {},
                           {.name = fmt::format("element_{}", i)})));
  return element.tensors;
}

void note_setting(const std::shared_ptr<const std::atomic<bool>>& setting) {
  if (context.trace)
    context.trace->settings.try_emplace(setting, setting->load(std::memory_order_relaxed));
}

Tensor named(Tensor tensor, std::string_view name) {
  if (!name.empty() && is_symbolic(tensor)) {
    const Symbol& symbol = symbol_of(tensor);
    symbol.node->graph->rename(*symbol.node, name);
  }
  return tensor;
}

}  // namespace tandem
