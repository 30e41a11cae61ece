// The context of code that runs in a replica of a strategy. Optimizers, variables, metrics and
// random operations use it; the strategies (distribute/) implement it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "op/context.h"
#include "runtime/strategy_mark.h"
#include "tandem/reduce_op.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

class GradientSync;  // sync/gradient_sync.h

class ReplicaContext {
 public:
  virtual ~ReplicaContext() = default;

  // The strategy that this is a replica of.
  const StrategyMark* strategy() const { return strategy_.get(); }
  const std::shared_ptr<const StrategyMark>& shared_strategy() const { return strategy_; }
  int replica_id() const { return replica_id_; }
  int num_replicas() const { return num_replicas_; }
  // The same among the replicas of this process. Variables have one copy per local replica.
  int local_replica_id() const { return local_replica_id_; }
  int num_local_replicas() const { return num_local_replicas_; }
  // Whether this is a padding replica: it has no examples, runs the step on examples of another
  // replica, and contributes zeros to collectives. Its local state (on-read variables, metrics)
  // does not change.
  bool is_padding() const { return is_padding_; }
  // The number of replicas whose tensors all_reduce() adds up: those with examples.
  int num_contributors() const { return num_contributors_ < 0 ? num_replicas_ : num_contributors_; }
  // The first of this replica's examples in the step's global batch, their number, and the number
  // in the global batch; -1 if the step has no batch. Random numbers of an example depend on its
  // global position, not on the number of replicas.
  std::int64_t example_offset() const { return example_offset_; }
  std::int64_t local_examples() const { return local_examples_; }
  std::int64_t global_examples() const { return global_examples_; }

  // The part of the global batch that is being computed (sync/parts.h); -1 if it is all of the
  // replica's examples.
  int part() const { return part_; }
  // Whether gradients are averaged over the replicas after the backward pass. If so, a loss is the
  // mean over this replica's examples.
  bool averages_gradients() const { return averages_gradients_; }

  // Reduces each tensor over the replicas, in a fixed order. Every replica gets the results on its
  // own device. Every replica must call it, with tensors of the same shapes in the same order.
  virtual std::vector<Tensor> all_reduce(std::span<const Tensor> tensors, ReduceOp op) = 0;
  // Starts a reduction of the gradients of `variables`, which are passed one by one during the
  // backward pass. Only one may be active. Every replica must start it with the same variables.
  virtual std::unique_ptr<GradientSync> start_sync(const std::vector<Variable>& variables,
                                                   ReduceOp op) = 0;
  // A read of a variable that is remote(), which the replica may keep until a write or the end of
  // its step. Undefined if it keeps nothing.
  virtual Tensor read_remote(VariableImpl& variable) {
    static_cast<void>(variable);
    return {};
  }
  // Called by every replica after an update of or an assignment to `variables` that one replica
  // did for all that share a copy. Later reads get the new elements.
  virtual void end_write(std::span<const Variable> variables) { static_cast<void>(variables); }
  // Called before the variable's copy is assigned to. Returns true if the assignment is local to
  // this part and is combined with those of the other parts at the end. REQUIRES: part() >= 0.
  virtual bool gathers_write(VariableImpl& variable) {
    static_cast<void>(variable);
    return false;
  }
  // Runs `update` once per inactive replica, with that replica's context current. One active
  // replica does so; the others return at once. For writes that every copy of a variable must see.
  virtual void run_for_idle_replicas(const std::function<void()>& update) = 0;
  // Runs `make`, which makes the variables of the layer `what` at its first call. A strategy's
  // replica runs it in the strategy's scope while the others wait, once for all of this process;
  // the random numbers of each continue after those of `make`.
  virtual void build(const void* what, const std::function<void()>& make) {
    static_cast<void>(what);
    make();
  }
  // Called where `what` is found built, perhaps by another replica in this step.
  virtual void find_built(const void* what) { static_cast<void>(what); }
  // Returns the tensor of the first replica with examples, on this replica's device.
  virtual Tensor broadcast(const Tensor& tensor) = 0;

  // Appends the state that a traced program depends on: the replica, its examples, and which other
  // replicas have examples.
  virtual void add_to_key(std::string& key) const = 0;

  // The context of the calling thread; null outside replicas.
  static ReplicaContext* current() { return context.replica; }

 protected:
  std::shared_ptr<const StrategyMark> strategy_;
  int replica_id_ = 0;
  int num_replicas_ = 1;
  int local_replica_id_ = 0;
  int num_local_replicas_ = 1;
  int num_contributors_ = -1;  // -1: all
  bool is_padding_ = false;
  std::int64_t example_offset_ = -1;
  std::int64_t local_examples_ = -1;
  std::int64_t global_examples_ = -1;
  int part_ = -1;
  bool averages_gradients_ = false;
};

}  // namespace tandem
