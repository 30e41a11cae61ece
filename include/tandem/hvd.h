/// @file
/// Horovod-compatible API (Sergeev and Del Balso 2018): each process trains on its own batches.
/// Operations on tensors are matched between processes by NAME, so that ranks may submit them in
/// different orders. docs/horovod.md lists the environment variables.
#pragma once

#include <chrono>
#include <concepts>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/autodiff.h"
#include "tandem/comm.h"
#include "tandem/creation.h"
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
  /// The processes are the ranks of this group, such as one of comm::from_mpi(), and ranks are
  /// those in the group. It has a backend of its own. Default: as init() says.
  comm::ProcessGroup group{};
};

/// Connects the processes: the ranks of InitOptions::group; else those of init_process_group();
/// those of mpirun under mpirun; those of the job (docs/processes.md); this one only. A second call
/// has no effect.
///
/// Throws as the rendezvous does; InvalidArgumentError for a group with a backend or silence limit,
/// and one that this process is no member of; FailedPreconditionError for another group than that
/// of an earlier call.
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
  kNone,         ///< their own
  kFP16,         ///< float16
  kBF16,         ///< bfloat16
  none = kNone,  ///< as kNone
  fp16 = kFP16,  ///< as kFP16
  bf16 = kBF16,  ///< as kBF16
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
[[nodiscard("write auto results = synchronize_all(handle)")]] std::vector<Tensor> synchronize_all(
    const Handle& handle);
/// Waits for an operation with one result and returns it.
[[nodiscard("write x = synchronize(handle)")]] Tensor synchronize(const Handle& handle);

/// Options of allreduce(). In the order of hvd.allreduce of horovod.torch.
struct AllreduceOptions {
  /// Name; default: the n-th unnamed operation of a kind on each rank are matched.
  std::string name{};
  Compression compression = Compression::kNone;  ///< dtype in which elements are sent
  Op op = kAverage;                              ///< reduction
  double prescale_factor = 1.0;                  ///< factor applied to inputs
  double postscale_factor = 1.0;                 ///< factor applied to the result
  ProcessSet process_set{};                      ///< default: all ranks
};
/// @{
/// Reduces the ranks' tensors, of one shape and dtype. kAverage divides by the number of ranks in
/// the set, joined ones included. Averages of integers are integers; bool cannot be reduced. As
/// hvd.allreduce.
///
/// Throws InvalidArgumentError ("Requested to allreduce, ...") if an operation of this name is
/// pending.
[[nodiscard("x is not changed: write x = allreduce(x)")]] Tensor allreduce(
    const Tensor& tensor, const AllreduceOptions& options = {});
Handle allreduce_async(const Tensor& tensor, const AllreduceOptions& options = {});
/// @}
/// @{
/// The same with an operation or a name alone, as in allreduce(x, hvd::kSum).
template <std::same_as<Op> Operation>
[[nodiscard("x is not changed: write x = allreduce(x, op)")]] Tensor allreduce(const Tensor& tensor,
                                                                               Operation op) {
  return allreduce(tensor, {.op = op});
}
template <std::same_as<Op> Operation>
Handle allreduce_async(const Tensor& tensor, Operation op) {
  return allreduce_async(tensor, {.op = op});
}
template <std::convertible_to<std::string> Name>
[[nodiscard("x is not changed: write x = allreduce(x, name)")]] Tensor allreduce(
    const Tensor& tensor, const Name& name) {
  return allreduce(tensor, {.name = name});
}
template <std::convertible_to<std::string> Name>
Handle allreduce_async(const Tensor& tensor, const Name& name) {
  return allreduce_async(tensor, {.name = name});
}
/// @}
/// @{
/// The same with a name and an operation.
template <std::convertible_to<std::string> Name, std::same_as<Op> Operation>
[[nodiscard("x is not changed: write x = allreduce(x, name, op)")]] Tensor allreduce(
    const Tensor& tensor, const Name& name, Operation op) {
  return allreduce(tensor, {.name = name, .op = op});
}
template <std::convertible_to<std::string> Name, std::same_as<Op> Operation>
Handle allreduce_async(const Tensor& tensor, const Name& name, Operation op) {
  return allreduce_async(tensor, {.name = name, .op = op});
}
/// @}
/// Makes `tensor` the result of allreduce(), and returns it. Other Tensors with the same elements
/// keep them. As hvd.allreduce_.
inline Tensor& allreduce_(Tensor& tensor, const AllreduceOptions& options = {}) {
  return tensor = allreduce(tensor, options);
}
/// @{
/// Reduces several tensors as one operation, which runs when every rank has submitted all of them.
/// As hvd.grouped_allreduce.
[[nodiscard("write tensors = grouped_allreduce(tensors)")]] std::vector<Tensor> grouped_allreduce(
    const std::vector<Tensor>& tensors, const AllreduceOptions& options = {});
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
[[nodiscard("write auto all = allgather(x)")]] Tensor allgather(
    const Tensor& tensor, const OperationOptions& options = {});
