/// @file
/// Horovod-compatible API (Sergeev and Del Balso 2018): each process trains on its own batches.
/// Operations on tensors are matched between processes by NAME, so that ranks may submit them in
/// different orders. docs/horovod.md lists the environment variables.
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

/// Horovod-compatible API.
namespace tandem::hvd {

// --- the processes ---

/// Options of init(). As the arguments of hvd.init().
struct InitOptions {
  /// Process sets to create besides the global one, in this order; the same on every rank.
  std::vector<std::vector<int>> process_sets{};
  /// "auto", "shm", "gloo", "mpi", "nccl" or "hierarchical". Default: HOROVOD_CPU_OPERATIONS, else
  /// "auto".
  std::string backend{};
  /// Timeout of every wait for another rank.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// A rank that has sent nothing for this long counts as dead, and the job fails. Default: the
  /// environment variable TANDEM_SILENCE_LIMIT in seconds, else 30 s. A rank whose process exits is
  /// detected at once; the limit is for broken networks and stopped processes. Choose it longer
  /// than any pause that the job should survive (a debugger, a live migration, an overloaded host).
  std::optional<std::chrono::milliseconds> silence_limit{};
};

/// Connects the processes: those of mpirun under mpirun, else those of the job (docs/processes.md),
/// else this one only. A second call has no effect. Throws as the rendezvous does.
void init(const InitOptions& options = {});
/// Shuts down this rank, as the exit of the process does. Pending and later operations of other
/// ranks fail with AbortedError.
void shutdown();
/// Whether init() has been called and shutdown() has not.
bool is_initialized();

/// Rank of this process. Before init() this and all functions below throw FailedPreconditionError
/// "Horovod has not been initialized; use hvd.init()."
int rank();
int size();        ///< number of ranks
int local_rank();  ///< rank among the ranks of this host
int local_size();  ///< number of ranks on this host
int cross_rank();  ///< rank among the ranks with this local rank, one per host
int cross_size();  ///< number of ranks with this local rank
/// Whether every host has the same number of ranks.
bool is_homogeneous();

/// Some of the ranks. A value; a default-constructed one is the global set of all ranks. As
/// hvd.ProcessSet.
class ProcessSet {
 public:
  /// For Tandem's own code.
  struct State;
  ProcessSet() = default;
  /// For Tandem's own code.
  explicit ProcessSet(std::shared_ptr<State> state) : state_(std::move(state)) {}
  int id() const;                  ///< id; 0 is the global set
  std::vector<int> ranks() const;  ///< global ranks of the members
  int size() const;                ///< number of members
  /// Index of this process in ranks(); -1 if it is not a member.
  int rank() const;
  bool included() const { return rank() >= 0; }  ///< whether this process is a member
  const std::shared_ptr<State>& state() const { return state_; }  ///< for Tandem's own code

 private:
  std::shared_ptr<State> state_;
};

/// Adds a process set. Every rank of the job calls this and remove_process_set() in the same order.
/// Throws InvalidArgumentError if the ranks differ between processes or do not exist.
ProcessSet add_process_set(const std::vector<int>& ranks);
/// Removes a process set. Returns whether it existed; the global set cannot be removed.
bool remove_process_set(const ProcessSet& set);
ProcessSet global_process_set();  ///< the set of all ranks

// --- operations ---

/// of two in number.
/// How the elements of the ranks are reduced.
enum Op : std::uint8_t {
  kAverage,  ///< the sum divided by the number of ranks
  kSum,      ///< the sum
  kAdasum,   ///< adaptive summation (Maleki et al. 2020); needs a power of two of ranks
  kMin,      ///< the minimum
  kMax,      ///< the maximum
  kProduct,  ///< the product
};
constexpr Op last_value(Op) { return kProduct; }  ///< the last enumerator, for range checks

/// The dtype in which floating-point elements are sent. As hvd.Compression.
enum class Compression : std::uint8_t {
  kNone,  ///< their own
  kFP16,  ///< float16
  kBF16,  ///< bfloat16
};

/// A pending operation. A value; copies refer to the same operation.
class Handle {
 public:
  /// For Tandem's own code.
  struct State;
  Handle() = default;
  /// For Tandem's own code.
  explicit Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State>& state() const { return state_; }  ///< for Tandem's own code

