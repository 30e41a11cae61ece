// Gradients of control flow: nodes whose bodies are the graphs of the forward bodies, to which a
// backward pass has added gradients.
#include <algorithm>
#include <utility>

#include "autodiff/control_flow.h"
#include "autodiff/engine.h"
#include "core/status.h"
#include "graph/structural_ops.h"
#include "op/record.h"
#include "runtime/placement.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

void refuse_second_order(GradContext& c) {
  fail<UnimplementedError>(
      "[{}] gradients of the gradients of cond and while_loop in a graph are not implemented; take "
      "them outside of td::function",
      c.op().name);
}

const char* name_for_users(const Node& node) { return node.op == &kIf ? "cond" : "while_loop"; }

Node& forward_of(GradContext& c) {
  const Tensor& output = c.output(0);
  Node* node = is_symbolic(output) ? symbol_of(output).node : nullptr;
  if (!context.graph || !node || node->graph != context.graph)
    fail<UnimplementedError>(
        "[{}] the gradient of control flow in a graph is taken in the same graph: not in a branch "
        "or loop inside of it, nor outside of the traced function",
        c.op().name);
  return *node;
}

// Adds a placeholder to a body.
Node& add_placeholder(GraphImpl& graph, const TensorType& spec, std::string_view name) {
  return graph.add(kPlaceholder, SpecAttrs{spec.dtype, spec.shape}, {}, {.name = name});
}

// A backward pass in the graph of a body.
class BackwardBody {
 public:
  BackwardBody(const Node& forward, const Body& body) : forward_(forward), body_(body) {}

  // Adds a tensor that is fed with the gradient of result `i`.
  Tensor add_seed(std::size_t i) {
    const TensorType& spec = impl_of(body_.results[i]);
    Node& node = add_placeholder(*body_.graph, spec, "gradient");
    Tensor seed = body_.graph->tensor(node);
    if (const GradEdge& edge = impl_of(body_.results[i]).grad) pass_.roots.push_back({edge, seed});
    return seed;
  }

  void run() {
    gradients_.resize(body_.sources.size());
    if (pass_.roots.empty()) return;
    for (const Body::FrameSource& source : body_.sources) pass_.sources.push_back(source.edge);
    pass_.sources.insert(pass_.sources.end(), body_.written_sources.begin(),
                         body_.written_sources.end());
    if (pass_.sources.empty()) return;
    pass_.retain_graph = true;
    const Scoped scope(context.graph, body_.graph.get());
    std::vector<Tensor> found = run_backward(pass_);
    for (std::size_t i = body_.sources.size(); i < found.size(); ++i)
      if (found[i].defined())
        fail<UnimplementedError>(
            "[{}] the gradient with respect to a variable that the callables also write is not "
            "implemented in a graph",
            name_for_users(forward_));
    std::move(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(gradients_.size()),
              gradients_.begin());
  }

  // The gradient of the tensor at `from` in the forward frame; undefined if no result depends on
  // it.
  Tensor gradient(std::size_t from) const {
    for (std::size_t i = 0; i < gradients_.size(); ++i)
      if (body_.sources[i].to == from) return gradients_[i];
    return {};
  }

  Tensor zeros_of(const TensorType& spec) const {
    const Scoped scope(context.graph, body_.graph.get());
    return zeros(spec.shape, {.dtype = spec.dtype});
  }
  Tensor sum(const Tensor& a, const Tensor& b) const {
    const Scoped scope(context.graph, body_.graph.get());
    return add(a, b);
  }

  // The placeholders that the fetches depend on, as feeds of the forward body. Throws
  // UnimplementedError if an operation cannot be computed again.
  std::vector<Body::FrameFeed> feeds_for(const std::vector<Node::Input>& fetches) const {
    const auto& nodes = body_.graph->nodes();
    std::vector<bool> needed(nodes.size(), false);
    for (const Node::Input& fetch : fetches)
      needed[static_cast<std::size_t>(fetch.node->id)] = true;
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      if (!needed[static_cast<std::size_t>((*node)->id)]) continue;
      check_repeatable(**node);
      for (const Node::Input& input : (*node)->inputs)
        needed[static_cast<std::size_t>(input.node->id)] = true;
      if ((*node)->control && (*node)->control->needs_record())
        needed[static_cast<std::size_t>((*node)->control->forward->id)] = true;
    }
    std::vector<Body::FrameFeed> feeds;
    for (const Body::FrameFeed& feed : body_.feeds)
      if (needed[static_cast<std::size_t>(feed.tensor.node->id)]) feeds.push_back(feed);
    return feeds;
  }

 private:
  void check_repeatable(const Node& node) const {
    const bool writes = node.control && std::count(node.control->writes.begin(),
                                                   node.control->writes.end(), true) > 0;
    if (node.op != &kReadVariable && !writes && !(node.control && node.control->source)) return;
    fail<UnimplementedError>(
        "[{}] the gradient depends on a variable that the callables also write, so its "
        "earlier value is not available in the backward pass. Read or write the variable outside",
        name_for_users(forward_));
  }

  const Node& forward_;
  const Body& body_;
  BackwardPass pass_;
  std::vector<Tensor> gradients_;  // of the sources
};

