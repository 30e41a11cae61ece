#include "runtime/variable_impl.h"

#include "core/status.h"
#include "graph/graph.h"
#include "graph/structural_ops.h"
#include "runtime/dispatch.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"

namespace tandem {
namespace {

thread_local VariableCreator* current_creator = nullptr;

Tensor clone_to(const Tensor& value, Device& device, MemoryTag tag) {
  MemoryTagScope scope(tag);
  Tensor copy = make_tensor(device, value.shape(), value.dtype());
  copy_into(copy, value);
  return copy;
}

void keep_leaf(const VariableImpl::Copy& copy, const Tensor& value) {
  impl_of(value).grad = {copy.leaf, 0, true};
}

// A copy as programs refer to it.
class CopyResource final : public Resource {
 public:
  CopyResource(RefPtr<VariableImpl> variable, std::size_t index)
      : variable_(std::move(variable)), copy_(variable_->copies()[index]) {}

  const void* identity() const override { return &copy_; }
  const std::string& name() const override { return variable_->options().name; }
  Device& device() const override { return impl_of(copy_.value).device(); }
  const TensorSpec& spec() const override { return variable_->spec(); }
  const Tensor& value() override { return copy_.value; }
  const Tensor& writable() override { return VariableImpl::writable(copy_); }

 private:
  RefPtr<VariableImpl> variable_;
  VariableImpl::Copy& copy_;
};

}  // namespace

VariableImpl::VariableImpl(const Tensor& initial_value, std::span<Device* const> devices,
                           VariableOptions options, MemoryTag tag, std::shared_ptr<Workers> workers,
                           std::shared_ptr<const StrategyMark> strategy)
    : options_(std::move(options)), spec_(impl_of(initial_value)), workers_(std::move(workers)) {
  if (devices.size() > 1 || workers_) strategy_ = std::move(strategy);
  if (options_.trainable && !is_floating(spec_.dtype)) options_.trainable = false;
  for (Device* device : devices) {
    Copy& copy = copies_.emplace_back();
    copy.tag = tag;
    copy.value = clone_to(initial_value, *device, tag);
    if (options_.trainable) copy.leaf = make_ref<Leaf>(device);
    keep_leaf(copy, copy.value);
  }
}

VariableImpl::VariableImpl(const Tensor& initial_value, VariableOptions options)
    : options_(std::move(options)), spec_(impl_of(initial_value)), of_graph_(true) {
  if (!spec_.shape.fully_defined())
    fail<InvalidArgumentError>(
        "[Variable] the initial value of {} has shape {}, which is not known "
        "before the graph runs",
        quoted_name(*this), spec_.shape.to_string());
  if (building->outer())
    fail<InvalidArgumentError>(
        "[Variable] {} was made in a branch or in the body of a loop: make variables of a graph "
        "outside of control flow (those of an optimizer: build())",
        quoted_name(*this));
  if (options_.trainable && !is_floating(spec_.dtype)) options_.trainable = false;
  const Node::Input initial = building->input_of(initial_value);
  Node& handle =
      building->variable(spec_, node_options(options_.name.empty() ? "Variable" : options_.name));
  options_.name = handle.name;
  const Node::Input inputs[] = {{&handle, 0}, initial};
  handle.initializer = &building->add(kAssignVariable, NoAttrs(), inputs, node_options());
  building->rename_under(*handle.initializer, handle, "Assign");
  Copy& copy = copies_.emplace_back();
  copy.value = building->tensor(handle);
  if (options_.trainable) copy.leaf = make_ref<Leaf>(nullptr);
}

std::size_t VariableImpl::local_index() const {
  if (!strategy_) return 0;
  const ReplicaContext* context = ReplicaContext::current();
  if (!context) return 0;
  if (context->strategy() != strategy_.get()) [[unlikely]]
    fail_mixed_strategies(
        *strategy_, *context->strategy(),
        fmt::format("Variable {} was made in the scope of the first and is used in a replica of "
                    "the second; make it in the scope of the strategy whose run() uses it",
                    quoted_name(*this)));
  return static_cast<std::size_t>(context->local_replica_id());
}

void VariableImpl::require_elements() const {
  if (!building && of_graph())
    fail<FailedPreconditionError>(
        "[Variable] {} is part of a graph: its elements belong to a session, whose run() fetches "
        "and changes them",
        quoted_name(*this));
}

Tensor VariableImpl::read(std::size_t copy) {
  require_elements();
  if (!building) return copies_[copy].value;
  const Tensor handle = memory(copy);
  symbol_of(handle).node->leaf = copies_[copy].leaf;
  Tensor value = run(kReadVariable, {&handle});
  keep_leaf(copies_[copy], value);
  // What a tape watches though it is not trainable.
  if (!is_tracked(value) && !of_graph()) impl_of(value).grad = impl_of(copies_[copy].value).grad;
  return value;
}

void VariableImpl::write(std::size_t copy, const Tensor& value) {
  require_elements();
  if (!building) {
    store(copies_[copy], value);
    return;
  }
  const Tensor handle = memory(copy);
  const Tensor* inputs[] = {&handle, &value};
  run_update(kAssignVariable, inputs, NoAttrs());
}

Tensor VariableImpl::memory(std::size_t copy) {
  require_elements();
  // Of this graph, or of one that it is a body of.
  if (of_graph()) return building->local(copies_[copy].value);
  if (!building) return writable(copies_[copy]);
  return building->tensor(
      building->handle(make_ref<CopyResource>(RefPtr<VariableImpl>(this), copy)));
}

const Tensor& VariableImpl::writable(Copy& copy) {
  const TensorImpl& impl = impl_of(copy.value);
  if (!impl.unique() || !impl.storage->unique()) {
    Tensor fresh = clone_to(copy.value, impl.device(), copy.tag);
    keep_leaf(copy, fresh);
    copy.value = std::move(fresh);
  }
  return copy.value;
}

void VariableImpl::store(Copy& copy, const Tensor& value) {
  const TensorImpl& impl = impl_of(copy.value);
  if (impl.unique() && impl.storage->unique()) {
    copy_into(copy.value, value);
    return;
  }
  Tensor fresh = clone_to(value, impl.device(), copy.tag);
  keep_leaf(copy, fresh);
  copy.value = std::move(fresh);
}

std::string quoted_name(const std::string& name, const TensorSpec& spec) {
  if (!name.empty()) return fmt::format("'{}'", name);
  return fmt::format("(unnamed, of shape {} and dtype {})", spec.shape.to_string(),
                     name_of(spec.dtype));
}
std::string quoted_name(const VariableImpl& variable) {
  return quoted_name(variable.options().name, variable.spec());
}
std::string quoted_name(const Variable& variable) { return quoted_name(variable.impl()); }

VariableCreator* VariableCreator::current() { return current_creator; }

VariableCreatorScope::VariableCreatorScope(VariableCreator* creator) : previous_(current_creator) {
  current_creator = creator;
}

VariableCreatorScope::~VariableCreatorScope() { current_creator = previous_; }

}  // namespace tandem