Handle allgather_async(const Tensor& tensor, const OperationOptions& options = {});
template <std::convertible_to<std::string> Name>
[[nodiscard("write auto all = allgather(x, name)")]] Tensor allgather(const Tensor& tensor,
                                                                      const Name& name) {
  return allgather(tensor, {.name = name});
}
template <std::convertible_to<std::string> Name>
Handle allgather_async(const Tensor& tensor, const Name& name) {
  return allgather_async(tensor, {.name = name});
}
/// @}

/// @{
/// Returns the tensor of global rank `root_rank`. All ranks pass a tensor of its shape and dtype.
/// As hvd.broadcast.
[[nodiscard("x is not changed: write x = broadcast(x, rank)")]] Tensor broadcast(
    const Tensor& tensor, int root_rank, const OperationOptions& options = {});
Handle broadcast_async(const Tensor& tensor, int root_rank, const OperationOptions& options = {});
template <std::convertible_to<std::string> Name>
[[nodiscard("x is not changed: write x = broadcast(x, rank, name)")]] Tensor broadcast(
    const Tensor& tensor, int root_rank, const Name& name) {
  return broadcast(tensor, root_rank, {.name = name});
}
template <std::convertible_to<std::string> Name>
Handle broadcast_async(const Tensor& tensor, int root_rank, const Name& name) {
  return broadcast_async(tensor, root_rank, {.name = name});
}
/// @}
/// Makes `tensor` that of rank `root_rank`, and returns it. Other Tensors with the same elements
/// keep them. As hvd.broadcast_.
inline Tensor& broadcast_(Tensor& tensor, int root_rank, const OperationOptions& options = {}) {
  return tensor = broadcast(tensor, root_rank, options);
}
/// Assigns the root's value to a variable on every rank. As hvd.broadcast_ of a parameter.
template <std::same_as<Variable> V>
void broadcast_(const V& variable, int root_rank, const OperationOptions& options = {}) {
  Variable(variable).assign(broadcast(variable.value(), root_rank, options));
}

/// Result of alltoall().
struct AlltoallResult {
  Tensor output{};                              ///< received rows
  std::vector<std::int64_t> received_splits{};  ///< number of rows from each rank
};
/// @{
/// Sends splits[r] consecutive rows of the first axis to rank r and concatenates the received rows.
/// Default: equal parts. As hvd.alltoall.
[[nodiscard("write auto [rows, splits] = alltoall(x, splits)")]] AlltoallResult alltoall(
    const Tensor& tensor, const std::vector<std::int64_t>& splits = {},
    const OperationOptions& options = {});
Handle alltoall_async(const Tensor& tensor, const std::vector<std::int64_t>& splits = {},
                      const OperationOptions& options = {});
