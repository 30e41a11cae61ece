#include "op/record.h"

#include <atomic>

#include "core/status.h"
#include "core/thread_object.h"
#include "op/context.h"
#include "op/numerics.h"

namespace tandem {

namespace {

std::atomic<std::uint64_t> next_sequence{1};

}  // namespace

std::uint64_t new_sequence() { return next_sequence.fetch_add(1, std::memory_order_relaxed); }

const Tensor& Leaf::grad() const {
  if (context.traced_gradients && grad_.defined() && !context.traced_gradients->has(*this))
    throw FailedPreconditionError(
        "[grad] this gradient was computed outside of the function that uses it: compute it inside "
        "of it, or call zero_grad() inside of it first");
  return grad_;
}

Tensor Leaf::own_grad() {
  if (!grad().defined()) return {};
  if (TensorImpl& impl = impl_of(grad_); !impl.of_leaf) {
    if (!grad_.handle()->unique()) {
      Tensor alias = make_alias(grad_);
      impl_of(alias).grad = impl.grad;
      grad_ = std::move(alias);
    }
    impl_of(grad_).of_leaf = true;
  }
  return grad_;
}

void GradNode::call_hooks(std::int32_t index, Tensor& gradient) const {
  for (const Hook& hook : *hooks) {
    if (hook.index != index) continue;
    Tensor other = hook.call(gradient);
    if (!other.defined()) continue;
    if (other.dtype() != gradient.dtype() || !may_agree(other.shape(), gradient.shape()))
      fail<InvalidArgumentError>(
          "[register_hook] expected a hook to return a gradient of shape {} and dtype {}, got {} "
          "and {}",
          gradient.shape().to_string(), name_of(gradient.dtype()), other.shape().to_string(),
          name_of(other.dtype()));
    gradient = std::move(other);
  }
}

Tensor& Leaf::grad_to_accumulate() {
  static_cast<void>(grad());
  if (context.traced_gradients) context.traced_gradients->add(*this);
  return grad_;
}

void Leaf::set_grad(Tensor gradient) {
  if (context.traced_gradients) context.traced_gradients->add(*this);
  grad_ = std::move(gradient);
}

TracedGradients::TracedGradients() { context.traced_gradients = this; }

TracedGradients::~TracedGradients() {
  context.traced_gradients = nullptr;
  for (auto& [_, earlier] : earlier_) earlier.leaf->grad_ = std::move(earlier.gradient);
}

void TracedGradients::add(Leaf& leaf) {
  if (!has(leaf)) earlier_.emplace(&leaf, Earlier{RefPtr<Leaf>(&leaf), leaf.grad_});
}

OpNode::~OpNode() { free_saved(); }

void OpNode::free_saved() {
  // Freeing a node frees the nodes that only it refers to. This is a loop, because a recursion over
  // a long recorded program would overflow the stack.
  struct Pending {
    std::vector<RefPtr<GradNodeBase>> nodes;
    bool draining = false;
  };
  auto& [pending, draining] = thread_object<Pending>();
  const auto keep_for_loop = [&pending](Tensor& tensor) {
    if (tensor.defined() && tensor.handle()->unique()) {
      GradEdge& edge = impl_of(tensor).grad;
      if (edge.node) pending.push_back(std::move(edge.node));
    }
  };
  for (Input& input : inputs) {
    if (input.edge.node) pending.push_back(std::move(input.edge.node));
    keep_for_loop(input.saved);
    input.saved = {};
  }
  for (Output& output : outputs) {
    keep_for_loop(output.gradient);
    output.saved = {};
    output.gradient = {};
  }
  released = true;
  if (draining) return;
  draining = true;
  while (!pending.empty()) {
    RefPtr<GradNodeBase> node = std::move(pending.back());
    pending.pop_back();
  }
  draining = false;
}

const Tensor& GradContext::input(int i) const {
  const Tensor& tensor = node_.inputs[static_cast<std::size_t>(i)].saved;
  TANDEM_ASSERT(tensor.defined());
  return tensor;
}

Tensor GradContext::output(int i) const {
  const Tensor& saved = node_.outputs[static_cast<std::size_t>(i)].saved;
  TANDEM_ASSERT(saved.defined());
  if (!context.records) return saved;
  Tensor tensor = make_alias(saved);
  impl_of(tensor).grad = {RefPtr<GradNodeBase>(&node_), i};
  return tensor;
}

RefPtr<OpNode> record(const OpDef& op, AttrsRef attrs, std::span<const Tensor* const> inputs,
                      std::span<Tensor> outputs, DeviceImpl* device) {
  const auto saves = [](std::uint32_t mask, std::size_t i) {
    return i < 32 ? (mask >> i & 1u) != 0 : mask == kAllTensors;
  };
  RefPtr<OpNode> node(new OpNode);
  node->op = &op;
  node->device = device;
  node->sequence = new_sequence();
  node->attrs = attrs.type->copy(attrs.data);
  if (checks_numerics() && context.layer) [[unlikely]]
    node->layer = std::make_shared<const std::string>(*context.layer);
  node->inputs.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const TensorImpl& tensor = impl_of(*inputs[i]);
    OpNode::Input& input = node->inputs[i];
    // Integers have no gradients.
    if (tensor.grad && is_floating(tensor.dtype)) input.edge = tensor.grad;
    input.spec = tensor;
    if (saves(op.saved_inputs, i)) input.saved = *inputs[i];
  }
  node->outputs.resize(outputs.size());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    TensorImpl& tensor = impl_of(outputs[i]);
    OpNode::Output& output = node->outputs[i];
    output.spec = tensor;
    if (saves(op.saved_outputs, i)) output.saved = make_alias(outputs[i]);
    if (is_floating(tensor.dtype)) tensor.grad = {node, static_cast<std::int32_t>(i)};
  }
  return node;
}

}  // namespace tandem
