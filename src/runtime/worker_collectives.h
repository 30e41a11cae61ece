// Processes that train synchronously, each with some replicas of a strategy.
#pragma once

#include <string>
#include <vector>

#include "tandem/reduce_op.h"
#include "tandem/tensor.h"

namespace tandem {

// One process's interface for collectives between steps. Every worker must call the same functions
// in the same order. They throw like the collectives of a Communicator. Not thread-safe.
class WorkerCollectives {
 public:
  virtual ~WorkerCollectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Whether this is worker 0, which writes checkpoints and logs.
  bool is_chief() const { return rank() == 0; }
  // The number of replicas of all workers, and the id of this worker's first replica.
  virtual int num_replicas() const = 0;
  virtual int first_replica() const = 0;

  // Reduces the workers' tensors, which have one shape and dtype; the result is on the tensor's
  // device. `what`: for messages. If the thread builds a graph, adds a node to it.
  virtual Tensor all_reduce(const Tensor& mine, ReduceOp op, const std::string& what) = 0;
  // Returns the chief's tensor. The others pass a tensor of the same shape and dtype.
  virtual Tensor broadcast(const Tensor& mine, const std::string& what) = 0;
  // Concatenates the workers' tensors along `axis`, on the host. Their other sizes are equal. If
  // the thread builds a graph, as all workers then do, adds a node to it.
  virtual Tensor gather(const Tensor& mine, std::int64_t axis, const std::string& what) = 0;
  // The bytes of each worker, in the order of ranks.
  virtual std::vector<std::string> gather_bytes(const std::string& mine,
                                                const std::string& what) = 0;
  // The chief's bytes.
  virtual std::string broadcast_bytes(const std::string& mine, const std::string& what) = 0;
};

}  // namespace tandem