/// @}
/// Result of alltoall() with a tensor of splits.
struct AlltoallTensors {
  Tensor output{};           ///< received rows
  Tensor received_splits{};  ///< number of rows from each rank, int32
};
/// The same with the splits in an int32 or int64 vector. As hvd.alltoall.
template <std::same_as<Tensor> Splits>
[[nodiscard("write auto [rows, splits] = alltoall(x, splits)")]] AlltoallTensors alltoall(
    const Tensor& tensor, const Splits& splits, const OperationOptions& options = {}) {
  const AlltoallResult result =
      alltoall(tensor, splits.to(int64).template to_vector<std::int64_t>(), options);
  return {result.output, constant(result.received_splits, {.dtype = int32})};
}
/// Number of rows from each rank, of a finished alltoall_async().
std::vector<std::int64_t> received_splits(const Handle& handle);

/// Options of reducescatter(). In the order of hvd.reducescatter of horovod.torch.
struct ReducescatterOptions {
  std::string name{};             ///< name; default as in AllreduceOptions
  Op op = kAverage;               ///< reduction; not kAdasum
  ProcessSet process_set{};       ///< default: all ranks
  double prescale_factor = 1.0;   ///< factor applied to inputs
  double postscale_factor = 1.0;  ///< factor applied to the result
};
/// @{
/// Reduces the ranks' tensors and gives each rank one part of the first axis. Sizes of the parts
/// differ by at most one; larger parts come first. As hvd.reducescatter.
[[nodiscard("write auto part = reducescatter(x)")]] Tensor reducescatter(
    const Tensor& tensor, const ReducescatterOptions& options = {});
Handle reducescatter_async(const Tensor& tensor, const ReducescatterOptions& options = {});
template <std::same_as<Op> Operation>
[[nodiscard("write auto part = reducescatter(x, op)")]] Tensor reducescatter(const Tensor& tensor,
                                                                             Operation op) {
  return reducescatter(tensor, {.op = op});
}
template <std::same_as<Op> Operation>
Handle reducescatter_async(const Tensor& tensor, Operation op) {
  return reducescatter_async(tensor, {.op = op});
}
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
/// Options of broadcast_variables() and its relatives.
struct BroadcastOptions {
  int root_rank = 0;         ///< global rank whose values all ranks get
  ProcessSet process_set{};  ///< default: all ranks
};
/// The same with options.
inline void broadcast_variables(const std::vector<Variable>& variables,
                                const BroadcastOptions& options) {
  broadcast_variables(variables, options.root_rank, options.process_set);
}

namespace detail {
// The variables of a list, of a list or map with names, or of an object that has variables().
template <class Source>
std::vector<Variable> variables_of(const Source& source) {
  if constexpr (requires { source.variables(); }) {
    return source.variables();
  } else if constexpr (std::is_convertible_v<const Source&, std::vector<Variable>>) {
    return source;
  } else {
    constexpr bool tensors = std::is_same_v<std::decay_t<decltype(source.begin()->second)>, Tensor>;
    static_assert(
        !tensors,
        "the tensors of a state are values: to broadcast them would not change the model. "
        "Write broadcast_parameters(model, root_rank)");
    std::vector<Variable> variables;
    if constexpr (!tensors)
      for (const auto& named : source) variables.push_back(named.second);
    return variables;
  }
}
}  // namespace detail

/// @{
/// As broadcast_variables(), for a model, a layer or an optimizer, for a list of variables or of
/// names and variables, such as Model::named_parameters(), and for a map of variables by name. As
/// hvd.broadcast_parameters.
template <class Source>
void broadcast_parameters(const Source& parameters, int root_rank = 0,
                          const ProcessSet& process_set = {}) {
  broadcast_variables(detail::variables_of(parameters), root_rank, process_set);
}
template <class Source>
void broadcast_parameters(const Source& parameters, const BroadcastOptions& options) {
  broadcast_variables(detail::variables_of(parameters), options);
}
/// @}

