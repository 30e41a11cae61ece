#include "function/trace_gradient.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "autodiff/engine.h"
#include "autodiff/trace_record.h"
#include "core/mutex.h"
#include "core/status.h"
#include "function/placer.h"
#include "graph/program.h"
#include "graph/structural_ops.h"
#include "op/fields.h"
#include "runtime/dispatch.h"
#include "runtime/generator.h"
#include "runtime/placement.h"
#include "tandem/autodiff.h"
#include "tandem/device.h"

namespace tandem {
namespace {

class RecordedProgram;

struct CallAttrs {
  std::shared_ptr<RecordedProgram> program;
  random::GeneratorState random;  // the generator's state before the run
  DeviceImpl* device;             // of the first result
  TANDEM_FIELDS()
};

void traced_call_gradient(GradContext& c);

// The operation of a run. Its inputs are the sources and the kept tensors, its outputs the roots.
const OpDef kTracedCall = {
    .name = "PartitionedCall", .attrs = &attrs_type<CallAttrs>, .gradient = traced_call_gradient};

// --- operation by operation ---

const OpDef kSource = {.name = "_Source",
                       .gradient = [](GradContext& c) { c.set_grad(0, c.grad()); }};

// A tensor with a spec and an edge but without elements, for record().
Tensor without_elements(const TensorType& spec, GradEdge edge = {}) {
  RefPtr<TensorImpl> impl(new TensorImpl);
  static_cast<TensorType&>(*impl) = spec;
  impl->grad = std::move(edge);
  return Tensor(std::move(impl));
}

// The values of the run.
struct RecordedRun {
  const KnownSizes& sizes;
  std::span<const Tensor> kept;   // as TraceRecord::kept()
  random::GeneratorState random;  // the generator's state before the run
  DeviceImpl* device;             // the default device of gradients
};

// Records a run of a traced callable operation by operation, as if it had run eagerly. Uses the
// tensors that the run has kept. It computes no operation of the run again.
class EagerReplay {
 public:
  // `sources`: the tensors of record.sources(), with their specs and gradient edges.
  EagerReplay(const TraceRecord& record, const RecordedRun& run, std::span<const Tensor> sources)
      : record_(record), run_(run) {
    // One node per source, so that a tensor that is passed as two arguments is two sources.
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const Tensor* input = &sources[i];
      Tensor output = without_elements(impl_of(sources[i]));
      tandem::record(kSource, NoAttrs(), {&input, 1}, {&output, 1}, run_.device);
      sources_.push_back(impl_of(output).grad);
      const GradEdge& traced = record_.sources()[i].edge;
      edges_[{traced.node.get(), traced.index}] = sources_.back();
    }
    for (const RefPtr<OpNode>& operation : record_.operations()) replay(*operation);
  }

  // The gradient edges of record.roots() and of record.sources().
  GradEdge root(std::size_t i) const { return edge_of(impl_of(record_.roots()[i].tensor).grad); }
  const std::vector<GradEdge>& sources() const { return sources_; }

 private:
  GradEdge edge_of(const GradEdge& traced) const {
    const auto found = edges_.find({traced.node.get(), traced.index});
    return found == edges_.end() ? GradEdge() : found->second;
  }
  Tensor value_of(const Tensor& saved) const {
    if (!is_symbolic(saved)) return make_alias(saved);
    const Symbol& symbol = symbol_of(saved);
    return make_alias(value_of(Node::Input{symbol.node, symbol.output}));
  }

  Tensor value_of(const Node::Input& tensor) const {
    for (std::size_t i = 0; i < record_.kept().size(); ++i)
      if (record_.kept()[i].tensor == tensor) return run_.kept[i];
    const Node& node = *tensor.node;
    if (node.op == &kConst) {
      if (node.value.defined()) return node.value;
      const TensorType& spec = node.outputs[0];
      return from_host(*run_.device, spec.shape, spec.dtype, node.literal.data());
    }
    const NoGradScope no_grad;
    const Scoped at_once(context.graph, nullptr);
    const Tensor base = value_of(node.inputs[0]);
    const std::shared_ptr<const void> attrs = attrs_of(*node.op, node.attrs);
    return run(*node.op, {&base}, {&node.op->attrs(), attrs.get()});
  }

  std::shared_ptr<const void> attrs_of(const OpDef& op,
                                       const std::shared_ptr<const void>& traced) const {
    std::shared_ptr<const void> attrs = run_.sizes.fill_in(op, traced);
    if (!op.exchange_key) return attrs;
    attrs = op.attrs().copy(attrs.get());
    auto* own = const_cast<void*>(attrs.get());  // not shared yet
    const RandomKey key = op.exchange_key(own, {});
    op.exchange_key(own, {run_.random.seed, run_.random.offset + key.number, key.stream});
    return attrs;
  }

