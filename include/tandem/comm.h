/// @file
/// Process groups and collectives: exchanging tensors between the processes of a job. As
/// torch.distributed.
/// @code
/// td::comm::init_process_group({.backend = "gloo"});     // RANK, WORLD_SIZE, MASTER_ADDR, ...
/// td::Tensor sum = td::comm::all_reduce(x);              // x is unchanged
/// td::comm::Work work = td::comm::all_reduce_async(y);   // overlap with other work
/// td::Tensor other = work.result();
/// td::comm::destroy_process_group();
/// @endcode
///
/// Every rank of a group calls the same collectives in the same order, with tensors of the same
/// dtypes and sizes. On a mismatch every rank gets an InvalidArgumentError that lists the calls of
/// the ranks. If a rank does not arrive within the group's timeout, the others get a
/// DeadlineExceededError that names it. If a rank dies or aborts, the others get an
/// UnavailableError or AbortedError within seconds. The first error ends the group: every later
/// call throws it again.
///
/// Tensors may be on any device and are not changed; a temporary that is moved in may be reduced in
/// place. A result is on the device of the corresponding argument. Collectives are not
/// differentiable. Ranks in arguments are global ranks (of the job), also if a group is given.
///
/// Inside td::function collectives become part of the trace. There, the tensor that all_to_all
/// receives from a rank has the shape of the tensor sent to it (the run throws InvalidArgumentError
/// otherwise); object collectives and monitored_barrier throw UnimplementedError.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/reduce_op.h"
#include "tandem/tensor.h"

/// Process groups and collectives.
namespace tandem::comm {

class ProcessGroupImpl;
struct PendingWork;

// --- groups ---

/// A shared handle to a process group. A default-constructed one is the group of all ranks. As
/// torch.distributed.ProcessGroup.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  /// This process's rank in the group; -1 if it is not a member.
  int rank() const;
  /// Number of ranks in the group.
  int size() const;
  /// Global ranks of the members, in the group's order.
  std::vector<int> ranks() const;
  /// Name of the backend in use ("shm", "gloo", ...).
  std::string backend() const;

  /// For Tandem's own code.
  explicit ProcessGroup(std::shared_ptr<ProcessGroupImpl> impl) : impl_(std::move(impl)) {}
  /// For Tandem's own code.
  const std::shared_ptr<ProcessGroupImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<ProcessGroupImpl> impl_;
};

/// Options of init_process_group().
struct InitOptions {
  /// "shm" (one host), "gloo", "mpi" (under mpirun), "hierarchical" (shm within hosts, gloo or mpi
  /// between them) or "nccl". "auto": the fastest backend that supports all ranks.
  std::string backend = "auto";
  /// env:// reads the variables that launchers set (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
  /// their equivalents). `tcp://HOST:PORT` and `file:///PATH` take rank and world_size from these
  /// options or from the URL (`?rank=&world_size=`).
  std::string init_method = "env://";
  /// @{
  /// Global rank of this process and number of ranks; default: from init_method.
  std::optional<int> rank{}, world_size{};
  /// @}
  /// Timeout of the rendezvous and of every wait for other ranks.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// A rank that has sent nothing for this long counts as dead, and the job fails. Default: the
  /// environment variable TANDEM_SILENCE_LIMIT in seconds, else 30 s. A rank whose process exits is
  /// detected at once; the limit is for broken networks and stopped processes. Choose it longer
  /// than any pause that the job should survive (a debugger, a live migration, an overloaded host).
  std::optional<std::chrono::milliseconds> silence_limit{};
};

/// Joins this process to a job and returns when all ranks have joined. Does not initialize devices:
/// the group uses the device that is current at its first collective. As
/// torch.distributed.init_process_group.
///
/// Throws InvalidArgumentError for an invalid backend, URL, rank or size; AlreadyExistsError if
/// another job uses the port; DeadlineExceededError that names the ranks that did not join;
/// FailedPreconditionError if the process has joined a job already.
void init_process_group(const InitOptions& options = {});
/// Whether init_process_group() has succeeded.
bool is_initialized();
/// Shuts down the given group, or all groups, in good order. To the other ranks, a process that
/// exits without this call has died.
void destroy_process_group(const ProcessGroup& group = {});

