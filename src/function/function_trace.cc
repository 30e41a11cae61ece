#include "function/function_trace.h"

#include <algorithm>

#include "core/status.h"
#include "function/placer.h"
#include "graph/structural_ops.h"
#include "op/context.h"
#include "op/record.h"
#include "runtime/trace.h"
#include "runtime/variable_impl.h"
#include "tandem/device.h"

namespace tandem::detail {
namespace {

// Whether a node captured a tensor that may be tracked.
bool captures_floats(const Node& node) {
  if (node.resource) return is_floating(node.resource->spec().dtype);
  return node.value.defined() && is_floating(node.value.dtype());
}
bool captures_tracked(const Node& node) {
  return node.resource ? node.resource->tracked() : is_tracked(node.value);
}

}  // namespace

bool wants_gradient(const Tensor& tensor) {
  return context.records && is_tracked(tensor) && is_floating(tensor.dtype());
}

bool Trace::make(const std::vector<ArgumentSpec>& inputs,
                 std::span<const std::shared_ptr<ElementPass>> passes,
                 const FunctionTraces::Body& body, bool may_make_variables) {
  TraceFrame frame{.outside = &Generator::current(),
                   .name = name,
                   .may_make_variables = may_make_variables,
                   .passes = passes};
  graph = make_ref<GraphImpl>();
  feeds.clear();
  fetches.clear();
  untracked_.clear();
  replayed = true;
  const Scoped scope(context.graph, graph.get());
  Generator generator({.seed = 0, .offset = 0});
  const Scoped generator_scope(context.generator, &generator);
  const Scoped frame_scope(context.trace, &frame);
  const Scoped<metrics::NestedSums*> no_sums(context.nested_sums, nullptr);  // not of the graph
  const TracedGradients traced_gradients;
  std::vector<Tensor> symbols;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& spec = inputs[i].spec;
    Node& node = graph->add(kPlaceholder, SpecAttrs{spec.dtype, spec.shape}, {},
                            {.name = fmt::format("args_{}", i)});
    feeds.push_back({&node, 0});
    symbols.push_back(graph->tensor(node));
    if (inputs[i].tracked) symbols.back().set_requires_grad();
  }
  const std::vector<Tensor> outputs = body(symbols);
  for (const Tensor& output : outputs) fetches.push_back(graph->input_of(output));
  elements = std::move(frame.elements);
  for (const TracedElement& element : elements)
    for (const Tensor& tensor : element.tensors) {
      feeds.push_back(graph->input_of(tensor));
      symbols.push_back(tensor);
    }
  settings_ = std::move(frame.settings);
  frozen_.clear();
  note_frozen(*graph, frame);
  random_count = generator.state().offset;
  last_random = generator.last_random();
  if (!context.records) return frame.made_variables;
  const bool branches = note_captured(*graph);
  gradient = make_trace_gradient(*graph, symbols, outputs);
  if (branches && gradient) {
    replayed = false;  // the backward pass of control flow must be in the same program
    gradient = nullptr;
  }
  return frame.made_variables;
}

// Returns whether there is control flow.
bool Trace::note_captured(const GraphImpl& nodes) {
  bool branches = false;
  for (const auto& node : nodes.nodes()) {
    if (captures_floats(*node) && !captures_tracked(*node)) untracked_.push_back(node.get());
    if (!node->control) continue;
    branches = true;
    for (const tandem::Body& body : node->control->bodies) note_captured(*body.graph);
  }
  return branches;
}

void Trace::note_frozen(const GraphImpl& nodes, const TraceFrame& frame) {
  for (const auto& node : nodes.nodes()) {
    if (const VariableImpl* variable = node->resource ? node->resource->variable() : nullptr) {
      const auto changed = frame.frozen_before.find(variable);
      frozen_.emplace(variable,
                      changed != frame.frozen_before.end() ? changed->second : variable->frozen());
    }
    if (!node->control) continue;
    for (const tandem::Body& body : node->control->bodies) note_frozen(*body.graph, frame);
  }
}

bool Trace::has_settings() const {
  return std::all_of(settings_.begin(), settings_.end(), [](const auto& entry) {
    return entry.first->load(std::memory_order_relaxed) == entry.second;
  });
}

bool Trace::current() {
  const std::lock_guard lock(running_);
  if (const std::uint64_t freezes = VariableImpl::freezes(); freezes != freezes_) {
    if (std::any_of(frozen_.begin(), frozen_.end(),
                    [](const auto& entry) { return entry.first->frozen() != entry.second; }))
      return false;
    freezes_ = freezes;
  }
  return std::none_of(untracked_.begin(), untracked_.end(), [](const Node* node) {
    return (!node->resource || context.tapes > 0) && captures_tracked(*node);
  });
}

