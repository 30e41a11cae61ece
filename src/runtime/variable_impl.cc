#include "runtime/variable_impl.h"

#include <array>
#include <atomic>
#include <optional>

#include "core/status.h"
#include "graph/graph.h"
#include "graph/structural_ops.h"
#include "runtime/autocast.h"
#include "runtime/dispatch.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "runtime/trace.h"
#include "runtime/variable_name.h"

namespace tandem {
namespace {

std::atomic<std::uint64_t> freezes_of_all{0};

// The storage, for a program that was traced when the variable had this dtype.
VariableStorage& storage_of(const VariableImpl& variable, DType traced) {
  if (variable.spec().dtype != traced) [[unlikely]]
    fail<FailedPreconditionError>(
        "[Variable] {} was converted from {} after a function that uses it was traced, expected "
        "the conversion first: call amp::initialize before the function's first call",
        quoted_name(variable), name_of(traced));
  return variable.storage();
}

// The copy of a reader, as programs refer to it.
class StoredResource final : public Resource {
 public:
  StoredResource(RefPtr<VariableImpl> variable, std::size_t reader)
      : StoredResource(std::move(variable), reader, {}) {}

  const void* identity() const override { return variable_->storage().identity(reader_); }
  VariableImpl* variable() const override { return variable_.get(); }
  const std::string& name() const override { return variable_->options().name; }
  DeviceImpl& device() const override { return variable_->storage().home(reader_); }
  const TensorType& spec() const override { return spec_; }
  Tensor value() override { return storage().value(reader_); }
  std::uint64_t value_version() override { return storage().version(reader_); }
  bool tracked() override { return static_cast<bool>(storage().edge(reader_)); }
  Tensor writable() override {
    return cast_ ? storage().writable_with_cast(reader_, *cast_) : storage().writable(reader_);
  }
  WithCast with_cast(DType dtype) override;

 private:
  // `cast`: the dtype of the copy that the program writes with the elements; none: no copy.
  StoredResource(RefPtr<VariableImpl> variable, std::size_t reader, std::optional<DType> cast)
      : variable_(std::move(variable)), spec_(variable_->spec()), reader_(reader), cast_(cast) {}

  VariableStorage& storage() const { return storage_of(*variable_, spec_.dtype); }

  RefPtr<VariableImpl> variable_;
  TensorType spec_;
  std::size_t reader_;
  std::optional<DType> cast_;
};

// The cast copy of a reader's elements, as programs refer to it.
class CastResource final : public Resource {
 public:
  CastResource(RefPtr<VariableImpl> variable, std::size_t reader, DType dtype)
      : variable_(std::move(variable)),
        spec_(variable_->spec()),
        elements_(spec_.dtype),
        reader_(reader) {
    spec_.dtype = dtype;
  }

  const void* identity() const override { return this; }
  const std::string& name() const override { return variable_->options().name; }
  DeviceImpl& device() const override { return variable_->storage().home(reader_); }
  const TensorType& spec() const override { return spec_; }
  Tensor value() override {
    return storage_of(*variable_, elements_).cast_copy(reader_, spec_.dtype);
  }
  Tensor writable() override { return value(); }

 private:
  RefPtr<VariableImpl> variable_;
  TensorType spec_;
  DType elements_;
  std::size_t reader_;
};

Resource::WithCast StoredResource::with_cast(DType dtype) {
  if (!variable_->storage().has_cast_copies()) return {};
  return {RefPtr<Resource>(new StoredResource(variable_, reader_, dtype)),
          make_ref<CastResource>(variable_, reader_, dtype)};
}

// The elements that a reader reads when a run starts, as programs refer to it.
class CopyForReads final : public Resource {
 public:
  CopyForReads(RefPtr<VariableImpl> variable, std::size_t reader, std::function<Tensor()> elements)
      : variable_(std::move(variable)),
        spec_(variable_->spec()),
        reader_(reader),
        elements_(std::move(elements)) {}

  const void* identity() const override { return &variable_->storage().leaf(reader_); }
  VariableImpl* variable() const override { return variable_.get(); }
  const std::string& name() const override { return variable_->options().name; }
  DeviceImpl& device() const override { return variable_->storage().device(reader_); }
  const TensorType& spec() const override { return spec_; }
  Tensor value() override {
    static_cast<void>(storage_of(*variable_, spec_.dtype));
    return elements_();
  }
  Tensor writable() override { throw InternalError("[Variable] a copy for reads was written"); }