/// @{
/// Copies the step count and the slots of an optimizer from rank `root_rank` to all ranks, and its
/// learning rate unless it follows a schedule there. Creates the slots of its parameters. Throws
/// InvalidArgumentError on every rank if ranks have different numbers of slots. As
/// hvd.broadcast_optimizer_state.
void broadcast_optimizer_state(optimizers::Optimizer optimizer, int root_rank = 0,
                               const ProcessSet& process_set = {});
inline void broadcast_optimizer_state(const optimizers::Optimizer& optimizer,
                                      const BroadcastOptions& options) {
  broadcast_optimizer_state(optimizer, options.root_rank, options.process_set);
}
/// @}

/// Returns the bytes of rank `root_rank`. As hvd.broadcast_object.
[[nodiscard("write x = broadcast_object(x, rank)")]] std::string broadcast_object(
    const std::string& bytes, int root_rank = 0, const OperationOptions& options = {});
/// Returns the bytes of all ranks. As hvd.allgather_object.
[[nodiscard("write auto all = allgather_object(x)")]] std::vector<std::string> allgather_object(
    const std::string& bytes, const OperationOptions& options = {});
namespace detail {
/// Throws InvalidArgumentError for an object of another size.
void expect_size(const std::string& object, std::size_t size);
/// A type whose bytes are its value. The bytes of a string's address are not.
template <class T>
concept Bytes = std::is_trivially_copyable_v<T> && !std::convertible_to<const T&, std::string>;
template <Bytes T>
std::string bytes_of(const T& value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(T));
}
template <Bytes T>
T value_of(const std::string& bytes) {
  expect_size(bytes, sizeof(T));
  T result;
  std::memcpy(&result, bytes.data(), sizeof(T));
  return result;
}
}  // namespace detail
/// Returns the value of rank `root_rank`, of a trivially copyable type.
template <detail::Bytes T>
T broadcast_object(const T& value, int root_rank = 0, const OperationOptions& options = {}) {
  return detail::value_of<T>(broadcast_object(detail::bytes_of(value), root_rank, options));
}
/// Returns the values of all ranks, of a trivially copyable type.
template <detail::Bytes T>
[[nodiscard("write auto all = allgather_object(x)")]] std::vector<T> allgather_object(
    const T& value, const OperationOptions& options = {}) {
  std::vector<T> values;
  for (const std::string& bytes : allgather_object(detail::bytes_of(value), options))
    values.push_back(detail::value_of<T>(bytes));
  return values;
}

// --- training ---

/// Options of DistributedOptimizer and DistributedGradientTape. In the order of
/// hvd.DistributedOptimizer of horovod.torch.
struct DistributedOptions {
  /// Parameters with names, as of Model::named_parameters(): checked, but not needed.
  std::vector<std::pair<std::string, Variable>> named_parameters{};
  Compression compression = Compression::kNone;  ///< dtype in which gradients are sent
  /// Number of calls of minimize(), apply_gradients() or step() over which gradients are
  /// accumulated before they are reduced and applied. Above 1, the step cannot be traced.
  int backward_passes_per_step = 1;
  /// kAverage, kSum or kAdasum. With kAdasum each rank takes its own optimizer step, and the
  /// changes of the variables are reduced. Such a step cannot be traced.
  Op op = kAverage;
  /// Splits the averaging: gradients are multiplied by 1/f before the sum and by f/size() after it.
  /// kAverage only.
  double gradient_predivide_factor = 1.0;
  /// Whether accumulated gradients are divided by the number of passes.
  bool average_aggregated_gradients = false;
  ProcessSet process_set{};  ///< default: all ranks
};