// Collects the inputs of a gradient node as its bodies need them.
class Inputs {
 public:
  explicit Inputs(GradContext& c) : c_(c) {}
  std::size_t add(Tensor tensor) {
    tensors_.push_back(std::move(tensor));
    return tensors_.size() - 1;
  }
  // Adds input `i` of the forward node.
  std::size_t forward(std::size_t i) {
    for (const auto& [from, to] : forwarded_)
      if (from == i) return to;
    forwarded_.emplace_back(i, add(c_.input(static_cast<int>(i))));
    return forwarded_.back().second;
  }
  const std::vector<Tensor>& tensors() const { return tensors_; }

 private:
  GradContext& c_;
  std::vector<Tensor> tensors_;
  std::vector<std::pair<std::size_t, std::size_t>> forwarded_;
};

std::vector<Tensor> add_node(const OpDef& op, ControlFlow flow, const Inputs& inputs,
                             std::vector<TensorType> outputs) {
  flow.writes.assign(inputs.tensors().size(), false);
  std::vector<Node::Input> sources;
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : inputs.tensors()) {
    sources.push_back(context.graph->input_of(tensor));
    pointers.push_back(&tensor);
  }
  Node& node = context.graph->control(op, std::make_shared<const ControlFlow>(std::move(flow)),
                                      std::move(sources), std::move(outputs), node_options());
  std::vector<Tensor> results;
  for (std::size_t i = 0; i < node.outputs.size(); ++i)
    results.push_back(context.graph->tensor(node, static_cast<int>(i)));
  record_control_flow(node, pointers, results);
  return results;
}

ControlFlow gradient_of(ControlFlow::Kind kind, Node& forward) {
  return {.kind = kind, .forward = &forward, .random = forward.control->random};
}

// A backward loop carries the gradients of inputs of the forward loop.
struct CarriedGradients {
  // `slot`: the gradient of that input in the body. `first`: before the backward loop.
  void add(std::size_t input, const TensorType& spec, Tensor first, Node& slot) {
    body.feeds.push_back({{&slot, 0}, elements + wanted.size()});
    inputs.add(std::move(first));
    wanted.push_back(input);
    specs.push_back(spec);
  }

  Body body;
  Inputs inputs;
  std::size_t elements = 0;         // of the frame, before the carried values
  std::vector<std::size_t> wanted;  // the inputs, in the order of the gradients
  std::vector<TensorType> specs;    // of the gradients
};

}  // namespace

const OpDef kIfGradient = {
    .name = "IfGradient", .gradient = refuse_second_order, .traits = kStateful};
const OpDef kWhileGradient = {
    .name = "WhileGradient", .gradient = refuse_second_order, .traits = kStateful};

