// Process groups: the processes of a job that exchange tensors. After PyTorch's torch.distributed.
//
//   td::comm::init_process_group({.backend = "gloo"});        // RANK, WORLD_SIZE, MASTER_ADDR, ...
//   td::Tensor sum = td::comm::all_reduce(x);                 // x stays as it is
//   td::comm::Work work = td::comm::all_reduce_async(y);      // ... what comes meanwhile ...
//   td::Tensor other = work.result();
//   td::comm::destroy_process_group();
//
// Every rank of a group calls the same collectives in the same order, with tensors of the same
// dtypes and sizes. Where the ranks part, every one of them gets an InvalidArgumentError that tells
// who called what. A rank that does not come is named by a DeadlineExceededError at the group's
// time limit; one that dies or gives up, by an UnavailableError or AbortedError within seconds. The
// first error ends the group: from then on every call throws it.
//
// Tensors may be on any device and are not changed; results are on the device of the argument that
// they belong to, and unknown to gradients. A temporary that is moved in is worked on in place.
// Ranks are those of the job ("global"), also where a group is given. Inside td::function
// collectives become part of the trace. What comes by all_to_all from a rank has the shape of what
// goes to it then (InvalidArgumentError of the run otherwise); texts and monitored_barrier are
// UnimplementedErrors there.
//
// Thread safety: one thread at a time for each group.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/reduce_op.h"
#include "tandem/tensor.h"

namespace tandem::comm {

class ProcessGroupImpl;
struct PendingWork;

// --- groups ---

// A shared handle. A default-constructed one stands for the group of all ranks.
class ProcessGroup {
 public:
  ProcessGroup() = default;
  // This process's rank among the group's; -1 when it is none of them.
  int rank() const;
  int size() const;
  // The ranks of the job that it has, in its order.
  std::vector<int> ranks() const;
  std::string backend() const;

  explicit ProcessGroup(std::shared_ptr<ProcessGroupImpl> impl) : impl_(std::move(impl)) {}
  const std::shared_ptr<ProcessGroupImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<ProcessGroupImpl> impl_;
};

struct InitOptions {
  // "shm" (one host), "gloo", "mpi" (under mpirun), "hierarchical" (shm inside hosts, gloo or mpi
  // between them), "nccl"; "auto": the fastest that serves all ranks.
  std::string backend = "auto";
  // env:// takes what launchers tell: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and their like;
  // tcp://HOST:PORT and file:///PATH take rank and world_size from here or as ?rank=&world_size=.
  std::string init_method = "env://";
  std::optional<int> rank{}, world_size{};
  // Of the rendezvous, and of every wait for other ranks.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// A rank of which nothing is heard for so long counts as dead, and the job fails. Not given: the
  /// environment variable TANDEM_SILENCE_LIMIT, in seconds, else 30 s. A rank whose process ends is
  /// noticed at once; this is for cut cables and stopped processes, and has to be longer than a
  /// pause that the job is to survive (a debugger, a live migration, a crowded host).
  std::optional<std::chrono::milliseconds> silence_limit{};
};

// Makes this process a rank of a job; returns when all ranks are there. Initialises no devices: the
// group works on the device where a new tensor would be at its first collective. Throws
// InvalidArgumentError for a backend, URL, rank or size that makes no sense; AlreadyExistsError
// when another job has the port; DeadlineExceededError naming the ranks that did not come;
// FailedPreconditionError when the process is in a job already.
void init_process_group(const InitOptions& options = {});
bool is_initialized();
// Ends this rank's part in good order: of all groups, or of the one given. A process that ends
// without this counts as dead for the others.
void destroy_process_group(const ProcessGroup& group = {});

// -1 when this process is none of the group's ranks. Like all that follows, these throw
// FailedPreconditionError "... Default process group has not been initialized, please make sure to
// call init_process_group." before that.
int get_rank(const ProcessGroup& group = {});
int get_world_size(const ProcessGroup& group = {});
std::string get_backend(const ProcessGroup& group = {});

// A group of some of the ranks, all of them where none is named. EVERY rank of the job calls this,
// with the same list in the same order, also those that it leaves out; to them, calling the
// group's collectives is an InvalidArgumentError.
ProcessGroup new_group(const std::vector<int>& ranks = {});

// --- collectives under way ---

// A shared handle. Nobody has to wait: what is started comes to its end.
class Work {
 public:
  // Returns when what is done with the results from now on sees them. Throws what went wrong.
  void wait();
  // Whether wait() would return at once; throws as it does.
  bool is_completed();
  // Wait; what the collective of that name returns.
  Tensor result();
  std::vector<Tensor> results();

  Work(std::shared_ptr<ProcessGroupImpl> group, std::shared_ptr<PendingWork> pending)
      : group_(std::move(group)), pending_(std::move(pending)) {}