  void replay(const OpNode& node) {
    const auto stand_in = [this](const Tensor& saved, const TensorType& spec) {
      return saved.defined() ? value_of(saved)
                             : without_elements({spec.dtype, run_.sizes(spec.shape)});
    };
    std::vector<Tensor> inputs, outputs;
    std::vector<const Tensor*> pointers;
    inputs.reserve(node.inputs.size());
    for (const OpNode::Input& input : node.inputs) {
      inputs.push_back(stand_in(input.saved, input.spec));
      impl_of(inputs.back()).grad = edge_of(input.edge);
      pointers.push_back(&inputs.back());
    }
    for (const OpNode::Output& output : node.outputs)
      outputs.push_back(stand_in(output.saved, output.spec));
    const std::shared_ptr<const void> attrs = attrs_of(*node.op, node.attrs);
    static const NoAttrs none;
    const RefPtr<OpNode> recorded =
        tandem::record(*node.op, {&node.op->attrs(), attrs ? attrs.get() : &none}, pointers,
                       outputs, context.graph || node.requested ? nullptr : run_.device);
    recorded->requested = node.requested;
    for (std::size_t k = 0; k < outputs.size(); ++k)
      edges_[{&node, static_cast<int>(k)}] = impl_of(outputs[k]).grad;
  }