void if_gradient(GradContext& c) {
  Node& forward = forward_of(c);
  const ControlFlow& flow = *forward.control;
  std::vector<BackwardBody> branches;
  branches.reserve(flow.bodies.size());
  for (const Body& body : flow.bodies) branches.emplace_back(forward, body);
  Inputs inputs(c);
  inputs.forward(0);
  std::vector<std::size_t> seed_at;                // indices of inputs
  std::vector<std::vector<Node::Input>> seeds(2);  // of each branch
  for (int i = 0; i < c.num_outputs(); ++i) {
    if (!c.grad(i).defined()) continue;
    seed_at.push_back(inputs.add(c.grad(i)));
    for (std::size_t k = 0; k < branches.size(); ++k)
      seeds[k].push_back({symbol_of(branches[k].add_seed(static_cast<std::size_t>(i))).node, 0});
  }
  for (BackwardBody& branch : branches) branch.run();

  std::vector<std::size_t> wanted;  // inputs that a branch depends on
  for (int i = 0; i < c.num_inputs(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (c.needs_grad(i) &&
        (branches[0].gradient(at).defined() || branches[1].gradient(at).defined()))
      wanted.push_back(at);
  }
  if (wanted.empty()) return;
  ControlFlow grad_flow = gradient_of(ControlFlow::Kind::kCondGradient, forward);
  std::vector<TensorType> specs;
  specs.reserve(wanted.size());
  for (std::size_t i : wanted) specs.push_back(c.input_spec(static_cast<int>(i)));
  for (std::size_t k = 0; k < branches.size(); ++k) {
    Body body{.graph = flow.bodies[k].graph, .updates = false};
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const Tensor gradient = branches[k].gradient(wanted[i]);
      body.fetches.push_back(
          body.graph->input_of(gradient.defined() ? gradient : branches[k].zeros_of(specs[i])));
    }
    for (const Body::FrameFeed& feed : branches[k].feeds_for(body.fetches))
      body.feeds.push_back({feed.tensor, inputs.forward(feed.from)});
    for (std::size_t s = 0; s < seed_at.size(); ++s)
      body.feeds.push_back({seeds[k][s], seed_at[s]});
    grad_flow.bodies.push_back(std::move(body));
  }
  const std::vector<Tensor> gradients = add_node(kIfGradient, std::move(grad_flow), inputs, specs);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    c.set_grad(static_cast<int>(wanted[i]), gradients[i]);
}

void while_gradient(GradContext& c) {
  Node& forward = forward_of(c);
  const ControlFlow& flow = *forward.control;
  const Body& iteration = flow.bodies[1];
  BackwardBody backward(forward, iteration);
  CarriedGradients carried{.body = {.graph = iteration.graph, .updates = false},
                           .inputs = Inputs(c),
                           .elements = flow.carried};
  Body& body = carried.body;
  const auto zeros_of = [](const TensorType& spec) {
    return zeros(spec.shape, {.dtype = spec.dtype});
  };
  for (std::size_t i = 0; i < flow.carried; ++i) {
    const TensorType& spec = c.output_spec(static_cast<int>(i));
    if (!is_floating(spec.dtype)) continue;
    const Tensor& given = c.grad(static_cast<int>(i));
    carried.add(i, spec, given.defined() ? given : zeros_of(spec),
                *symbol_of(backward.add_seed(i)).node);
  }
  backward.run();
  for (std::size_t i = 0; i < carried.wanted.size(); ++i) {
    const Tensor gradient = backward.gradient(carried.wanted[i]);
    body.fetches.push_back(
        body.graph->input_of(gradient.defined() ? gradient : backward.zeros_of(carried.specs[i])));
  }
  // The gradient of a captured tensor is the sum over iterations.
  for (int i = static_cast<int>(flow.carried); i < c.num_inputs(); ++i) {
    const Tensor gradient = backward.gradient(static_cast<std::size_t>(i));
    if (!gradient.defined() || !c.needs_grad(i)) continue;
    const TensorType& spec = c.input_spec(i);
    Node& sum = add_placeholder(*body.graph, spec, "sum");
    body.fetches.push_back(body.graph->input_of(backward.sum(body.graph->tensor(sum), gradient)));
    carried.add(static_cast<std::size_t>(i), spec, zeros_of(spec), sum);
  }
  if (carried.wanted.empty()) return;
  for (const Body::FrameFeed& feed : backward.feeds_for(body.fetches))
    body.feeds.push_back({feed.tensor, feed.from < flow.carried
                                           ? feed.from
                                           : carried.elements + carried.inputs.forward(feed.from)});
  ControlFlow grad_flow = gradient_of(ControlFlow::Kind::kWhileGradient, forward);
  grad_flow.elements = carried.elements;
  grad_flow.carried = carried.wanted.size();
  grad_flow.bodies.push_back(std::move(body));
  const std::vector<Tensor> gradients =
      add_node(kWhileGradient, std::move(grad_flow), carried.inputs, carried.specs);
  for (std::size_t i = 0; i < carried.wanted.size(); ++i)
    if (c.needs_grad(static_cast<int>(carried.wanted[i])))
      c.set_grad(static_cast<int>(carried.wanted[i]), gradients[i]);
}

}  // namespace tandem
