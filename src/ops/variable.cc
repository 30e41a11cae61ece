// Reading and assigning variables, outside strategies and in their replicas.
#include "tandem/variable.h"
#include "tandem/creation.h"

#include <ostream>

#include "core/status.h"
#include "function/initial_value.h"
#include "runtime/autocast.h"
#include "runtime/gradient_buffer.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "runtime/replica_invariance.h"
#include "runtime/trace.h"
#include "runtime/variable_copies.h"
#include "runtime/variable_impl.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"

namespace tandem {
namespace {

RefPtr<VariableImpl> create(const Tensor& tensor, VariableOptions options) {
  if (context.graph && context.graph->for_sessions) {
    if (VariableCreator::current())
      fail<UnimplementedError>(
          "[Variable] '{}' is created in a strategy's scope and in a graph; use a td::function "
          "under "
          "strategies",
          options.name);
    return make_ref<VariableImpl>(tensor, std::move(options));
  }
  const Tensor initial_value = tandem::initial_value(tensor, options.name);
  const OutsideTrace at_once;
  if (VariableCreator* creator = VariableCreator::current())
    return creator->create(initial_value, std::move(options));
  DeviceImpl* device = &place_constant("VarHandleOp");
  return make_ref<VariableImpl>(initial_value, std::span(&device, 1), std::move(options));
}

bool on_read(const VariableImpl& variable) {
  return variable.options().synchronization == VariableSynchronization::kOnRead;
}

// REQUIRES: the number of values is a power of two.
Tensor pairwise_sum(std::vector<Tensor> values) {
  for (; values.size() > 1; values.resize(values.size() / 2))
    for (std::size_t i = 0; i < values.size() / 2; ++i)
      values[i] = add(values[2 * i], values[2 * i + 1]);
  return values.front();
}

// Aggregates the copies of a kOnRead variable over all processes.
Tensor aggregate_copies(VariableImpl& variable) {
  const VariableAggregation aggregation = variable.options().aggregation;
  const std::shared_ptr<WorkerCollectives>& workers = variable.workers();
  const auto what = [&] {
    return "value of " +
           (variable.options().name.empty() ? quoted_name(variable) : variable.options().name);
  };
  NoGradScope no_grad;
  OnDevice on(variable.storage().home(0));
  if (aggregation == VariableAggregation::kOnlyFirstReplica && workers)
    return workers->broadcast(variable.read(0), what());
  if (aggregation != VariableAggregation::kSum && aggregation != VariableAggregation::kMean)
    return variable.read(0);
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < variable.storage().num_places(); ++i)
    values.push_back(variable.read(i));
  // The mean of equal copies is exactly their value only if they are added in pairs.
  const bool invariant = invariant_parts() > 0;
  Tensor sum = invariant ? pairwise_sum(values) : add_n(values);
  if (workers)
    sum = workers->all_reduce(sum, invariant ? ReduceOp::kTreeSum : ReduceOp::kSum, what());
  return aggregation == VariableAggregation::kSum
             ? sum
             : divide(sum, static_cast<double>(variable.num_copies()));
}

// Aggregates the values that the replicas write to a mirrored variable.
Tensor aggregate_write(const VariableImpl& variable, const Tensor& value, ReplicaContext& context) {
  switch (variable.options().aggregation) {
    case VariableAggregation::kNone:
      fail<InvalidArgumentError>(
          "You must specify an aggregation method to update a {} in Replica Context. "
          "Variable {} has "
          "VariableAggregation::kNone; create it with kSum, kMean or kOnlyFirstReplica.",
          variable.shared() ? "AggregatingVariable" : "MirroredVariable", quoted_name(variable));
    case VariableAggregation::kOnlyFirstReplica: return context.broadcast(value);
    case VariableAggregation::kSum: return context.all_reduce({&value, 1}, ReduceOp::kSum).front();
    case VariableAggregation::kMean:
      return divide(context.all_reduce({&value, 1}, ReduceOp::kSum).front(),
                    static_cast<double>(context.num_contributors()));
  }
  return value;
}

void end_write(ReplicaContext& context, VariableImpl& variable) {
  if (!variable.remote()) return;
  const Variable written{RefPtr<VariableImpl>(&variable)};
  context.end_write({&written, 1});
}

// Runs `combine(current, value)` for the copies that an assignment reaches and stores the results;
// `current()` is a copy's value.
template <class Combine>
void assign_with(VariableImpl& variable, const Tensor& value, const char* what,
                 const Combine& combine) {
  const TensorType& spec = variable.spec();
  if (value.dtype() != spec.dtype || !may_agree(value.shape(), spec.shape))
    fail<InvalidArgumentError>(
        "[{}] variable {} has shape {} and dtype {}, got shape {} and dtype {}", what,
        quoted_name(variable), spec.shape.to_string(), name_of(spec.dtype),
        value.shape().to_string(), name_of(value.dtype()));
  NoGradScope no_grad;
  if (context.copies) {
    Tensor& copy = context.copies->at(variable);
    copy = combine([&] { return copy; }, value);
    return;
  }
  ReplicaContext* replica = ReplicaContext::current();
  const auto write = [&](std::size_t copy, const Tensor& new_value) {
    const auto change = [&] {
      variable.write(copy, combine([&] { return variable.read_home(copy); }, new_value));
    };
    if (variable.of_graph()) {
      const OnDeviceOf on(variable.storage().value(copy));
      change();
    } else {
      const OnDevice on(variable.storage().home(copy));
      change();
    }
  };
  if (replica && replica->part() >= 0 && replica->gathers_write(variable)) {
    write(variable.local_index(), value);
  } else if (!variable.distributed()) {
    write(0, value);
    if (replica) end_write(*replica, variable);
  } else if (replica) {
    static_cast<void>(variable.local_index());  // may throw, so it runs before the reduction
    if (on_read(variable) && replica->is_padding()) return;
    const Tensor agreed = on_read(variable) ? value : aggregate_write(variable, value, *replica);
    const auto write_agreed = [&] {
      const std::size_t copy = variable.local_index();
      if (variable.storage().applies(copy)) write(copy, agreed);
    };
    write_agreed();
    if (on_read(variable)) return;
    replica->run_for_idle_replicas(write_agreed);
    end_write(*replica, variable);
  } else {
    for (std::size_t copy = 0; copy < variable.storage().num_places(); ++copy) write(copy, value);
  }
}

constexpr auto replace_by = [](const auto&, const Tensor& replacement) { return replacement; };

}  // namespace