  const TraceRecord& record_;
  const RecordedRun& run_;
  std::vector<GradEdge> sources_;
  std::map<std::pair<const GradNodeBase*, int>, GradEdge> edges_;  // by the edges of the trace
};

// --- per trace ---

class RecordedTrace final : public TraceGradient,
                            public std::enable_shared_from_this<RecordedTrace> {
 public:
  RecordedTrace(GraphImpl& graph, TraceRecord record)
      : graph_(RefPtr<GraphImpl>(&graph)), record_(std::move(record)) {
    for (const TraceRecord::RootOutput& root : record_.roots()) {
      const TensorImpl& spec = impl_of(root.tensor);
      Node& node = graph.add(kPlaceholder, SpecAttrs{spec.dtype, spec.shape}, {},
                             {.name = "gradients/output"});
      output_gradients_.push_back({&node, 0});
    }
  }

  const std::vector<Node::Input>& fetches() const override { return record_.fetches(); }
  std::shared_ptr<ProgramGradient> for_program(const KnownSizes& sizes,
                                               ProgramOptions options) override;

  const TraceRecord& record() const { return record_; }

  // The backward program from the roots with given[i]. `feeds`: the kept tensors, then the
  // gradients of these roots, for their specs and devices. Sets `connected` to the sources that
  // have a gradient, which the program fetches. Null if the gradients depend on sizes that are
  // unknown during tracing.
  std::unique_ptr<Program> program(const std::vector<bool>& given, std::span<const Tensor> feeds,
                                   KnownSizes sizes, const ProgramOptions& program_options,
                                   std::vector<std::size_t>& connected) {
    const std::lock_guard lock(graph_mutex());
    const std::vector<Tensor>* gradients = gradients_for(given);
    if (!gradients) return nullptr;
    LowerOptions options{.sizes = &sizes};
    for (const TraceRecord::KeptTensor& kept : record_.kept()) options.feeds.push_back(kept.tensor);
    for (std::size_t i = 0; i < given.size(); ++i)
      if (given[i]) options.feeds.push_back(output_gradients_[i]);
    for (const Tensor& feed : feeds) options.add_given(feed);
    for (std::size_t i = 0; i < gradients->size(); ++i) {
      if (!(*gradients)[i].defined()) continue;
      connected.push_back(i);
      options.fetches.push_back(graph_->input_of((*gradients)[i]));
    }
    options.devices = place_graph(*graph_);
    try {
      return std::make_unique<Program>(lower(*graph_, options), program_options);
    } catch (const InvalidArgumentError&) {
      connected.clear();
      return nullptr;
    }
  }

 private:
  // Symbolic gradients by source; null if they cannot be traced.
  const std::vector<Tensor>* gradients_for(const std::vector<bool>& given) {
    const auto [at, added] = gradients_.try_emplace(given);
    if (added) at->second = traced_gradients(given);
    return at->second ? &*at->second : nullptr;
  }

  std::optional<std::vector<Tensor>> traced_gradients(const std::vector<bool>& given) {
    const Scoped scope(context.graph, graph_.get());
    const DeviceScope anywhere("");
    BackwardPass pass{.stop_at_sources = true, .retain_graph = true};
    for (std::size_t i = 0; i < given.size(); ++i)
      if (given[i])
        pass.roots.push_back(
            {impl_of(record_.roots()[i].tensor).grad, graph_->tensor(*output_gradients_[i].node)});
    for (const TraceRecord::TracedSource& source : record_.sources())
      pass.sources.push_back(source.edge);
    try {
      return run_backward(pass);
    } catch (const InvalidArgumentError&) {
      return std::nullopt;
    }
  }

  RefPtr<GraphImpl> graph_;
  TraceRecord record_;
  std::vector<Node::Input> output_gradients_;  // placeholders, by root
  std::map<std::vector<bool>, std::optional<std::vector<Tensor>>> gradients_;  // by given roots
};

// --- per program ---

class RecordedProgram final : public ProgramGradient,
                              public std::enable_shared_from_this<RecordedProgram> {
 public:
  RecordedProgram(std::shared_ptr<RecordedTrace> trace, const KnownSizes& sizes,
                  ProgramOptions options)
      : trace_(std::move(trace)), sizes_(sizes), options_(std::move(options)) {}

  void record(std::span<const Tensor> arguments, std::span<Tensor> outputs,
              std::span<const Tensor> kept, const random::GeneratorState& random) override {
    const TraceRecord& traced = trace_->record();
    std::vector<Tensor> sources, results;
    for (const TraceRecord::TracedSource& source : traced.sources())
      sources.push_back(source.in_run(arguments));
    std::vector<const Tensor*> inputs;
    for (const Tensor& source : sources) inputs.push_back(&source);
    if (std::none_of(sources.begin(), sources.end(), is_tracked))
      return pass_on_end(inputs, outputs);
    // The program reuses the memory of results that no tensor refers to, so it needs results
    // without edges.
    for (const TraceRecord::RootOutput& root : traced.roots())
      results.push_back(make_alias(outputs[root.output]));
    DeviceImpl& device = impl_of(results.front()).device();
    const RefPtr<OpNode> node = tandem::record(
        kTracedCall, CallAttrs{shared_from_this(), random, &device}, inputs, results, &device);
    for (const TraceRecord::KeptTensor& what : traced.kept()) {
      OpNode::Input& input = node->inputs.emplace_back();
      input.saved = what.in_run(arguments, kept);
      input.spec = impl_of(input.saved);
    }
    for (std::size_t i = 0; i < results.size(); ++i)
      outputs[traced.roots()[i].output] = std::move(results[i]);
  }

  void backward(GradContext& c, const CallAttrs& call) {
    const auto first_kept = static_cast<int>(trace_->record().sources().size());
    std::vector<Tensor> kept;
    for (int i = first_kept; i < c.num_inputs(); ++i) kept.push_back(c.input(i));
    // A recorded or traced pass runs operation by operation.
    if (context.records || context.graph || !run_program(c, kept, call))
      run_operations(c, kept, call);
  }

 private:
  struct Backward {
    std::unique_ptr<Program> program;    // null to run operation by operation
    std::vector<std::size_t> connected;  // the source of each result
  };

  bool run_program(GradContext& c, std::vector<Tensor> feeds, const CallAttrs& call) {
    std::vector<bool> given;
    for (int i = 0; i < c.num_outputs(); ++i) {
      given.push_back(c.grad(i).defined());
      if (given.back()) feeds.push_back(copy_to_device(c.grad(i), *call.device));
    }
    const std::lock_guard lock(running_);
    const auto [at, added] = programs_.try_emplace(given);
    Backward& backward = at->second;
    if (added)
      backward.program = trace_->program(given, feeds, sizes_, options_, backward.connected);
    if (!backward.program) return false;
    Generator generator(call.random);
    const Scoped generator_scope(context.generator, &generator);
    std::vector<Tensor> gradients;
    backward.program->run(feeds, gradients);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      c.set_grad(static_cast<int>(backward.connected[i]), std::move(gradients[i]));
    return true;
  }

  void run_operations(GradContext& c, const std::vector<Tensor>& kept,
                      const CallAttrs& call) const {
    std::vector<Tensor> sources;
    for (std::size_t i = 0; i < trace_->record().sources().size(); ++i) {
      const int input = static_cast<int>(i);
      sources.push_back(without_elements(c.input_spec(input), c.edge(input)));
    }
    const RecordedRun run{
        .sizes = sizes_, .kept = kept, .random = call.random, .device = call.device};
    const EagerReplay replay(trace_->record(), run, sources);
    BackwardPass pass{
        .sources = replay.sources(), .stop_at_sources = true, .create_graph = context.records};
    for (int i = 0; i < c.num_outputs(); ++i)
      if (c.grad(i).defined())
        pass.roots.push_back({replay.root(static_cast<std::size_t>(i)), c.grad(i)});
    std::vector<Tensor> gradients = run_backward(pass);
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined()) c.set_grad(static_cast<int>(i), std::move(gradients[i]));
  }

  std::shared_ptr<RecordedTrace> trace_;
  KnownSizes sizes_;
  ProgramOptions options_;  // of backward programs
  Mutex running_{"function"};
  std::map<std::vector<bool>, Backward> programs_;  // by the roots that have a gradient
};

std::shared_ptr<ProgramGradient> RecordedTrace::for_program(const KnownSizes& sizes,
                                                            ProgramOptions options) {
  return std::make_shared<RecordedProgram>(shared_from_this(), sizes, std::move(options));
}

void traced_call_gradient(GradContext& c) {
  const auto& call = c.attrs<CallAttrs>();
  call.program->backward(c, call);
}

std::shared_ptr<TraceGradient> record_trace(GraphImpl& graph, std::span<const Tensor> arguments,
                                            std::span<const Tensor> outputs) {
  TraceRecord record(graph, arguments, outputs);
  if (record.sources().empty()) return nullptr;
  return std::make_shared<RecordedTrace>(graph, std::move(record));
}

[[maybe_unused]] const bool trace_gradient_registered = make_trace_gradient.set(record_trace);

}  // namespace
}  // namespace tandem
