// What code inside a strategy's replica knows of the others. Optimizers, variables, metrics and
// random draws ask it; the strategies (distribute/) implement it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

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
  // The same among the replicas of this process: variables have a copy for each of these.
  int local_replica_id() const { return local_replica_id_; }
  int num_local_replicas() const { return num_local_replicas_; }
  // Whether this replica has no examples and runs the step on one of the others', so that it takes
  // its part in their collectives: it adds zeros. What it would keep to itself (on-read variables,
  // metrics) stays as it is.
  bool stands_by() const { return stands_by_; }
  // Where this replica's examples start in the step's global batch, how many they are, and how many
  // there are over all replicas; -1 where the step has no batch. Draws for an example are keyed by
  // its global position, so that they do not depend on how many replicas there are.
  std::int64_t example_offset() const { return example_offset_; }
  std::int64_t local_examples() const { return local_examples_; }
  std::int64_t global_examples() const { return global_examples_; }

  // The part of the global batch that is computed here; -1: all of the replica's examples
  // (sync/parts.h).
  int part() const { return part_; }
  // Whether gradients are averaged over the replicas behind the backward pass, so that a loss is
  // the mean over the examples here.
  bool averages_gradients() const { return averages_gradients_; }

  // Combines each tensor over the replicas, in a fixed order; every replica gets the results, on
  // its own device. Every replica must call it, with tensors of the same shapes in the same order.
  virtual std::vector<Tensor> all_reduce(std::span<const Tensor> tensors, ReduceOp op) = 0;
  // The same for the gradients of `variables`, given one by one while the backward pass runs. One
  // at a time; every replica must start it with the same variables.
  virtual std::unique_ptr<GradientSync> start_sync(const std::vector<Variable>& variables,
                                                   ReduceOp op) = 0;
  // The variable's copy is about to be assigned to. True: it is assigned to as it is, and brought
  // together with what the other parts write when all are computed. REQUIRES: part() >= 0.
  virtual bool gathers_write(VariableImpl& variable) {
    static_cast<void>(variable);
    return false;
  }
  // Runs `update` once on behalf of each replica that has no examples in this step, with that
  // replica's context current, on the thread of one of the others; its fellows return at once. For
  // writes that every copy of a variable must see.
  virtual void run_for_idle_replicas(const std::function<void()>& update) = 0;
  // The tensor of the first replica with examples, on this replica's device.
  virtual Tensor broadcast(const Tensor& tensor) = 0;

  // Appends what makes a program that is traced here another one: the replica, its examples, and
  // which of its fellows have some.
  virtual void add_to_key(std::string& key) const = 0;

  // The calling thread's; null outside replicas.
  static ReplicaContext* current();

 protected:
  std::shared_ptr<const StrategyMark> strategy_;
  int replica_id_ = 0;
  int num_replicas_ = 1;
  int local_replica_id_ = 0;
  int num_local_replicas_ = 1;
  bool stands_by_ = false;
  std::int64_t example_offset_ = -1;
  std::int64_t local_examples_ = -1;
  std::int64_t global_examples_ = -1;
  int part_ = -1;
  bool averages_gradients_ = false;
};

// Makes `context` the calling thread's while it lives.
class ReplicaContextScope {
 public:
  explicit ReplicaContextScope(ReplicaContext* context);
  ~ReplicaContextScope();
  ReplicaContextScope(const ReplicaContextScope&) = delete;
  ReplicaContextScope& operator=(const ReplicaContextScope&) = delete;

 private:
  ReplicaContext* previous_;
};

}  // namespace tandem