/// Rank of this process in the group; -1 if it is not a member. Before initialization this and all
/// functions below throw FailedPreconditionError "... Default process group has not been
/// initialized, please make sure to call init_process_group."
int get_rank(const ProcessGroup& group = {});
/// Number of ranks in the group.
int get_world_size(const ProcessGroup& group = {});
/// Name of the group's backend.
std::string get_backend(const ProcessGroup& group = {});

/// Creates a group of the given global ranks, or of all ranks. EVERY rank of the job must call this
/// with the same list in the same order, also ranks outside the group. For them, calling the
/// group's collectives throws InvalidArgumentError. As torch.distributed.new_group.
ProcessGroup new_group(const std::vector<int>& ranks = {});

// --- collectives under way ---

/// A shared handle to a collective that was launched. Waiting is optional: it completes without it.
/// As torch.distributed.Work.
class Work {
 public:
  /// Makes the results visible to the operations that follow. Throws the collective's error.
  void wait();
  /// Whether wait() would return without blocking. Throws the collective's error.
  bool is_completed();
  /// Waits and returns the result of a collective that returns one tensor.
  Tensor result();
  /// Waits and returns the results of a collective that returns a vector of tensors.
  std::vector<Tensor> results();

  /// For Tandem's own code.
  Work(std::shared_ptr<ProcessGroupImpl> group, std::shared_ptr<PendingWork> pending)
      : group_(std::move(group)), pending_(std::move(pending)) {}

 private:
  std::shared_ptr<ProcessGroupImpl> group_;  // may be the collective's memory
  std::shared_ptr<PendingWork> pending_;
};

// --- collectives ---

/// Options of collectives that do not reduce.
struct CollectiveOptions {
  ProcessGroup group{};  ///< default: all ranks
};
/// Options of collectives that reduce.
struct ReduceOptions {
  ReduceOp op = ReduceOp::kSum;  ///< reduction; kMean divides the sum by the number of ranks
  ProcessGroup group{};          ///< default: all ranks
};

/// @{
/// Reduces the ranks' tensors element-wise; all ranks get the result. The order of the reduction
/// does not depend on timing: the bits are the same in every run and on every rank. As
/// torch.distributed.all_reduce, but returns the result.
///
/// float16 and bfloat16 accumulate in float32, integers in int64 with wrap-around; a mean of
/// integers rounds towards zero. (Groups over several hosts, and nccl, accumulate integers in their
/// own dtype.) kMin and kMax return NaN if any rank has NaN, as torch.minimum and tf.minimum do;
/// with nccl, NCCL decides. Throws InvalidArgumentError for bool.
Work all_reduce_async(Tensor tensor, const ReduceOptions& options = {});
[[nodiscard]] inline Tensor all_reduce(Tensor tensor, const ReduceOptions& options = {}) {
  return all_reduce_async(std::move(tensor), options).result();
}
/// @}

/// @{
/// Like all_reduce(), but only rank `destination` gets the result; other ranks get their own tensor
/// back. As torch.distributed.reduce.
Work reduce_async(Tensor tensor, int destination, const ReduceOptions& options = {});
[[nodiscard]] inline Tensor reduce(Tensor tensor, int destination,
                                   const ReduceOptions& options = {}) {
  return reduce_async(std::move(tensor), destination, options).result();
}
/// @}

/// @{
/// Returns the tensor of rank `source` on all ranks. On other ranks only the shape and dtype of
/// `tensor` matter. As torch.distributed.broadcast.
Work broadcast_async(Tensor tensor, int source, const CollectiveOptions& options = {});
[[nodiscard]] inline Tensor broadcast(Tensor tensor, int source,
                                      const CollectiveOptions& options = {}) {
  return broadcast_async(std::move(tensor), source, options).result();
}
/// @}

/// @{
/// Returns the tensors of all ranks, in the group's order. As torch.distributed.all_gather.
Work all_gather_async(const Tensor& tensor, const CollectiveOptions& options = {});
[[nodiscard]] inline std::vector<Tensor> all_gather(const Tensor& tensor,
                                                    const CollectiveOptions& options = {}) {
  return all_gather_async(tensor, options).results();
}
/// @}

