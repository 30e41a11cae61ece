// Data-parallel training after Horovod (Sergeev and Del Balso 2018): every process computes on its
// own batches, and operations on tensors are matched between the processes by NAME, so that ranks
// may submit them in different orders. docs/horovod.md tells the environment variables.
#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "tandem/autodiff.h"
#include "tandem/callbacks.h"
#include "tandem/errors.h"
#include "tandem/optimizers.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem::hvd {

// --- the processes ---

struct InitOptions {
  // Made beside the global process set, in this order. Every rank names the same.
  std::vector<std::vector<int>> process_sets{};
  // What moves the bytes: "auto", "shm", "gloo", "mpi", "nccl", "hierarchical". Empty:
  // HOROVOD_CPU_OPERATIONS, else "auto".
  std::string backend{};
  // Of every wait for another rank.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// A rank of which nothing is heard for so long counts as dead, and the job fails. Not given: the
  /// environment variable TANDEM_SILENCE_LIMIT, in seconds, else 30 s. A rank whose process ends is
  /// noticed at once; this is for cut cables and stopped processes, and has to be longer than a
  /// pause that the job is to survive (a debugger, a live migration, a crowded host).
  std::optional<std::chrono::milliseconds> silence_limit{};
};

// Finds the other processes: those of mpirun under mpirun, else those of the job (docs/
// processes.md), else none. Called a second time it does nothing. Throws as the rendezvous does.
void init(const InitOptions& options = {});
// Ends this rank's part. Operations that other ranks submit from then on, and those under way, fail
// there with AbortedError. What a process that exits does by itself.
void shutdown();
bool is_initialized();

// All that follows throws FailedPreconditionError "Horovod has not been initialized; use
// hvd.init()." before init().
int rank();
int size();
int local_rank();  // among the ranks of this host
int local_size();
int cross_rank();  // among the ranks with this local rank, one a host
int cross_size();
// Whether every host has as many ranks.
bool is_homogeneous();

