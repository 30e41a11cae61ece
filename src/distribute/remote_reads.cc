// How replicas read variables whose elements they share or have on another device: each replica
// copies them to its device once between two writes.
#include "core/status.h"
#include "distribute/replica.h"
#include "graph/graph.h"
#include "runtime/placement.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tensor/tensor_buffers.h"

namespace tandem::distribute {
namespace {

bool at_home(const VariableImpl& variable, int reader) {
  const auto index = static_cast<std::size_t>(reader);
  const VariableStorage& storage = variable.storage();
  return &storage.home(index) == &storage.device(index);
}

GraphImpl& outermost(GraphImpl& graph) {
  GraphImpl* found = &graph;
  while (found->outer()) found = found->outer();
  return *found;
}

}  // namespace

Tensor Replica::read_remote(VariableImpl& variable) {
  if (!context.graph) return run_ ? Tensor() : read_at_once(variable);
  if (written().contains(&variable)) return read_written(variable);
  return run_ ? read_in_run(variable) : read_in_function(variable);
}

Tensor Replica::read_at_once(VariableImpl& variable) {
  const auto reader = static_cast<std::size_t>(local_replica_id_);
  if (at_home(variable, local_replica_id_)) return variable.storage().read(reader);
  Tensor& kept = reads_[&variable];
  if (!kept.defined()) kept = variable.storage().read(reader);
  return kept;
}

Tensor Replica::read_in_run(VariableImpl& variable) {
  const auto reader = static_cast<std::size_t>(local_replica_id_);
  const bool here = at_home(variable, local_replica_id_);
  if (context.graph == run_->graph) {
    if (here) return variable.read_home(reader);
  } else {
    // It is read before the control flow, whose body may run several times.
    read_in_bodies_.insert(&variable);
  }
  Tensor& kept = reads_[&variable];
  if (kept.defined()) return kept;
  const Scoped outside(context.graph, run_->graph);
  if (here) return kept = variable.read_home(reader);
  Tensor& elements = run_->elements[&variable];
  if (!elements.defined()) elements = variable.read_home(reader);
  const NoGradScope no_grad;
  const OnDevice on(device_);
  kept = variable.as_read(identity(elements), reader);
  return kept;
}

// The program must not read a shared copy itself, because that of another replica may write it.
Tensor Replica::read_in_function(VariableImpl& variable) {
  const auto reader = static_cast<std::size_t>(local_replica_id_);
  return variable.read_at_start(reader, [this, &variable, reader] {
    Tensor elements = read_at_once(variable);
    const bool may_change = variable.shared() && at_home(variable, local_replica_id_);
    return may_change ? variable.as_read(exclusive_on(device_, std::move(elements)), reader)
                      : elements;
  });
}

Tensor Replica::read_written(VariableImpl& variable) {
  const auto reader = static_cast<std::size_t>(local_replica_id_);
  if (num_contributors() == 1) return variable.read_home(reader);
  const Replica& writer = this->writer();
  const NoGradScope no_grad;
  const OnDevice on(device_);
  const Tensor elements = &writer == this
                              ? variable.read_home(reader)
                              : zeros(variable.spec().shape, {.dtype = variable.spec().dtype});
  const int root = run_ ? run_->ranks.of_replica[static_cast<std::size_t>(writer.local_replica_id_)]
                        : writer.replica_id();
  return variable.as_read(traced_.broadcast(elements, root), reader);
}

std::unordered_set<const VariableImpl*>& Replica::written() {
  // A replica outlives the traces of functions that it calls.
  if (outermost(*context.graph).next_of(&written_) == 0) written_.clear();
  return written_;
}

void Replica::note_write(std::span<const Variable> variables) {
  for (const Variable& variable : variables) {
    const VariableImpl& impl = variable.impl();
    if (!impl.remote()) continue;
    if (run_ && context.graph != run_->graph && &writer() != this &&
        read_in_bodies_.contains(&impl))
      fail<UnimplementedError>(
          "[Variable] {} is read and then updated in the body of a loop or a branch that replicas "
          "of {} run, expected one of the two outside: the replicas share one copy, so each would "
          "have to wait for the update. Run the step without td::function (fit: run_eagerly), or "
          "put run() into the loop",
          quoted_name(impl), strategy()->description);
    written().insert(&impl);
  }
}

void Replica::end_write(std::span<const Variable> variables) {
  bool remote = false, shared = false;
  for (const Variable& variable : variables) {
    remote = remote || variable.impl().remote();
    shared = shared || variable.impl().shared();
  }
  if (!remote) return;
  reads_.clear();
  if (run_ && this == &writer()) run_->elements.clear();
  shared = shared && num_contributors() > 1;
  if (!context.graph) {
    if (shared) communicator_->barrier()->wait();
    return;
  }
  // In a traced run(), a replica that is alone reads again what it has written.
  if (shared || !run_) note_write(variables);
  if (run_) return;
  context.graph->after_run([this, shared] {
    reads_.clear();
    if (shared) communicator_->barrier()->wait();
  });
}

}  // namespace tandem::distribute
