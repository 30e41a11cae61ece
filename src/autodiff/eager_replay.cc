#include "autodiff/eager_replay.h"

#include "graph/structural_ops.h"
#include "runtime/dispatch.h"
#include "runtime/placement.h"
#include "tandem/autodiff.h"

namespace tandem {
namespace {

const OpDef kSource = {.name = "_Source",
                       .gradient = [](GradContext& c) { c.set_grad(0, c.grad()); }};

}  // namespace

Tensor without_elements(const TensorSpec& spec, GradEdge edge) {
  RefPtr<TensorImpl> impl(new TensorImpl);
  static_cast<TensorSpec&>(*impl) = spec;
  impl->grad = std::move(edge);
  return Tensor(std::move(impl));
}

EagerReplay::EagerReplay(const TraceRecord& record, const RecordedRun& run,
                         std::span<const Tensor> sources)
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

GradEdge EagerReplay::edge_of(const GradEdge& traced) const {
  const auto found = edges_.find({traced.node.get(), traced.index});
  return found == edges_.end() ? GradEdge() : found->second;
}

Tensor EagerReplay::value_of(const Tensor& saved) const {
  if (!is_symbolic(saved)) return make_alias(saved);
  const Symbol& symbol = symbol_of(saved);
  return make_alias(value_of(Node::Input{symbol.node, symbol.output}));
}

Tensor EagerReplay::value_of(const Node::Input& tensor) const {
  for (std::size_t i = 0; i < record_.kept().size(); ++i)
    if (record_.kept()[i].tensor == tensor) return run_.kept[i];
  const Node& node = *tensor.node;
  if (node.op == &kConst) {
    if (node.value.defined()) return node.value;
    const TensorSpec& spec = node.outputs[0];
    return from_host(*run_.device, spec.shape, spec.dtype, node.literal.data());
  }
  const NoGradScope no_grad;
  const BuildingScope at_once(nullptr);
  const Tensor base = value_of(node.inputs[0]);
  const std::shared_ptr<const void> attrs = attrs_of(*node.op, node.attrs);
  return run(*node.op, {&base}, {&node.op->attrs(), attrs.get()});
}

std::shared_ptr<const void> EagerReplay::attrs_of(const OpDef& op,
                                                  const std::shared_ptr<const void>& traced) const {
  std::shared_ptr<const void> attrs = run_.sizes.fill_in(op, traced);
  if (!op.exchange_key) return attrs;
  attrs = op.attrs().copy(attrs.get());
  auto* own = const_cast<void*>(attrs.get());  // not shared yet
  const RandomKey key = op.exchange_key(own, {});
  op.exchange_key(own, {run_.random.seed, run_.random.offset + key.number, key.stream});
  return attrs;
}

void EagerReplay::replay(const OpNode& node) {
  const auto stand_in = [this](const Tensor& saved, const TensorSpec& spec) {
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
  OpNode& recorded =
      tandem::record(*node.op, {&node.op->attrs(), attrs ? attrs.get() : &none}, pointers, outputs,
                     building || node.requested ? nullptr : run_.device);
  recorded.requested = node.requested;
  for (std::size_t k = 0; k < outputs.size(); ++k)
    edges_[{&node, static_cast<int>(k)}] = impl_of(outputs[k]).grad;
}

}  // namespace tandem
