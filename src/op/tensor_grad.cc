// The methods of Tensor that access its gradient.
#include "core/status.h"
#include "op/record.h"
#include "tandem/autodiff.h"

namespace tandem {
namespace {

// The leaf of a tensor; null if the tensor is not a leaf.
Leaf* leaf_of(const Tensor& tensor) {
  auto* node = static_cast<GradNode*>(impl_of(tensor).grad.node.get());
  return node && !node->op ? static_cast<Leaf*>(node) : nullptr;
}

}  // namespace

void make_leaf(const Tensor& tensor) {
  TensorImpl& impl = impl_of(tensor);
  if (!is_floating(impl.dtype))
    fail<DTypeError>("[set_requires_grad] only floating tensors have gradients, got {}",
                     name_of(impl.dtype));
  impl.grad.node = make_ref<Leaf>(impl.symbol ? nullptr : &impl.device());
  impl.grad.index = 0;
}

bool Tensor::requires_grad() const { return is_tracked(*this); }

Tensor& Tensor::set_requires_grad(bool required) {
  if (required == is_tracked(*this)) return *this;
  if (impl_of(*this).grad.of_variable)
    fail<InvalidArgumentError>(
        "[set_requires_grad] expected a tensor that is no variable's value, got one of {} "
        "variable: "
        "whether a variable has a gradient is set when it is made. detach() gives a tensor of its "
        "own with the same elements",
        required ? "an untrainable" : "a trainable");
  if (required)
    make_leaf(*this);
  else
    impl_of(*this).grad = {};
  return *this;
}

bool Tensor::is_leaf() const { return !is_tracked(*this) || leaf_of(*this); }

Tensor Tensor::grad() const {
  Leaf* leaf = leaf_of(*this);
  return leaf ? leaf->own_grad() : Tensor();
}

RemovableHandle Tensor::add_hook(std::function<Tensor(const Tensor& gradient)> hook) const {
  const GradEdge& edge = impl_of(*this).grad;
  if (!leads_to_leaf(edge))
    throw InvalidArgumentError(
        "[register_hook] expected a tensor that requires a gradient; call set_requires_grad()");
  auto* node = static_cast<GradNode*>(edge.node.get());
  if (!node->hooks) node->hooks = std::make_unique<std::vector<GradNode::Hook>>();
  const auto stays = std::make_shared<bool>(true);
  node->hooks->push_back({edge.index, [stays, hook = std::move(hook)](const Tensor& gradient) {
                            return *stays ? hook(gradient) : Tensor();
                          }});
  return RemovableHandle([stays] { *stays = false; });
}

void Tensor::zero_grad() {
  if (Leaf* leaf = leaf_of(*this)) leaf->set_grad({});
}

Tensor Tensor::detach() const { return make_alias(*this); }

NoGradScope::NoGradScope() : previous_(context.records) { context.records = false; }
NoGradScope::~NoGradScope() { context.records = previous_; }
bool grad_enabled() { return context.records; }

}  // namespace tandem