Variable::Variable(const Tensor& initial_value, VariableOptions options)
    : impl_(create(options.dtype ? cast(initial_value, *options.dtype) : initial_value, options)) {}

const std::string& Variable::name() const { return impl().options().name; }
const Shape& Variable::shape() const { return impl().spec().shape; }
DType Variable::dtype() const { return impl().spec().dtype; }
const std::string& Variable::device() const {
  const VariableImpl& variable = impl();
  VariableStorage& storage = variable.storage();
  return variable.of_graph() ? symbol_of(storage.value(0)).node->requested_text
                             : storage.home(variable.local_index()).full_name();
}
bool Variable::trainable() const { return impl().trainable(); }
VariableSynchronization Variable::synchronization() const {
  return impl().options().synchronization;
}
VariableAggregation Variable::aggregation() const { return impl().options().aggregation; }

Variable::Variable(const Literal& initial_value, VariableOptions options)
    : Variable(constant(initial_value, {.dtype = options.dtype}), options) {}

Tensor Variable::value() const {
  VariableImpl& variable = impl();
  if (context.copies) [[unlikely]]
    if (const Tensor* copy = context.copies->find(variable)) return *copy;
  if (variable.distributed() && on_read(variable) && !ReplicaContext::current())
    return aggregate_copies(variable);
  Tensor result = variable.read(variable.local_index());
  if (context.weight_dtype && variable.of_layer() && is_floating(result.dtype())) [[unlikely]]
    return cast(result, *context.weight_dtype);
  return result;
}