 private:
  RefPtr<VariableImpl> variable_;
  TensorType spec_;
  std::size_t reader_;
  std::function<Tensor()> elements_;
};

// An assignment as an update.
class Assignment final : public VariableUpdate {
 public:
  void apply(const Tensor& variable, const Tensor& value, std::span<const Tensor>) const override {
    const Tensor* inputs[] = {&variable, &value};
    run_update(kAssignVariable, inputs, NoAttrs());
  }
  std::shared_ptr<const VariableUpdate> for_runs() const override {
    return std::make_shared<const Assignment>();
  }
};

bool has_gradients(const VariableOptions& options, const Tensor& initial_value) {
  return options.trainable && is_floating(initial_value.dtype());
}

}  // namespace

Variable::Variable(RefPtr<VariableImpl> impl) : impl_(impl) {}

VariableImpl& Variable::impl() const {
  if (!impl_) throw FailedPreconditionError("[Variable] an undefined variable was used");
  return static_cast<VariableImpl&>(*impl_);
}

VariableImpl::VariableImpl(std::unique_ptr<VariableStorage> storage, const TensorType& spec,
                           VariableOptions options, std::shared_ptr<WorkerCollectives> workers,
                           std::shared_ptr<const StrategyMark> strategy)
    : options_(std::move(options)),
      spec_(spec),
      distributed_(storage->num_readers() > 1 || workers),
      workers_(std::move(workers)),
      strategy_(distributed_ ? std::move(strategy) : nullptr),
      storage_(std::move(storage)) {
  options_.trainable = static_cast<bool>(storage_->leaf(0));
  remote_ = shared() || &storage_->home(0) != &storage_->device(0);
}

VariableImpl::VariableImpl(const Tensor& initial_value, std::span<DeviceImpl* const> devices,
                           VariableOptions options, MemoryTag tag,
                           std::shared_ptr<WorkerCollectives> workers,
                           std::shared_ptr<const StrategyMark> strategy)
    : VariableImpl(
          copy_per_replica(initial_value, devices, has_gradients(options, initial_value), tag),
          impl_of(initial_value), options, std::move(workers), std::move(strategy)) {}

VariableImpl::VariableImpl(const Tensor& initial_value, VariableOptions options)
    : options_(std::move(options)), spec_(impl_of(initial_value)), of_graph_(true) {
  if (!spec_.shape.fully_defined())
    fail<InvalidArgumentError>(
        "[Variable] the initial value of {} has shape {}, which is not known "
        "before the graph runs",
        quoted_name(*this), spec_.shape.to_string());
  if (context.graph->outer())
    fail<InvalidArgumentError>(
        "[Variable] {} was made in a branch or in the body of a loop: make variables of a graph "
        "outside of control flow (those of an optimizer: build())",
        quoted_name(*this));
  options_.trainable = has_gradients(options_, initial_value);
  const Node::Input initial = context.graph->input_of(initial_value);
  Node& handle = context.graph->variable(
      spec_, node_options(options_.name.empty() ? "Variable" : options_.name));
  options_.name = handle.name;
  const Node::Input inputs[] = {{&handle, 0}, initial};
  handle.initializer = &context.graph->add(kAssignVariable, NoAttrs(), inputs, node_options());
  context.graph->rename_under(*handle.initializer, handle, "Assign");
  storage_ = memory_in_graph(context.graph->tensor(handle), options_.trainable);
}

std::size_t VariableImpl::local_index() const {
  if (!strategy_) return 0;
  const ReplicaContext* replica = ReplicaContext::current();
  if (!replica) return 0;
  if (replica->strategy() != strategy_.get()) [[unlikely]]
    fail_mixed_strategies(
        *strategy_, *replica->strategy(),
        fmt::format("Variable {} was made in the scope of the first and is used in a replica of "
                    "the second; make it in the scope of the strategy whose run() uses it",
                    quoted_name(*this)));
  return static_cast<std::size_t>(replica->local_replica_id());
}

void VariableImpl::require_elements() const {
  if (!context.graph && of_graph())
    fail<FailedPreconditionError>(
        "[Variable] {} is part of a graph: its elements belong to a session, whose run() fetches "
        "and changes them",
        quoted_name(*this));
}

Tensor VariableImpl::read(std::size_t reader) {
  require_elements();
  if (remote_) [[unlikely]] {
    ReplicaContext* replica = ReplicaContext::current();
    if (!replica || replica->local_replica_id() != static_cast<int>(reader))
      return read_home(reader);
    if (Tensor kept = replica->read_remote(*this); kept.defined()) return kept;
  }
  return context.graph ? read_home(reader) : storage_->read(reader);
}

Tensor VariableImpl::read_home(std::size_t reader) {
  require_elements();
  return context.graph ? trace_read(memory(reader), reader) : storage_->value(reader);
}

Tensor VariableImpl::read_at_start(std::size_t reader, std::function<Tensor()> elements) {
  Node& handle = context.graph->handle(
      make_ref<CopyForReads>(RefPtr<VariableImpl>(this), reader, std::move(elements)));
  return trace_read(context.graph->tensor(handle), reader);
}

Tensor VariableImpl::trace_read(const Tensor& handle, std::size_t reader) {
  symbol_of(handle).node->leaf = storage_->leaf(reader);
  Tensor value = storage_->of_reader(reader, run(kReadVariable, {&handle}));
  // A tape watches it although it is not trainable.
  if (!is_tracked(value) && !of_graph()) impl_of(value).grad = storage_->edge(reader);
  return value;
}

void VariableImpl::write(std::size_t reader, const Tensor& value) {
  require_elements();
  if (context.graph)
    apply(reader, Assignment(), value, {});
  else
    storage_->store(reader, value);
}

void VariableImpl::apply(std::size_t reader, const VariableUpdate& update, const Tensor& gradient,
                         std::span<const Variable> slots) {
  TANDEM_ASSERT(slots.size() <= VariableStorage::kMaxSlots);
  std::array<VariableStorage*, VariableStorage::kMaxSlots> storages{};
  for (std::size_t i = 0; i < slots.size(); ++i) storages[i] = &slots[i].impl().storage();
  if (storage_->update(*this, reader, update, gradient, {storages.data(), slots.size()})) return;
  std::array<Tensor, VariableStorage::kMaxSlots> memory_of_slots;
  for (std::size_t i = 0; i < slots.size(); ++i)
    memory_of_slots[i] = slots[i].impl().memory(reader);
  update.apply(memory(reader), gradient, {memory_of_slots.data(), slots.size()});
}

Tensor VariableImpl::memory(std::size_t reader) {
  require_elements();
  // The variable belongs to this graph or to an enclosing one.
  if (of_graph()) return context.graph->local(storage_->value(reader));
  if (!context.graph) return storage_->writable(reader);
  return context.graph->tensor(context.graph->handle(resource(reader)));
}

RefPtr<Resource> VariableImpl::resource(std::size_t reader) {
  return make_ref<StoredResource>(RefPtr<VariableImpl>(this), reader);
}

void VariableImpl::set_frozen(bool frozen) {
  if (frozen == frozen_) return;
  if (context.trace) context.trace->frozen_before.emplace(this, frozen_);
  frozen_ = frozen;
  storage_->set_frozen(frozen);
  freezes_of_all.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t VariableImpl::freezes() { return freezes_of_all.load(std::memory_order_relaxed); }

void VariableImpl::replace_storage(std::unique_ptr<VariableStorage> storage) {
  storage_ = std::move(storage);
  if (frozen_) storage_->set_frozen(true);
}

void VariableImpl::convert(DType dtype) {
  if (dtype == spec_.dtype) return;
  require_elements();
  if (of_graph_)
    fail<UnimplementedError>("[Variable] {} belongs to a graph and cannot be converted to {}",
                             quoted_name(*this), name_of(dtype));
  const Tensor converted = cast_tensor(storage_->value(0), dtype);
  replace_storage(storage_->make_like(converted, options_.trainable, MemoryTag::kWeights));
  spec_.dtype = dtype;
}

void VariableImpl::copy_for_replicas(std::span<DeviceImpl* const> readers,
                                     std::shared_ptr<const StrategyMark> strategy) {
  TANDEM_ASSERT(!of_graph_ && storage_->num_readers() == 1 && readers.size() > 1);
  replace_storage(
      copy_per_replica(storage_->value(0), readers, options_.trainable,
                       options_.trainable ? MemoryTag::kWeights : MemoryTag::kOptimizer));
  distributed_ = true;
  strategy_ = std::move(strategy);
}

Variable VariableImpl::make_slot(const Tensor& initial_value, std::string name) {
  VariableOptions options{
      .trainable = false, .name = std::move(name), .synchronization = options_.synchronization};
  if (of_graph()) return Variable(make_ref<VariableImpl>(initial_value, std::move(options)));
  return Variable(make_ref<VariableImpl>(
      storage_->make_like(initial_value, /*trainable=*/false, MemoryTag::kOptimizer),
      impl_of(initial_value), std::move(options), nullptr, strategy_));
}

std::string quoted_name(const VariableImpl& variable) {
  return quoted_name(variable.options().name, variable.spec());
}
std::string quoted_name(const Variable& variable) { return quoted_name(variable.impl()); }

}  // namespace tandem
