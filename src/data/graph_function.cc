#include "data/graph_function.h"

#include "core/status.h"
#include "data/no_variables.h"
#include "data/refuse_stage.h"
#include "function/serialize.h"
#include "function/traced_function.h"
#include "graph/structural_ops.h"

namespace tandem::data {
namespace {

std::shared_ptr<const TracedFunction> trace(std::string_view stage, const MapFn& function,
                                            const std::vector<ComponentSpec>& spec) {
  FunctionOptions options{.name = std::string(stage)};
  tandem::detail::FunctionCall call;
  for (const ComponentSpec& component : spec) {
    options.input_signature.push_back({component.shape, component.dtype});
    Shape shape = component.shape;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape.word(axis) < 0) shape.set(axis, 1);
    call.inputs.push_back(make_tensor(DeviceManager::get().host(), shape, component.dtype));
  }
  return tandem::detail::FunctionTraces(std::move(options))
      .trace(call, [&](std::vector<Tensor> inputs) {
        std::vector<Tensor> outputs = function(Example(std::move(inputs))).components();
        for (const Tensor& output : outputs)
          if (!output.defined()) fail<InvalidArgumentError>("it returns an undefined tensor");
        return outputs;
      });
}

void check(const TracedFunction& traced, bool may_be_random) {
  if (!may_be_random && (traced.random_count > 0 || traced.last_random))
    fail<UnimplementedError>("it uses random numbers, which do not depend on the element here");
  if (!traced.elements.empty()) fail<UnimplementedError>("it takes elements from an iterator");
  for (const auto& node : traced.graph->nodes())
    if (node->op == &kVarHandle) fail<UnimplementedError>("it uses variable '{}'", node->name);
}

tandem::proto::Function message_of(const TracedFunction& traced) {
  std::vector<const Node*> outputs;
  for (const Node::Input& fetch : traced.fetches) outputs.push_back(fetch.node);
  for (const Node::Input& feed : traced.feeds) outputs.push_back(feed.node);
  return serialize_function(*traced.graph, select_nodes(*traced.graph, outputs, false),
                            traced.feeds, traced.fetches);
}

Spec spec_of(const std::vector<Node::Input>& fetches) {
  Spec spec(std::in_place);
  for (const Node::Input& fetch : fetches) {
    const TensorType& output = fetch.node->outputs[static_cast<std::size_t>(fetch.output)];
    if (!output.shape.known()) return std::nullopt;
    ComponentSpec& component = spec->emplace_back(ComponentSpec{output.dtype, output.shape});
    for (int axis = 0; axis < output.shape.rank(); ++axis)
      if (output.shape.word(axis) < 0) component.shape.set(axis, -1);
  }
  return spec;
}

}  // namespace

tandem::proto::Function trace_function(std::string_view stage, const MapFn& function,
                                       const std::vector<ComponentSpec>& spec, bool may_be_random) {
  const PipelineScope scope;
  const NoVariablesScope no_variables;
  try {
    const std::shared_ptr<const TracedFunction> traced = trace(stage, function, spec);
    check(*traced, may_be_random);
    return message_of(*traced);
  } catch (const Error& error) {
    refuse_stage(stage, fmt::format("its function cannot be traced: {}", error.what()));
  }
}

GraphFunction::GraphFunction(tandem::proto::Function message, std::string stage)
    : message_(std::move(message)), stage_(std::move(stage)) {
  idle_.push_back(make_programs());
  spec_ = spec_of(idle_.back()->fetches());
}

std::unique_ptr<GraphPrograms> GraphFunction::make_programs() const {
  RefPtr<GraphImpl> graph = deserialize_nodes(message_.graph());
  for (const auto& node : graph->nodes())
    if (node->op == &kVarHandle)
      fail<InvalidArgumentError>("[{}] the function has a variable, '{}'", stage_, node->name);
  return std::make_unique<GraphPrograms>(std::move(graph), message_,
                                         GraphPrograms::Options{.name = stage_});
}

Example GraphFunction::operator()(const Example& element) const {
  std::unique_ptr<GraphPrograms> programs;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      programs = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!programs) programs = make_programs();
  std::vector<Tensor> results;
  programs->run(element.components(), results);
  const std::lock_guard lock(mutex_);
  idle_.push_back(std::move(programs));
  return Example(std::move(results));
}

}  // namespace tandem::data