/// An optimizer that reduces gradients over the ranks before it applies them. minimize() launches
/// the reduction of a gradient as soon as the backward pass has computed it. Shares its state with
/// `optimizer`. A handle: a copy, also one to an Optimizer, is the same optimizer. As
/// hvd.DistributedOptimizer.
///
/// A gradient that this rank does not have counts as zeros; a variable without a gradient on any
/// rank does not change. Clipping applies to the reduced gradients.
class DistributedOptimizer : public optimizers::Optimizer {
 public:
  /// Throws InvalidArgumentError for an undefined optimizer, for invalid options, if two named
  /// parameters have one name, and if a parameter of the optimizer is not among them.
  explicit DistributedOptimizer(const optimizers::Optimizer& optimizer,
                                const DistributedOptions& options = {});

  /// Reduces grad() of the parameters now, to clip or inspect the reduced gradients before the
  /// step:
  /// @code
  /// loss.backward();
  /// optimizer.synchronize();
  /// clip(model.parameters());
  /// { auto skip = optimizer.skip_synchronize(); optimizer.step(); }
  /// @endcode
  /// A step outside of skip_synchronize() reduces them once more, and logs a warning. In a
  /// td::function, both belong inside. With
  /// backward_passes_per_step above 1, call it after the last of these backward passes, whose
  /// gradients add up in grad(). Throws FailedPreconditionError without parameters, and
  /// UnimplementedError with kAdasum.
  void synchronize();

  /// Steps reduce nothing while it exists.
  class SkipSynchronize;
  /// Makes a SkipSynchronize. Throws UnimplementedError with kAdasum.
  [[nodiscard("write auto skip = optimizer.skip_synchronize()")]] SkipSynchronize skip_synchronize()
      const;
};

/// Steps of a DistributedOptimizer reduce nothing while it exists; made by skip_synchronize().
class DistributedOptimizer::SkipSynchronize {
 public:
  /// For Tandem's own code.
  explicit SkipSynchronize(std::shared_ptr<optimizers::GradientExchange> exchange);
  /// Steps reduce gradients again.
  ~SkipSynchronize();
  SkipSynchronize(const SkipSynchronize&) = delete;
  SkipSynchronize& operator=(const SkipSynchronize&) = delete;

 private:
  std::shared_ptr<optimizers::GradientExchange> exchange_;
};

/// A GradientTape whose gradients are reduced over the ranks. As hvd.DistributedGradientTape.
class DistributedGradientTape {
 public:
  /// Starts recording.
  explicit DistributedGradientTape(const DistributedOptions& options = {},
                                   GradientTapeOptions tape = {});
  /// Reduces the gradients of a tape that records already. `tape` must outlive it.
  explicit DistributedGradientTape(GradientTape& tape, const DistributedOptions& options = {});
  /// Stops recording, unless the tape is another's.
  ~DistributedGradientTape();
  /// @{
  /// Tracks a tensor or a variable. As GradientTape::watch().
  void watch(const Tensor& tensor);
  void watch(const Variable& variable);
  /// @}
  /// @{
  /// Returns the reduced gradients; undefined where no rank has a gradient. As
  /// GradientTape::gradient().
  std::vector<Tensor> gradient(const Tensor& target, const std::vector<Variable>& sources,
                               const GradientOptions& options = {});
  template <std::same_as<Variable> Source>
  Tensor gradient(const Tensor& target, const Source& source, const GradientOptions& options = {}) {
    return gradient(target, std::vector<Variable>{source}, options).front();
  }
  /// @}

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// --- timeline ---

/// Options of start_timeline(). As the arguments of hvd.start_timeline.
struct TimelineOptions {
  bool mark_cycles = false;  ///< whether to mark the cycles of the coordination, too
};
/// Starts recording the phases of each tensor's operations; stop_timeline() writes them to `file`
/// as a Chrome trace. On rank 0 only. HOROVOD_TIMELINE=FILE records from init() to shutdown().
void start_timeline(const std::string& file, const TimelineOptions& options = {});
/// Stops recording and writes the file.
void stop_timeline();

}  // namespace tandem::hvd
