#include "function/body_trace.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/status.h"
#include "function/body_random.h"
#include "graph/structural_ops.h"
#include "op/record.h"
#include "runtime/placement.h"

namespace tandem {
namespace {

// Connects the bodies of one node to the enclosing graph.
class Assembly {
 public:
  Assembly(const OpDef& op, ControlFlow flow, std::span<const Tensor> given)
      : op_(op), flow_(std::move(flow)), graph_(*context.graph) {
    for (const Tensor& tensor : given) inputs_.push_back(graph_.local(tensor));
  }

  std::vector<Tensor> run(std::vector<TracedBody> traced, std::vector<TensorType> outputs) {
    for (const TracedBody& body : traced) {
      auto& handles = written_by_.emplace_back();
      for (Node* handle : written_handles(*body.graph)) {
        handles.push_back(&outer_handle(*handle));
        if (!contains(written_, *handles.back())) written_.push_back(handles.back());
      }
    }
    for (TracedBody& body : traced) add_body(body);
    flow_.writes.assign(inputs_.size(), false);
    for (Node* handle : written_) {
      for (std::size_t i = 0; i < traced.size(); ++i)
        if (contains(written_by_[i], *handle)) flow_.bodies[i].written.push_back(inputs_.size());
      inputs_.push_back(memory_of(*handle));
      flow_.writes.push_back(true);
    }
    std::shared_ptr<const RandomSequence> before = Generator::current().last_random();
    number_random_operations(traced);
    flow_.effects = find_effects(flow_);

    std::vector<Node::Input> sources;
    std::vector<const Tensor*> inputs;
    for (const Tensor& input : inputs_) {
      sources.push_back(graph_.input_of(input));
      inputs.push_back(&input);
    }
    Node& node = graph_.control(op_, std::make_shared<const ControlFlow>(std::move(flow_)),
                                std::move(sources), std::move(outputs), node_options());
    node.random_before = std::move(before);
    std::vector<Tensor> results;
    for (std::size_t i = 0; i < node.outputs.size(); ++i)
      results.push_back(graph_.tensor(node, static_cast<int>(i)));
    record_control_flow(node, inputs, results);
    return results;
  }

 private:
  // The same variable in this graph.
  Node& outer_handle(Node& handle) {
    Node& outer = handle.resource ? graph_.handle(handle.resource) : *handle.outside;
    if (!outer.leaf) outer.leaf = handle.leaf;
    return outer;
  }

  static bool contains(const std::vector<Node*>& handles, const Node& handle) {
    return std::find(handles.begin(), handles.end(), &handle) != handles.end();
  }

  // Variables that are written while the next added body runs. In a loop, the other body counts
  // too.
  const std::vector<Node*>& written_while_running() const {
    return flow_.loops() ? written_ : written_by_[flow_.bodies.size()];
  }

  Tensor memory_of(Node& handle) {
    Tensor memory = graph_.tensor(handle);
    if (handle.leaf) impl_of(memory).grad = {handle.leaf, 0};
    return memory;
  }

  void add_body(TracedBody& traced) {
    Body body;
    body.graph = traced.graph;
    body.results = traced.results;
    for (const Tensor& result : traced.results)
      body.fetches.push_back(traced.graph->input_of(result));
    for (std::size_t i = 0; i < traced.arguments.size(); ++i)
      feed(body, *symbol_of(traced.arguments[i]).node, i, impl_of(traced.arguments[i]).grad);
    for (const GraphImpl::Capture& capture : traced.graph->captures())
      feed(body, *capture.inside, flow_.elements + input(capture.outside), capture.edge);
    for (const auto& node : traced.graph->nodes()) {
      if (node->op == &kReadVariable) read_outside(body, *node);
      if (node->op == &kVarHandle) node->outside = &outer_handle(*node);
    }
    for (const Node* handle : written_while_running())
      if (handle->leaf) body.written_sources.push_back({handle->leaf, 0});
    traced.graph->close();
    flow_.bodies.push_back(std::move(body));
  }

  static void feed(Body& body, Node& placeholder, std::size_t from, const GradEdge& edge) {
    body.feeds.push_back({{&placeholder, 0}, from});
    const auto same = [&](const Body::FrameSource& source) {
      return source.edge.node == edge.node;
    };
    if (edge && std::none_of(body.sources.begin(), body.sources.end(), same))
      body.sources.push_back({edge, from});
  }