void Variable::assign(const Tensor& value) {
  VariableImpl& variable = impl();
  if (variable.distributed() && on_read(variable) && !ReplicaContext::current() &&
      aggregation() == VariableAggregation::kSum) {
    // Each copy gets an equal part, so that a sum restored from a checkpoint is the same sum.
    assign_with(variable, divide(value, static_cast<double>(variable.num_copies())), "assign",
                replace_by);
    return;
  }
  assign_with(variable, value, "assign", replace_by);
}

namespace {

void refuse_cross_replica_sum(const Variable& variable, const char* what) {
  VariableImpl& impl = variable.impl();
  if (impl.distributed() && on_read(impl) && !ReplicaContext::current() &&
      variable.aggregation() == VariableAggregation::kSum)
    fail<InvalidArgumentError>(
        "SyncOnReadVariable does not support `{}` in cross-replica context when aggregation is set "
        "to "
        "`VariableAggregation::kSum`. (variable {})",
        what, quoted_name(variable));
}

}  // namespace

void Variable::assign_add(const Tensor& delta) {
  refuse_cross_replica_sum(*this, "assign_add");
  assign_with(impl(), delta, "assign_add",
              [](const auto& current, const Tensor& change) { return add(current(), change); });
}

void Variable::assign_sub(const Tensor& delta) {
  refuse_cross_replica_sum(*this, "assign_sub");
  assign_with(impl(), delta, "assign_sub", [](const auto& current, const Tensor& change) {
    return subtract(current(), change);
  });
}

const Variable& Variable::requires_grad_(bool required) const {
  if (required && !impl().options().trainable)
    fail<InvalidArgumentError>(
        "[requires_grad_] expected a variable that was made trainable, got {}",
        quoted_name(impl()));
  impl().set_frozen(!required);
  return *this;
}

namespace {

// A number as a scalar of the variable's dtype.
Tensor number_for(const Variable& variable, double number) {
  return full(Shape::scalar(), number, {.dtype = variable.dtype()});
}

}  // namespace

void Variable::assign(std::initializer_list<Literal> values) {
  assign(constant(values, {.dtype = dtype()}));
}
void Variable::assign_add(std::initializer_list<Literal> deltas) {
  assign_add(constant(deltas, {.dtype = dtype()}));
}
void Variable::assign_sub(std::initializer_list<Literal> deltas) {
  assign_sub(constant(deltas, {.dtype = dtype()}));
}
void Variable::assign(double value) { assign(number_for(*this, value)); }
void Variable::assign_add(double delta) { assign_add(number_for(*this, delta)); }
void Variable::assign_sub(double delta) { assign_sub(number_for(*this, delta)); }

Tensor Variable::grad() const {
  const auto& leaf = impl().leaf();
  if (!leaf) return {};
  // A gradient in a buffer stays there: the buffer's tensor is the gradient.
  return has_gradient_buffer(*leaf) ? leaf->grad() : leaf->own_grad();
}

void Variable::set_grad(const Tensor& gradient) {
  const auto& leaf = impl().leaf();
  if (!leaf)
    fail<InvalidArgumentError>("[set_grad] variable {} is not trainable", quoted_name(*this));
  if (!may_agree(gradient.shape(), shape()) || gradient.dtype() != dtype())
    fail<InvalidArgumentError>(
        "[set_grad] variable {} has shape {} and dtype {}, got shape {} and dtype {}",
        quoted_name(*this), shape().to_string(), name_of(dtype()), gradient.shape().to_string(),
        name_of(gradient.dtype()));
  leaf->set_grad(gradient);
}

void Variable::zero_grad() {
  if (const auto& leaf = impl().leaf()) leaf->set_grad({});
}

std::ostream& operator<<(std::ostream& out, const Variable& variable) {
  return out << "Variable '" << variable.name() << "' shape=" << variable.shape()
             << " dtype=" << variable.dtype() << '\n'
             << variable.value();
}

}  // namespace tandem