/// @{
/// Like all_gather(), but concatenates the tensors along the first axis; scalars are stacked into a
/// vector. As torch.distributed.all_gather_into_tensor.
Work all_gather_into_tensor_async(const Tensor& tensor, const CollectiveOptions& options = {});
[[nodiscard]] inline Tensor all_gather_into_tensor(const Tensor& tensor,
                                                   const CollectiveOptions& options = {}) {
  return all_gather_into_tensor_async(tensor, options).result();
}
/// @}

/// @{
/// Takes one tensor per rank; rank i gets the reduction of all i-th tensors. The tensors have one
/// dtype; their shapes may differ from each other, but not between ranks. As
/// torch.distributed.reduce_scatter.
Work reduce_scatter_async(const std::vector<Tensor>& tensors, const ReduceOptions& options = {});
[[nodiscard]] inline Tensor reduce_scatter(const std::vector<Tensor>& tensors,
                                           const ReduceOptions& options = {}) {
  return reduce_scatter_async(tensors, options).result();
}
/// @}

/// @{
/// Like reduce_scatter() on one tensor, which is split along the first axis into equal parts;
/// throws InvalidArgumentError if it does not divide. As torch.distributed.reduce_scatter_tensor.
Work reduce_scatter_tensor_async(const Tensor& tensor, const ReduceOptions& options = {});
[[nodiscard]] inline Tensor reduce_scatter_tensor(const Tensor& tensor,
                                                  const ReduceOptions& options = {}) {
  return reduce_scatter_tensor_async(tensor, options).result();
}
/// @}

/// @{
/// Sends the i-th tensor to the group's i-th rank and returns one tensor from each rank, in the
/// group's order. Shapes may differ, the dtype may not. Waits for the other ranks to learn the
/// shapes. As torch.distributed.all_to_all.
Work all_to_all_async(const std::vector<Tensor>& tensors, const CollectiveOptions& options = {});
[[nodiscard]] inline std::vector<Tensor> all_to_all(const std::vector<Tensor>& tensors,
                                                    const CollectiveOptions& options = {}) {
  return all_to_all_async(tensors, options).results();
}
/// @}

/// @{
/// Sends a tensor to one rank. Messages between two ranks arrive in the order in which they were
/// sent, independently of collectives. As torch.distributed.send.
Work send_async(const Tensor& tensor, int destination, const CollectiveOptions& options = {});
inline void send(const Tensor& tensor, int destination, const CollectiveOptions& options = {}) {
  send_async(tensor, destination, options).wait();
}
/// @}
/// Options of recv().
struct ReceiveOptions {
  DType dtype = float32;  ///< dtype that is received
  ProcessGroup group{};   ///< default: all ranks
};
/// @{
/// Receives a tensor from one rank. Throws InvalidArgumentError if shape or dtype are not those
/// that were sent. As torch.distributed.recv, but returns the tensor.
Work recv_async(const Shape& shape, int source, const ReceiveOptions& options = {});
[[nodiscard]] inline Tensor recv(const Shape& shape, int source,
                                 const ReceiveOptions& options = {}) {
  return recv_async(shape, source, options).result();
}
/// @}

/// @{
/// Returns once every rank has called it. As torch.distributed.barrier.
Work barrier_async(const CollectiveOptions& options = {});
inline void barrier(const CollectiveOptions& options = {}) { barrier_async(options).wait(); }
/// @}

/// Options of monitored_barrier().
struct MonitoredBarrierOptions {
  ProcessGroup group{};                                ///< default: all ranks
  std::optional<std::chrono::milliseconds> timeout{};  ///< default: the group's timeout
};
/// A barrier with a timeout that does not end the group. On expiry, every rank that arrived throws
/// DeadlineExceededError "[monitored_barrier] ranks 1 and 2 failed to pass monitored_barrier in 500
/// ms". As torch.distributed.monitored_barrier.
void monitored_barrier(const MonitoredBarrierOptions& options = {});

// --- strings and other bytes ---

/// Returns the strings of all ranks, in the group's order. As torch.distributed.all_gather_object.
std::vector<std::string> all_gather_object(const std::string& object,
                                           const CollectiveOptions& options = {});
/// Returns the string of rank `source`; those of other ranks are ignored. As
/// torch.distributed.broadcast_object_list.
std::string broadcast_object(const std::string& object, int source,
                             const CollectiveOptions& options = {});

}  // namespace tandem::comm