// Some of the ranks, as a value. A default-constructed one is the global set: all of them.
class ProcessSet {
 public:
  struct State;
  ProcessSet() = default;
  explicit ProcessSet(std::shared_ptr<State> state) : state_(std::move(state)) {}
  int id() const;  // 0: the global one
  std::vector<int> ranks() const;
  int size() const;
  // This process's place in ranks(); -1 when it is not in the set.
  int rank() const;
  bool included() const { return rank() >= 0; }
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Every rank of the job calls these two, in the same order. Throws InvalidArgumentError when a rank
// names other ranks, or ranks that do not exist.
ProcessSet add_process_set(const std::vector<int>& ranks);
// Whether there was such a set; the global one stays.
bool remove_process_set(const ProcessSet& set);
ProcessSet global_process_set();

// --- operations ---

// How elements of several ranks become one. kAdasum: Maleki et al. 2020; its ranks must be a power
// of two in number.
enum Op : std::uint8_t { kAverage, kSum, kAdasum, kMin, kMax, kProduct };
constexpr Op last_value(Op) { return kProduct; }

// In which type floating elements travel.
enum class Compression : std::uint8_t { kNone, kFP16, kBF16 };

// An operation under way. A value; every copy means the same operation.
class Handle {
 public:
  struct State;
  Handle() = default;
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// Whether synchronize() would return at once.
bool poll(const Handle& handle);
// Waits; the results, on the devices of the inputs. Throws what the operation failed with:
// InvalidArgumentError when ranks submitted different things by one name ("Mismatched data types:
// One rank had type ..."), on every rank; AbortedError or UnavailableError when a rank is gone;
// DeadlineExceededError when ranks did not submit it in time.
std::vector<Tensor> synchronize_all(const Handle& handle);
// The only result.
Tensor synchronize(const Handle& handle);

// Where no name is given, the n-th unnamed operation of a kind on each rank are matched.
struct AllreduceOptions {
  Op op = kAverage;
  std::string name{};
  double prescale_factor = 1.0;   // of what each rank gives
  double postscale_factor = 1.0;  // of the result
  Compression compression = Compression::kNone;
  ProcessSet process_set{};
};
// The ranks' tensors, of one shape and dtype, combined. kAverage divides by the ranks of the set,
// joined ones included. Integers are averaged as integers; bool cannot be reduced.
//
// A name that is under way already is an InvalidArgumentError ("Requested to allreduce, ...").
Tensor allreduce(const Tensor& tensor, const AllreduceOptions& options = {});
Handle allreduce_async(const Tensor& tensor, const AllreduceOptions& options = {});
// As one operation: executed together, when every rank has submitted all.
std::vector<Tensor> grouped_allreduce(const std::vector<Tensor>& tensors,
                                      const AllreduceOptions& options = {});
Handle grouped_allreduce_async(const std::vector<Tensor>& tensors,
                               const AllreduceOptions& options = {});

struct OperationOptions {
  std::string name{};
  ProcessSet process_set{};
};
// The ranks' tensors joined along the first axis, in which they may differ.
Tensor allgather(const Tensor& tensor, const OperationOptions& options = {});
Handle allgather_async(const Tensor& tensor, const OperationOptions& options = {});

// The tensor of rank `root_rank` of the job. Every rank gives one of its shape and dtype.
Tensor broadcast(const Tensor& tensor, int root_rank, const OperationOptions& options = {});
Handle broadcast_async(const Tensor& tensor, int root_rank, const OperationOptions& options = {});

struct AlltoallResult {
  Tensor output{};
  std::vector<std::int64_t> received_splits{};  // rows from each rank
};
// Sends splits[r] rows of the first axis to rank r, in order; `splits` empty: equal shares.
AlltoallResult alltoall(const Tensor& tensor, const std::vector<std::int64_t>& splits = {},
                        const OperationOptions& options = {});
Handle alltoall_async(const Tensor& tensor, const std::vector<std::int64_t>& splits = {},
                      const OperationOptions& options = {});
// The rows from each rank of an alltoall that is done.
std::vector<std::int64_t> received_splits(const Handle& handle);

struct ReducescatterOptions {
  Op op = kAverage;  // not kAdasum
  std::string name{};
  double prescale_factor = 1.0;
  double postscale_factor = 1.0;
  ProcessSet process_set{};
};
// allreduce(), of which each rank gets its share of the first axis: sizes differ by at most one,
// the larger ones first.
Tensor reducescatter(const Tensor& tensor, const ReducescatterOptions& options = {});
Handle reducescatter_async(const Tensor& tensor, const ReducescatterOptions& options = {});

// Returns once every rank of the set has called it.
void barrier(const ProcessSet& process_set = {});

// This rank has no more data: until every rank of the set has called this, its share of the others'
// allreduces (sum, average, Adasum) is zeros. Returns the rank that joined last. Other operations
// fail meanwhile: "Allgather is not supported with Join at this time. ..."
int join(const ProcessSet& process_set = {});

// --- variables and objects ---

// Every rank's variables become those of rank `root_rank`. Every rank gives as many, of the same
// shapes and dtypes, in the same order.
void broadcast_variables(const std::vector<Variable>& variables, int root_rank = 0,
                         const ProcessSet& process_set = {});

// Bytes of any length, from rank `root_rank`, or of all ranks.
std::string broadcast_object(const std::string& bytes, int root_rank = 0,
                             const OperationOptions& options = {});
std::vector<std::string> allgather_object(const std::string& bytes,
                                          const OperationOptions& options = {});
// The same for plain values.
template <class T>
requires std::is_trivially_copyable_v<T> T broadcast_object(const T& value, int root_rank = 0,
                                                            const OperationOptions& options = {}) {
  const std::string bytes = broadcast_object(
      std::string(reinterpret_cast<const char*>(&value), sizeof(T)), root_rank, options);
  if (bytes.size() != sizeof(T))
    throw InvalidArgumentError("[broadcast_object] the root's object has another size");
  T result;
  std::memcpy(&result, bytes.data(), sizeof(T));
  return result;
}

// --- training ---

struct DistributedOptions {
  Compression compression = Compression::kNone;
  // Calls of minimize(), apply_gradients() or step() until gradients, added up until then, are
  // exchanged and applied. Above 1, a step cannot be traced.
  int backward_passes_per_step = 1;
  // Whether what was added up is divided by the number of passes.
  bool average_aggregated_gradients = false;
  // kAverage, kSum or kAdasum. With kAdasum each rank takes its own optimizer's step, and what the
  // variables moved by is combined. Such a step cannot be traced.
  Op op = kAverage;
  // f: gradients are multiplied by 1/f before the sum and by f/size() behind it. kAverage only.
  double gradient_predivide_factor = 1.0;
  ProcessSet process_set{};
};

// The optimizer, its gradients brought together with those of the other ranks first. minimize()
// starts to exchange a gradient as soon as the backward pass has it. A gradient that this rank
// does not have counts as zeros; where no rank has it, the variable stays as it is. Bounds on
// gradients (Clipping) apply to what has been brought together. Shares its state with `optimizer`.
optimizers::Optimizer DistributedOptimizer(const optimizers::Optimizer& optimizer,
                                           const DistributedOptions& options = {});

// A tape whose gradients are brought together with those of the other ranks. As GradientTape.
class DistributedGradientTape {
 public:
  explicit DistributedGradientTape(const DistributedOptions& options = {},
                                   GradientTapeOptions tape = {});
  ~DistributedGradientTape();
  void watch(const Tensor& tensor);
  void watch(const Variable& variable);
  // Undefined where no rank has a gradient.
  std::vector<Tensor> gradient(const Tensor& target, const std::vector<Variable>& sources);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace callbacks {

// Broadcasts the variables of model and optimizer from rank `root_rank` when training begins.
tandem::callbacks::Callback BroadcastGlobalVariables(int root_rank = 0,
                                                     const ProcessSet& process_set = {});

}  // namespace callbacks

// --- timeline ---

// Begins to record what happens to each tensor; stop_timeline() writes it as a Chrome trace. On
// rank 0 alone. HOROVOD_TIMELINE=FILE does the same from init() to shutdown().
void start_timeline(const std::string& file);
void stop_timeline();

}  // namespace tandem::hvd