 private:
  std::shared_ptr<State> state_;
};

/// Whether synchronize() would return without blocking.
bool poll(const Handle& handle);
/// Waits for an operation and returns its results, on the devices of the inputs. Throws the
/// operation's error. InvalidArgumentError: ranks submitted different operations under one name
/// ("Mismatched data types: One rank had type ..."); every rank gets it. AbortedError or
/// UnavailableError: a rank failed. DeadlineExceededError: ranks did not submit it in time.
[[nodiscard]] std::vector<Tensor> synchronize_all(const Handle& handle);
/// Waits for an operation with one result and returns it.
[[nodiscard]] Tensor synchronize(const Handle& handle);

/// Options of allreduce().
struct AllreduceOptions {
  Op op = kAverage;  ///< reduction
  /// Name; default: the n-th unnamed operation of a kind on each rank are matched.
  std::string name{};
  double prescale_factor = 1.0;                  ///< factor applied to inputs
  double postscale_factor = 1.0;                 ///< factor applied to the result
  Compression compression = Compression::kNone;  ///< dtype in which elements are sent
  ProcessSet process_set{};                      ///< default: all ranks
};
/// @{
/// Reduces the ranks' tensors, of one shape and dtype. kAverage divides by the number of ranks in
/// the set, joined ones included. Averages of integers are integers; bool cannot be reduced. As
/// hvd.allreduce.
///
/// Throws InvalidArgumentError ("Requested to allreduce, ...") if an operation of this name is
/// pending.
[[nodiscard]] Tensor allreduce(const Tensor& tensor, const AllreduceOptions& options = {});
Handle allreduce_async(const Tensor& tensor, const AllreduceOptions& options = {});
/// @}
/// @{
/// Reduces several tensors as one operation, which runs when every rank has submitted all of them.
/// As hvd.grouped_allreduce.
[[nodiscard]] std::vector<Tensor> grouped_allreduce(const std::vector<Tensor>& tensors,
                                                    const AllreduceOptions& options = {});
Handle grouped_allreduce_async(const std::vector<Tensor>& tensors,
                               const AllreduceOptions& options = {});
/// @}

/// Options of operations that do not reduce.
struct OperationOptions {
  std::string name{};        ///< name; default as in AllreduceOptions
  ProcessSet process_set{};  ///< default: all ranks
};
/// @{
/// Concatenates the ranks' tensors along the first axis, in which their sizes may differ. As
/// hvd.allgather.
[[nodiscard]] Tensor allgather(const Tensor& tensor, const OperationOptions& options = {});
Handle allgather_async(const Tensor& tensor, const OperationOptions& options = {});
/// @}

/// @{
/// Returns the tensor of global rank `root_rank`. All ranks pass a tensor of its shape and dtype.
/// As hvd.broadcast.
[[nodiscard]] Tensor broadcast(const Tensor& tensor, int root_rank,
                               const OperationOptions& options = {});
Handle broadcast_async(const Tensor& tensor, int root_rank, const OperationOptions& options = {});
/// @}

/// Result of alltoall().
struct AlltoallResult {
  Tensor output{};                              ///< received rows
  std::vector<std::int64_t> received_splits{};  ///< number of rows from each rank
};
/// @{
/// Sends splits[r] consecutive rows of the first axis to rank r and concatenates the received rows.
/// Default: equal parts. As hvd.alltoall.
AlltoallResult alltoall(const Tensor& tensor, const std::vector<std::int64_t>& splits = {},
                        const OperationOptions& options = {});
Handle alltoall_async(const Tensor& tensor, const std::vector<std::int64_t>& splits = {},
                      const OperationOptions& options = {});
/// @}
/// Number of rows from each rank, of a finished alltoall_async().
std::vector<std::int64_t> received_splits(const Handle& handle);

/// Options of reducescatter().
struct ReducescatterOptions {
  Op op = kAverage;               ///< reduction; not kAdasum
  std::string name{};             ///< name; default as in AllreduceOptions
  double prescale_factor = 1.0;   ///< factor applied to inputs
  double postscale_factor = 1.0;  ///< factor applied to the result
  ProcessSet process_set{};       ///< default: all ranks
};
/// @{
/// Reduces the ranks' tensors and gives each rank one part of the first axis. Sizes of the parts
/// differ by at most one; larger parts come first. As hvd.reducescatter.
[[nodiscard]] Tensor reducescatter(const Tensor& tensor, const ReducescatterOptions& options = {});
Handle reducescatter_async(const Tensor& tensor, const ReducescatterOptions& options = {});
/// @}

/// Returns once every rank of the set has called it. As hvd.barrier.
void barrier(const ProcessSet& process_set = {});

/// Declares that this rank has no more data. Until all ranks of the set have called it, this rank
/// contributes zeros to the others' allreduces (sum, average, Adasum). Returns the rank that joined
/// last. Other operations fail meanwhile: "Allgather is not supported with Join at this time. ..."
/// As hvd.join.
int join(const ProcessSet& process_set = {});

// --- variables and objects ---

/// Copies the variables of rank `root_rank` to all ranks. All ranks pass equally many variables of
/// the same shapes and dtypes, in the same order. As hvd.broadcast_variables.
void broadcast_variables(const std::vector<Variable>& variables, int root_rank = 0,
                         const ProcessSet& process_set = {});

/// Returns the bytes of rank `root_rank`. As hvd.broadcast_object.
std::string broadcast_object(const std::string& bytes, int root_rank = 0,
                             const OperationOptions& options = {});
/// Returns the bytes of all ranks. As hvd.allgather_object.
std::vector<std::string> allgather_object(const std::string& bytes,
                                          const OperationOptions& options = {});
/// Returns the value of rank `root_rank`, of a trivially copyable type.
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

/// Options of DistributedOptimizer() and DistributedGradientTape.
struct DistributedOptions {
  Compression compression = Compression::kNone;  ///< dtype in which gradients are sent
  /// Number of calls of minimize(), apply_gradients() or step() over which gradients are
  /// accumulated before they are reduced and applied. Above 1, the step cannot be traced.
  int backward_passes_per_step = 1;
  /// Whether accumulated gradients are divided by the number of passes.
  bool average_aggregated_gradients = false;
  /// kAverage, kSum or kAdasum. With kAdasum each rank takes its own optimizer step, and the
  /// changes of the variables are reduced. Such a step cannot be traced.
  Op op = kAverage;
  /// Splits the averaging: gradients are multiplied by 1/f before the sum and by f/size() after it.
  /// kAverage only.
  double gradient_predivide_factor = 1.0;
  ProcessSet process_set{};  ///< default: all ranks
};

/// Returns an optimizer that reduces gradients over the ranks before it applies them. minimize()
/// launches the reduction of a gradient as soon as the backward pass has computed it. Shares its
/// state with `optimizer`. As hvd.DistributedOptimizer.
///
/// A gradient that this rank does not have counts as zeros; a variable without a gradient on any
/// rank does not change. Clipping applies to the reduced gradients.
optimizers::Optimizer DistributedOptimizer(const optimizers::Optimizer& optimizer,
                                           const DistributedOptions& options = {});

/// A GradientTape whose gradients are reduced over the ranks. As hvd.DistributedGradientTape.
class DistributedGradientTape {
 public:
  /// Starts recording.
  explicit DistributedGradientTape(const DistributedOptions& options = {},
                                   GradientTapeOptions tape = {});
  /// Stops recording.
  ~DistributedGradientTape();
  /// @{
  /// Tracks a tensor or a variable. As GradientTape::watch().
  void watch(const Tensor& tensor);
  void watch(const Variable& variable);
  /// @}
  /// Returns the reduced gradients; undefined where no rank has a gradient. As
  /// GradientTape::gradient().
  std::vector<Tensor> gradient(const Tensor& target, const std::vector<Variable>& sources);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Callbacks of Model::fit() for Horovod jobs.
namespace callbacks {

/// Broadcasts the variables of the model and the optimizer from rank `root_rank` at the start of
/// training. As hvd.callbacks.BroadcastGlobalVariablesCallback.
tandem::callbacks::Callback BroadcastGlobalVariables(int root_rank = 0,
                                                     const ProcessSet& process_set = {});

}  // namespace callbacks

// --- timeline ---

/// Starts recording the phases of each tensor's operations; stop_timeline() writes them to `file`
/// as a Chrome trace. On rank 0 only. HOROVOD_TIMELINE=FILE records from init() to shutdown().
void start_timeline(const std::string& file);
/// Stops recording and writes the file.
void stop_timeline();

}  // namespace tandem::hvd
