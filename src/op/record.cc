#include "op/record.h"

#include <algorithm>
#include <limits>

#include "core/mutex.h"
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

// The content of a record. Freed without the lock, because it may free other records.
struct TapeRecords::Freed {
  std::vector<OpNode::Input> inputs;
  std::vector<OpNode::Output> outputs;
  std::shared_ptr<const void> attrs;
  std::unique_ptr<std::vector<GradNode::Hook>> hooks;
};

TapeRecords& TapeRecords::of_thread() {
  struct Own {
    RefPtr<TapeRecords> records = make_ref<TapeRecords>();
    const HeldAtFork held_at_fork{records->mutex_};
  };
  return *thread_object<Own>().records;
}

std::uint64_t TapeRecords::begin_tape() {
  const std::lock_guard lock(mutex_);
  const std::uint64_t tape = tapes_.emplace_back(new_sequence());
  find_oldest();
  return tape;
}

std::uint64_t TapeRecords::find_oldest() {
  std::uint64_t oldest = std::numeric_limits<std::uint64_t>::max();
  for (const std::uint64_t live : tapes_) oldest = std::min(oldest, live);
  oldest_.store(oldest, std::memory_order_relaxed);
  return oldest;
}

bool TapeRecords::is_over(const OpNode& node) const {
  return node.sequence < oldest_.load(std::memory_order_relaxed);
}

bool TapeRecords::has_ended(const OpNode& node) const {
  if (!is_over(node)) return false;
  const std::lock_guard lock(mutex_);
  return std::find(watched_.begin(), watched_.end(), &node) == watched_.end();
}

void TapeRecords::watch(const OpNode& node) {
  const std::lock_guard lock(mutex_);
  watched_.push_back(&node);
}

void TapeRecords::unwatch(const OpNode& node) {
  const std::lock_guard lock(mutex_);
  watched_.erase(std::find(watched_.begin(), watched_.end(), &node));
}

void TapeRecords::end_tape(std::uint64_t tape) {
  std::vector<Freed> freed;
  const std::lock_guard lock(mutex_);
  std::erase(tapes_, tape);
  const std::uint64_t oldest = find_oldest();
  while (first_ && first_->sequence < oldest) {
    OpNode& node = *first_;
    unlink(node);
    if (node.outlasts_tapes) continue;
    node.released.store(true, std::memory_order_relaxed);
    node.ended.store(true, std::memory_order_relaxed);
    freed.push_back({std::move(node.inputs), std::move(node.outputs), std::move(node.attrs),
                     std::move(node.hooks)});
    node.inputs.clear();
    node.outputs.clear();
  }
}

void TapeRecords::add(OpNode& node) {
  const std::lock_guard lock(mutex_);
  // Tapes of a thread that this one works for may end later.
  if (tapes_.empty() || static_cast<int>(tapes_.size()) != context.tapes) return;
  node.tapes = RefPtr<TapeRecords>(this);
  node.earlier = last_;
  (last_ ? last_->later : first_) = &node;
  last_ = &node;
}

void TapeRecords::remove(OpNode& node) {
  const std::lock_guard lock(mutex_);
  if (node.earlier || first_ == &node) unlink(node);
}

void TapeRecords::unlink(OpNode& node) {
  (node.earlier ? node.earlier->later : first_) = node.later;
  (node.later ? node.later->earlier : last_) = node.earlier;
  node.earlier = node.later = nullptr;
}

OpNode::~OpNode() {
  if (tapes) tapes->remove(*this);
  free_saved();
}

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
  released.store(true, std::memory_order_relaxed);
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

namespace {

OpNode* record_of(const GradEdge& edge) {
  auto* node = static_cast<GradNode*>(edge.node.get());
  return node && node->op ? static_cast<OpNode*>(node) : nullptr;
}

// A dead end in place of the edge, which does not keep the record if that still has something.
GradEdge end_of(const GradEdge& edge) {
  const OpNode& record = *record_of(edge);
  if (record.released) return edge;
  RefPtr<OpNode> end(new OpNode);
  end->op = record.op;
  end->outlasts_tapes = true;
  end->released.store(true, std::memory_order_relaxed);
  end->ended.store(true, std::memory_order_relaxed);
  return {std::move(end), 0};
}

}  // namespace

bool is_constant(const GradEdge& edge) {
  const OpNode* record = record_of(edge);
  return !edge ||
         (record && record->ended.load(std::memory_order_relaxed) && !record->outlasts_tapes);
}

bool is_dead_end(const GradEdge& edge) {
  const OpNode* record = record_of(edge);
  if (!record || is_constant(edge)) return false;
  if (record->released.load(std::memory_order_relaxed)) return true;
  return context.tapes > 0 && record->tapes && record->tapes->has_ended(*record);
}

void pass_on_end(std::span<const Tensor* const> inputs, std::span<Tensor> outputs) {
  const auto ended = std::find_if(inputs.begin(), inputs.end(), [](const Tensor* input) {
    return is_dead_end(impl_of(*input).grad);
  });
  if (ended == inputs.end()) return;
  const GradEdge end = end_of(impl_of(**ended).grad);
  for (Tensor& output : outputs)
    if (TensorImpl& tensor = impl_of(output); is_floating(tensor.dtype) && !tensor.grad)
      tensor.grad = end;
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
    if (!is_constant(tensor.grad) && is_floating(tensor.dtype)) {
      input.edge = is_dead_end(tensor.grad) ? end_of(tensor.grad) : tensor.grad;
      const OpNode* before = record_of(input.edge);
      node->outlasts_tapes =
          node->outlasts_tapes ||
          (before ? before->outlasts_tapes : !static_cast<Leaf*>(input.edge.node.get())->of_tape);
    }
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
  // The records of a trace are of the function.
  if (context.tapes > 0 && device) TapeRecords::of_thread().add(*node);
  return node;
}

}  // namespace tandem
