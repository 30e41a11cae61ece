// Processes that train in step, each with some of a strategy's replicas.
#pragma once

#include <string>
#include <vector>

#include "tandem/reduce_op.h"
#include "tandem/tensor.h"

namespace tandem {

// One process's view, for what they do together between steps. Every worker calls the same
// functions in the same order; each throws as the collectives of a Communicator do. Of one thread.
class WorkerCollectives {
 public:
  virtual ~WorkerCollectives() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Writes what there is to be one of. Worker 0.
  bool is_chief() const { return rank() == 0; }
  // The replicas of all workers, and the number of this one's first.
  virtual int num_replicas() const = 0;
  virtual int first_replica() const = 0;

  // The workers' tensors, of one shape and dtype, combined; on the tensor's device. `what` goes in
  // messages. While a graph is built: a node of it.
  virtual Tensor all_reduce(const Tensor& mine, ReduceOp op, const std::string& what) = 0;
  // The chief's tensor; the others give one of its shape and dtype.
  virtual Tensor broadcast(const Tensor& mine, const std::string& what) = 0;
  // The workers' tensors joined along `axis`, on the host; the other sizes are the same. While a
  // graph is built, which all workers do together: a node of it.
  virtual Tensor gather(const Tensor& mine, std::int64_t axis, const std::string& what) = 0;
  // Each worker's bytes, in order.
  virtual std::vector<std::string> gather_bytes(const std::string& mine,
                                                const std::string& what) = 0;
  // The chief's bytes.
  virtual std::string broadcast_bytes(const std::string& mine, const std::string& what) = 0;
};

}  // namespace tandem