void Trace::take_elements(FunctionCall& call) const {
  std::vector<Tensor> taken;
  for (const TracedElement& element : elements) {
    ElementPass& pass = element.captured ? *element.captured : *call.passes[element.argument];
    if (!pass.next(taken))
      fail<OutOfRangeError>("[{}] End of sequence: an iterator has no element left for the call",
                            name);
    if (taken.size() != element.tensors.size())
      fail<InvalidArgumentError>("[{}] expected an element of {} components, as traced, got {}",
                                 name, element.tensors.size(), taken.size());
    for (std::size_t i = 0; i < taken.size(); ++i) {
      const TensorType& spec = impl_of(element.tensors[i]);
      if (taken[i].dtype() != spec.dtype || !spec.shape.matches(taken[i].shape()))
        fail<InvalidArgumentError>(
            "[{}] component {} of an element differs from what was traced: expected shape {} and "
            "dtype {}, got {} and {}",
            name, i, spec.shape.to_string(), name_of(spec.dtype), taken[i].shape().to_string(),
            name_of(taken[i].dtype()));
      call.inputs.push_back(std::move(taken[i]));
    }
  }
}

std::unique_ptr<Program> Trace::make_program(const std::vector<Tensor>& inputs, KnownSizes& sizes,
                                             std::shared_ptr<ProgramMemory> memory) const {
  std::unique_lock<Mutex> lock;
  LowerOptions options{.feeds = feeds, .fetches = fetches, .all_updates = true, .sizes = &sizes};
  for (const Tensor& input : inputs) options.add_given(input);
  if (gradient) {
    lock = std::unique_lock(gradient->graph_mutex());
    const auto& kept = gradient->fetches();
    options.fetches.insert(options.fetches.end(), kept.begin(), kept.end());
  }
  PlacerOptions placing;
  placing.log_device_placement = debugging::get_log_device_placement();
  options.devices = place_graph(*graph, placing);
  options.devices_of = [placing](const GraphImpl& body) { return place_graph(body, placing); };
  return std::make_unique<Program>(
      lower(*graph, options),
      ProgramOptions{.name = fmt::format("'{}'", name), .memory = std::move(memory)});
}

void Trace::prepare(TraceProgram& prepared, const std::vector<Tensor>& inputs,
                    const Memories& memories) const {
  KnownSizes sizes;
  prepared.memory = memories.forward;
  prepared.programs = std::make_unique<ProgramPool>(make_program(inputs, sizes, memories.forward));
  if (gradient)
    prepared.gradient = gradient->for_program(
        sizes, {.name = fmt::format("the gradient of '{}'", name), .memory = memories.backward});
}

void Trace::end_run() const {
  graph->end_run();
  if (random_count == 0 && !last_random) return;
  random::GeneratorState state = Generator::current().state();
  state.offset += random_count + (last_random ? last_random->total() : 0);
  Generator::current().set_state(state);
}

std::unique_lock<Mutex> Trace::turn(const TraceProgram& prepared) {
  const bool concurrent = prepared.programs->concurrent() && graph->counters().empty() &&
                          !graph->has_actions() && random_count == 0 && !last_random;
  return concurrent ? std::unique_lock<Mutex>() : std::unique_lock(running_);
}

ProgramPool::Lease Trace::take(TraceProgram& prepared, const std::vector<Tensor>& inputs) const {
  return prepared.programs->take([&] {
    KnownSizes sizes;
    return make_program(inputs, sizes, prepared.memory);
  });
}

void Trace::run(TraceProgram& prepared, FunctionCall& call) {
  const std::unique_lock lock = turn(prepared);
  const random::GeneratorState before = Generator::current().state();
  take(prepared, call.inputs)->run(call.inputs, call.outputs);
  end_run();
  if (!prepared.gradient) return;
  const std::span<Tensor> all(call.outputs), outputs = all.first(fetches.size());
  prepared.gradient->record(call.inputs, outputs, all.subspan(fetches.size()), before);
  call.outputs.resize(fetches.size());
}

void Trace::run_in_order(TraceProgram& prepared, std::span<FunctionCall> calls) {
  if (prepared.gradient) {
    for (FunctionCall& call : calls) run(prepared, call);
    return;
  }
  const std::unique_lock lock = turn(prepared);
  std::vector<ProgramRun> runs;
  for (FunctionCall& call : calls) runs.push_back({.feeds = call.inputs, .fetches = &call.outputs});
  take(prepared, calls[0].inputs)->run_in_order(runs, [this] { end_run(); });
}

}  // namespace tandem::detail
