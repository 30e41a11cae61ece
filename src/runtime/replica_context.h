// What code inside a strategy's replica knows of the others. Optimizers, variables, metrics and
// random draws ask it; the strategies (distribute/) implement it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

class ReplicaContext {
 public:
  virtual ~ReplicaContext() = default;

  int replica_id() const { return replica_id_; }
  int num_replicas() const { return num_replicas_; }
  // Where this replica's examples start in the step's global batch, and how many there are over all
  // replicas; -1 where the step has no batch. Draws for an example are keyed by its global position,
  // so that they do not depend on how many replicas there are.
  std::int64_t example_offset() const { return example_offset_; }
  std::int64_t global_examples() const { return global_examples_; }

  // Sums each tensor over the replicas, in a fixed order; every replica gets the sums, on its own
  // device. Every replica must call it, with tensors of the same shapes in the same order.
  virtual std::vector<Tensor> all_reduce_sum(std::span<const Tensor> tensors) = 0;
  // Replica 0's tensor, on this replica's device.
  virtual Tensor broadcast(const Tensor& tensor) = 0;

  // The calling thread's; null outside replicas.
  static ReplicaContext* current();

 protected:
  int replica_id_ = 0;
  int num_replicas_ = 1;
  std::int64_t example_offset_ = -1;
  std::int64_t global_examples_ = -1;
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