 private:
  std::shared_ptr<ProcessGroupImpl> group_;  // whose memory the collective may work on
  std::shared_ptr<PendingWork> pending_;
};

// --- collectives ---

struct CollectiveOptions {
  ProcessGroup group{};
};
struct ReduceOptions {
  ReduceOp op = ReduceOp::kSum;  // kMean divides the sum by the number of ranks
  ProcessGroup group{};
};

// The ranks' tensors combined, in an order that does not depend on timing: the same bits every run
// and on every rank. float16 and bfloat16 are combined in float32, integers in int64, whose sums
// wrap around; a mean of integers is rounded towards zero. (Groups over several hosts, and nccl,
// sum integers in their own type.) kMin and kMax with a NaN on any rank give NaN, as torch.minimum
// and tf.minimum do; over nccl they give what NCCL makes of it. InvalidArgumentError for bool.
Work all_reduce_async(Tensor tensor, const ReduceOptions& options = {});
inline Tensor all_reduce(Tensor tensor, const ReduceOptions& options = {}) {
  return all_reduce_async(std::move(tensor), options).result();
}

// The same on rank `destination`; the other ranks get their own tensor back.
Work reduce_async(Tensor tensor, int destination, const ReduceOptions& options = {});
inline Tensor reduce(Tensor tensor, int destination, const ReduceOptions& options = {}) {
  return reduce_async(std::move(tensor), destination, options).result();
}

// Rank `source`'s tensor. The others' tell shape and dtype alone.
Work broadcast_async(Tensor tensor, int source, const CollectiveOptions& options = {});
inline Tensor broadcast(Tensor tensor, int source, const CollectiveOptions& options = {}) {
  return broadcast_async(std::move(tensor), source, options).result();
}

// All ranks' tensors, in the order of the group.
Work all_gather_async(const Tensor& tensor, const CollectiveOptions& options = {});
inline std::vector<Tensor> all_gather(const Tensor& tensor, const CollectiveOptions& options = {}) {
  return all_gather_async(tensor, options).results();
}

// The same joined along the first axis; scalars become a vector.
Work all_gather_into_tensor_async(const Tensor& tensor, const CollectiveOptions& options = {});
inline Tensor all_gather_into_tensor(const Tensor& tensor, const CollectiveOptions& options = {}) {
  return all_gather_into_tensor_async(tensor, options).result();
}

// Every rank gives a tensor for each rank; this rank gets those for it combined. The tensors have
// one dtype; their shapes may differ from each other, but not between the ranks.
Work reduce_scatter_async(const std::vector<Tensor>& tensors, const ReduceOptions& options = {});
inline Tensor reduce_scatter(const std::vector<Tensor>& tensors,
                             const ReduceOptions& options = {}) {
  return reduce_scatter_async(tensors, options).result();
}

// The same of one tensor, cut along the first axis in equal parts (InvalidArgumentError otherwise).
Work reduce_scatter_tensor_async(const Tensor& tensor, const ReduceOptions& options = {});
inline Tensor reduce_scatter_tensor(const Tensor& tensor, const ReduceOptions& options = {}) {
  return reduce_scatter_tensor_async(tensor, options).result();
}

// Every rank gives a tensor for each rank, of any shapes and one dtype, and gets one from each, in
// the order of the group. Waits for the others to learn the shapes.
Work all_to_all_async(const std::vector<Tensor>& tensors, const CollectiveOptions& options = {});
inline std::vector<Tensor> all_to_all(const std::vector<Tensor>& tensors,
                                      const CollectiveOptions& options = {}) {
  return all_to_all_async(tensors, options).results();
}

// From one rank to another, beside the collectives; what is sent arrives in that order. The shape
// and dtype that the receiver names are those that were sent (InvalidArgumentError otherwise).
Work send_async(const Tensor& tensor, int destination, const CollectiveOptions& options = {});
inline void send(const Tensor& tensor, int destination, const CollectiveOptions& options = {}) {
  send_async(tensor, destination, options).wait();
}
struct ReceiveOptions {
  DType dtype = float32;
  ProcessGroup group{};
};
Work recv_async(const Shape& shape, int source, const ReceiveOptions& options = {});
inline Tensor recv(const Shape& shape, int source, const ReceiveOptions& options = {}) {
  return recv_async(shape, source, options).result();
}

// Returns once every rank has called it.
Work barrier_async(const CollectiveOptions& options = {});
inline void barrier(const CollectiveOptions& options = {}) { barrier_async(options).wait(); }

struct MonitoredBarrierOptions {
  ProcessGroup group{};
  std::optional<std::chrono::milliseconds> timeout{};  // not given: the group's
};
// The same with a time limit of its own, which leaves the group as it is: DeadlineExceededError
// "[monitored_barrier] ranks 1 and 2 failed to pass monitored_barrier in 500 ms" on every rank that
// came.
void monitored_barrier(const MonitoredBarrierOptions& options = {});

// --- texts and other bytes ---

// Every rank's, in the order of the group.
std::vector<std::string> all_gather_object(const std::string& object,
                                           const CollectiveOptions& options = {});
// Rank `source`'s; what the others give is not looked at.
std::string broadcast_object(const std::string& object, int source,
                             const CollectiveOptions& options = {});

}  // namespace tandem::comm