  // The index of the input for a tensor of this graph or a concrete tensor.
  std::size_t input(const Tensor& tensor) {
    const Node::Input source = graph_.input_of(tensor);
    const GradEdge& edge = impl_of(tensor).grad;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const GradEdge& other = impl_of(inputs_[i]).grad;
      // Initial carried values are not reused as other inputs.
      if (i >= flow_.carried && graph_.input_of(inputs_[i]) == source && other.node == edge.node &&
          other.index == edge.index)
        return i;
    }
    inputs_.push_back(tensor);
    return inputs_.size() - 1;
  }

  // A variable that is not written is read once, before the node.
  void read_outside(Body& body, Node& read) {
    Node& inside = *read.inputs[0].node;
    Node& handle = outer_handle(inside);
    if (contains(written_while_running(), handle)) return;
    auto [at, added] = reads_.try_emplace(&handle, 0);
    if (added) {
      const Node::Input memory{&handle, 0};
      Tensor value = graph_.tensor(graph_.add(kReadVariable, NoAttrs(), {&memory, 1}));
      if (handle.leaf) impl_of(value).grad = {handle.leaf, 0};
      inputs_.push_back(std::move(value));
      at->second = inputs_.size() - 1;
    }
    read.op = &kPlaceholder;
    read.attrs =
        std::make_shared<const SpecAttrs>(SpecAttrs{read.outputs[0].dtype, read.outputs[0].shape});
    read.inputs.clear();
    feed(body, read, flow_.elements + at->second,
         handle.leaf ? GradEdge{handle.leaf, 0} : GradEdge());
  }

  void number_random_operations(const std::vector<TracedBody>& traced) {
    std::vector<RandomSequence::BodyCount> counts;
    bool any = false;
    for (const TracedBody& body : traced) {
      counts.push_back(body.random);
      any = any || body.random.count > 0 || body.random.last;
    }
    if (!any) return;
    Generator& generator = Generator::current();
    flow_.random = std::make_shared<BodyRandomSequence>(generator.last_random(), std::move(counts));
    flow_.offset_before = generator.state().offset;
    generator.set_last_random(flow_.random);
  }

  const OpDef& op_;
  ControlFlow flow_;
  GraphImpl& graph_;
  std::vector<Tensor> inputs_;
  std::vector<Node*> written_;                  // variables written by any body
  std::vector<std::vector<Node*>> written_by_;  // by each body
  std::map<Node*, std::size_t> reads_;          // the input of each variable that is only read
};

}  // namespace

TracedBody trace_body(std::span<const TensorType> arguments, const BodyFn& body) {
  TracedBody traced;
  traced.graph = make_ref<GraphImpl>(context.graph);
  GraphImpl& graph = *traced.graph;
  const Scoped scope(context.graph, &graph);
  Generator generator({.seed = 0, .offset = 0});
  const Scoped generator_scope(context.generator, &generator);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const TensorType& spec = arguments[i];
    Tensor argument = graph.tensor(graph.add(kPlaceholder, SpecAttrs{spec.dtype, spec.shape}, {},
                                             {.name = fmt::format("args_{}", i)}));
    if (is_floating(spec.dtype)) impl_of(argument).grad = {make_ref<Leaf>(nullptr), 0};
    traced.arguments.push_back(std::move(argument));
  }
  for (const Tensor& result : body(traced.arguments)) {
    if (is_symbolic(result) || is_tracked(result))
      traced.results.push_back(graph.local(result));
    else
      traced.results.push_back(graph.tensor(graph.constant(result)));
  }
  traced.random = {generator.state().offset, generator.last_random()};
  return traced;
}

std::vector<Tensor> add_control_flow(const OpDef& op, ControlFlow flow,
                                     std::span<const Tensor> given, std::vector<TracedBody> bodies,
                                     std::vector<TensorType> outputs) {
  return Assembly(op, std::move(flow), given).run(std::move(bodies), std::move(outputs));
}

void record_control_flow(const Node& node, std::span<const Tensor* const> inputs,
                         std::span<Tensor> outputs) {
  const auto tracked = [](const Tensor* input) { return is_tracked(*input); };
  if (!context.records || !node.op->gradient || outputs.empty() ||
      std::none_of(inputs.begin(), inputs.end(), tracked))
    return;
  const RefPtr<OpNode> recorded = record(*node.op, NoAttrs(), inputs, outputs, nullptr);
  if (!(node.requested == DeviceName()))
    recorded->requested = std::make_shared<const PlacementRequest>(
        PlacementRequest{node.requested, node.requested_text});
}

}  // namespace tandem
