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
/// place. Only the functions under "in place, as PyTorch" change their first argument. A result is
/// on the device of the corresponding argument. Collectives are not
/// differentiable. Ranks in arguments are global ranks (of the job), also if a group is given.
///
/// Inside td::function collectives become part of the trace. There, the tensor that all_to_all
/// receives from a rank has the shape of the tensor sent to it (the run throws InvalidArgumentError
/// otherwise); gather, scatter, object collectives and monitored_barrier throw UnimplementedError.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tandem/creation.h"
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

  /// Options with this group, as in barrier(group) and broadcast(x, 0, group).
  template <class Options>
  requires requires(Options options, const ProcessGroup& group) { options.group = group; }
  operator Options() const {  // NOLINT
    Options options;
    options.group = *this;
    return options;
  }

  /// For Tandem's own code.
  explicit ProcessGroup(std::shared_ptr<ProcessGroupImpl> impl) : impl_(std::move(impl)) {}
  /// For Tandem's own code.
  const std::shared_ptr<ProcessGroupImpl>& impl() const { return impl_; }

 private:
  std::shared_ptr<ProcessGroupImpl> impl_;
};

/// Options of init_process_group(). In the order of torch.distributed.init_process_group.
struct InitOptions {
  /// "shm" (one host), "gloo", "mpi" (under mpirun), "hierarchical" (shm within hosts, gloo or mpi
  /// between them) or "nccl". "auto": the fastest backend that supports all ranks.
  std::string backend = "auto";
  /// env:// reads the variables that launchers set (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
  /// their equivalents). `tcp://HOST:PORT` and `file:///PATH` take rank and world_size from these
  /// options or from the URL (`?rank=&world_size=`).
  std::string init_method = "env://";
  /// Timeout of the rendezvous and of every wait for other ranks.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// @{
  /// Number of ranks and global rank of this process; default: from init_method.
  std::optional<int> world_size{}, rank{};
  /// @}
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
/// Options of init_process_group(backend, options): members of InitOptions, in the order in which
/// programs for PyTorch write them after a backend.
struct RankOptions {
  std::string init_method = "env://";  ///< as InitOptions::init_method
  /// @{
  /// As in InitOptions.
  std::optional<int> rank{}, world_size{};
  /// @}
  std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< as InitOptions::timeout
};
/// @{
/// The same with a backend, as in init_process_group("gloo"), and with a URL after it.
template <std::convertible_to<std::string> Backend>
void init_process_group(const Backend& backend, const RankOptions& options = {}) {
  init_process_group(InitOptions{.backend = backend,
                                 .init_method = options.init_method,
                                 .timeout = options.timeout,
                                 .world_size = options.world_size,
                                 .rank = options.rank});
}
template <std::convertible_to<std::string> Backend, std::convertible_to<std::string> Url>
void init_process_group(const Backend& backend, const Url& init_method,
                        const RankOptions& options = {}) {
  RankOptions with_url = options;
  with_url.init_method = init_method;
  init_process_group(backend, with_url);
}
/// @}
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
  Work* operator->() { return this; }  ///< this, as in work->wait()
  /// Makes the results visible to the operations that follow. Throws the collective's error.
  void wait();
  /// Whether wait() would return without blocking. Throws the collective's error.
  bool is_completed();
  /// Waits and returns the result of a collective that returns one tensor.
  Tensor result();
  /// Waits and returns the results of a collective that returns a vector of tensors.
  std::vector<Tensor> results();
  /// Does not compile: the collectives that return a work change their tensor.
  template <std::same_as<Tensor> T>
  operator T() const {
    static_assert(
        !std::same_as<T, T>,
        "all_reduce(x, op) and broadcast(x, {.src = rank}) change x, as in PyTorch, and "
        "return their work: write y = all_reduce(x, {.op = op}) or y = broadcast(x, rank) "
        "for a result that leaves x unchanged");
  }

  /// For Tandem's own code.
  Work(std::shared_ptr<ProcessGroupImpl> group, std::shared_ptr<PendingWork> pending)
      : group_(std::move(group)), pending_(std::move(pending)) {}
  /// For Tandem's own code.
  PendingWork& pending() const { return *pending_; }

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
[[nodiscard("x is not changed: write x = all_reduce(x)")]] inline Tensor all_reduce(
    Tensor tensor, const ReduceOptions& options = {}) {
  return all_reduce_async(std::move(tensor), options).result();
}
/// @}

/// @{
/// Like all_reduce(), but only rank `destination` gets the result; other ranks get their own tensor
/// back. As torch.distributed.reduce.
Work reduce_async(Tensor tensor, int destination, const ReduceOptions& options = {});
[[nodiscard("x is not changed: write x = reduce(x, rank)")]] inline Tensor reduce(
    Tensor tensor, int destination, const ReduceOptions& options = {}) {
  return reduce_async(std::move(tensor), destination, options).result();
}
/// @}

/// @{
/// Returns the tensor of rank `source` on all ranks. On other ranks only the shape and dtype of
/// `tensor` matter. As torch.distributed.broadcast.
Work broadcast_async(Tensor tensor, int source, const CollectiveOptions& options = {});
[[nodiscard("x is not changed: write x = broadcast(x, rank)")]] inline Tensor broadcast(
    Tensor tensor, int source, const CollectiveOptions& options = {}) {
  return broadcast_async(std::move(tensor), source, options).result();
}
/// @}

/// @{
/// Returns the tensors of all ranks, in the group's order. As torch.distributed.all_gather.
Work all_gather_async(const Tensor& tensor, const CollectiveOptions& options = {});
[[nodiscard("write auto all = all_gather(x)")]] inline std::vector<Tensor> all_gather(
    const Tensor& tensor, const CollectiveOptions& options = {}) {
  return all_gather_async(tensor, options).results();
}
/// @}

/// @{
/// Like all_gather(), but concatenates the tensors along the first axis; scalars are stacked into a
/// vector. As torch.distributed.all_gather_into_tensor.
Work all_gather_into_tensor_async(const Tensor& tensor, const CollectiveOptions& options = {});
[[nodiscard("write auto all = all_gather_into_tensor(x)")]] inline Tensor all_gather_into_tensor(
    const Tensor& tensor, const CollectiveOptions& options = {}) {
  return all_gather_into_tensor_async(tensor, options).result();
}
/// @}

/// @{
/// Takes one tensor per rank; rank i gets the reduction of all i-th tensors. The tensors have one
/// dtype; their shapes may differ from each other, but not between ranks. As
/// torch.distributed.reduce_scatter.
Work reduce_scatter_async(const std::vector<Tensor>& tensors, const ReduceOptions& options = {});
[[nodiscard("write auto part = reduce_scatter(parts)")]] inline Tensor reduce_scatter(
    const std::vector<Tensor>& tensors, const ReduceOptions& options = {}) {
  return reduce_scatter_async(tensors, options).result();
}
/// @}

/// @{
/// Like reduce_scatter() on one tensor, which is split along the first axis into equal parts;
/// throws InvalidArgumentError if it does not divide. As torch.distributed.reduce_scatter_tensor.
Work reduce_scatter_tensor_async(const Tensor& tensor, const ReduceOptions& options = {});
[[nodiscard("write auto part = reduce_scatter_tensor(x)")]] inline Tensor reduce_scatter_tensor(
    const Tensor& tensor, const ReduceOptions& options = {}) {
  return reduce_scatter_tensor_async(tensor, options).result();
}
/// @}

/// @{
/// Sends the i-th tensor to the group's i-th rank and returns one tensor from each rank, in the
/// group's order. Shapes may differ, the dtype may not. Waits for the other ranks to learn the
/// shapes. As torch.distributed.all_to_all.
Work all_to_all_async(const std::vector<Tensor>& tensors, const CollectiveOptions& options = {});
[[nodiscard("write auto received = all_to_all(parts)")]] inline std::vector<Tensor> all_to_all(
    const std::vector<Tensor>& tensors, const CollectiveOptions& options = {}) {
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
[[nodiscard("write x = recv(shape, rank)")]] inline Tensor recv(
    const Shape& shape, int source, const ReceiveOptions& options = {}) {
  return recv_async(shape, source, options).result();
}
/// @}

/// @{
/// Returns once every rank has called it. As torch.distributed.barrier.
Work barrier_async(const CollectiveOptions& options = {});
inline void barrier(const CollectiveOptions& options = {}) { barrier_async(options).wait(); }
/// @}

/// Returns the tensors of all ranks on rank `destination`, in the group's order, and nothing on the
/// other ranks. Shapes may differ, the dtype may not. As torch.distributed.gather.
[[nodiscard("write auto all = gather(x, rank)")]] std::vector<Tensor> gather(
    const Tensor& tensor, int destination, const CollectiveOptions& options = {});
/// Returns the i-th tensor of rank `source` on the group's i-th rank. Shapes may differ, the dtype
/// may not; other ranks pass an empty list and the dtype. As torch.distributed.scatter.
[[nodiscard("write auto part = scatter(parts, rank)")]] Tensor scatter(
    const std::vector<Tensor>& tensors, int source, const ReceiveOptions& options = {});

/// Options of monitored_barrier().
struct MonitoredBarrierOptions {
  ProcessGroup group{};                                ///< default: all ranks
  std::optional<std::chrono::milliseconds> timeout{};  ///< default: the group's timeout
};
/// A barrier with a timeout that does not end the group. On expiry, every rank that arrived throws
/// DeadlineExceededError "[monitored_barrier] ranks 1 and 2 failed to pass monitored_barrier in 500
/// ms". As torch.distributed.monitored_barrier.
void monitored_barrier(const MonitoredBarrierOptions& options = {});

// --- numbers ---

namespace detail {
// As the functions below, with the number as an int64 or a float64.
template <class T>
Tensor tensor_of(T number) {
  return constant(number, {.dtype = std::is_floating_point_v<T> ? float64 : int64});
}
template <class T>
T number_in(const Tensor& tensor) {
  using Element = std::conditional_t<std::is_floating_point_v<T>, double, std::int64_t>;
  return static_cast<T>(tensor.item<Element>());
}
template <class T>
std::vector<T> numbers_in(const std::vector<Tensor>& tensors) {
  std::vector<T> numbers;
  for (const Tensor& tensor : tensors) numbers.push_back(number_in<T>(tensor));
  return numbers;
}
template <class T>
concept Number = std::floating_point<T> || tandem::detail::Integer<T>;
}  // namespace detail

/// @{
/// The collectives of these names for one number per rank. Throw as they do.
template <detail::Number T>
[[nodiscard("the number is not changed: write x = all_reduce(x, op)")]] T all_reduce(
    const T& number, ReduceOp op = ReduceOp::kSum, const ProcessGroup& group = {}) {
  return detail::number_in<T>(all_reduce(detail::tensor_of(number), {.op = op, .group = group}));
}
template <detail::Number T>
[[nodiscard("the number is not changed: write x = broadcast(x, rank)")]] T broadcast(
    const T& number, int source, const CollectiveOptions& options = {}) {
  return detail::number_in<T>(broadcast(detail::tensor_of(number), source, options));
}
template <detail::Number T>
[[nodiscard("write auto all = all_gather(x)")]] std::vector<T> all_gather(
    const T& number, const CollectiveOptions& options = {}) {
  return detail::numbers_in<T>(all_gather(detail::tensor_of(number), options));
}
template <detail::Number T>
[[nodiscard("write auto all = gather(x, rank)")]] std::vector<T> gather(
    const T& number, int destination, const CollectiveOptions& options = {}) {
  return detail::numbers_in<T>(gather(detail::tensor_of(number), destination, options));
}
/// @}

// --- strings and other bytes ---

/// Returns the strings of all ranks, in the group's order. As torch.distributed.all_gather_object.
[[nodiscard("write auto all = all_gather_object(text)")]] std::vector<std::string>
all_gather_object(const std::string& object, const CollectiveOptions& options = {});
/// Returns the string of rank `source`; those of other ranks are ignored. As
/// torch.distributed.broadcast_object_list.
[[nodiscard("write text = broadcast_object(text, rank)")]] std::string broadcast_object(
    const std::string& object, int source, const CollectiveOptions& options = {});

// --- in place, as PyTorch ---

/// Options of collectives in place that do not reduce.
struct InPlaceOptions {
  ProcessGroup group{};  ///< default: all ranks
  /// Returns at once; the tensors have their values after Work::wait(), and must not be used
  /// before.
  bool async_op = false;
};
/// Options of collectives in place that reduce.
struct InPlaceReduceOptions {
  ReduceOp op = ReduceOp::kSum;  ///< reduction; kMean divides the sum by the number of ranks
  ProcessGroup group{};          ///< default: all ranks
  bool async_op = false;         ///< as InPlaceOptions::async_op
};

namespace detail {
Work all_reduce_in_place(Tensor& tensor, const InPlaceReduceOptions& options);
Work reduce_in_place(Tensor& tensor, int destination, const InPlaceReduceOptions& options);
Work broadcast_in_place(Tensor& tensor, int source, const InPlaceOptions& options);
}  // namespace detail

// The functions whose arguments could also be those of the functions above are templates: overload
// resolution prefers the others.

/// @{
/// Makes `tensor` the reduction of the ranks' tensors, as torch.distributed.all_reduce(tensor, op)
/// does. Other Tensors with the same elements keep them, also gradients of variables: write
/// w.set_grad(all_reduce(w.grad(), op)). The first call with such a tensor logs a warning. The work
/// that is returned is complete unless async_op is true. all_reduce(x, {.op = op}), without
/// async_op, returns the result and leaves x unchanged.
template <std::same_as<ReduceOp> Op>
Work all_reduce(Tensor& tensor, Op op, const ProcessGroup& group = {}, bool async_op = false) {
  return detail::all_reduce_in_place(tensor, {.op = op, .group = group, .async_op = async_op});
}
template <class = void>
Work all_reduce(Tensor& tensor, const InPlaceReduceOptions& options) {
  return detail::all_reduce_in_place(tensor, options);
}
/// @}
/// The reduction, for tensors that cannot be changed: temporaries, constants and variables.
template <std::same_as<ReduceOp> Op>
[[nodiscard("a temporary cannot be reduced in place: write y = all_reduce(x, op)")]] Tensor
all_reduce(const Tensor& tensor, Op op, const ProcessGroup& group = {}) {
  return all_reduce_async(tensor, {.op = op, .group = group}).result();
}
/// Does not compile: a temporary cannot be changed.
template <class T = void>
void all_reduce(const Tensor&, const InPlaceReduceOptions&) {
  static_assert(!std::is_same_v<T, T>,
                "async_op is for reductions in place, and a temporary cannot be changed: write "
                "Work work = all_reduce_async(x, {...}), and later y = work.result()");
}

/// @{
/// The same for reduce(): rank `destination` gets the result, other ranks' tensors are unchanged.
template <std::same_as<ReduceOp> Op>
Work reduce(Tensor& tensor, int destination, Op op, const ProcessGroup& group = {},
            bool async_op = false) {
  return detail::reduce_in_place(tensor, destination,
                                 {.op = op, .group = group, .async_op = async_op});
}
template <class = void>
Work reduce(Tensor& tensor, int destination, const InPlaceReduceOptions& options) {
  return detail::reduce_in_place(tensor, destination, options);
}
/// @}
/// The reduction, for tensors that cannot be changed.
template <std::same_as<ReduceOp> Op>
[[nodiscard("a temporary cannot be reduced in place: write y = reduce(x, rank, op)")]] Tensor
reduce(const Tensor& tensor, int destination, Op op, const ProcessGroup& group = {}) {
  return reduce_async(tensor, destination, {.op = op, .group = group}).result();
}

/// @{
/// Makes `tensor` that of rank `source`, if async_op is given. broadcast(x, source) returns the
/// tensor and leaves x unchanged.
template <class = void>
Work broadcast(Tensor& tensor, int source, const InPlaceOptions& options) {
  return detail::broadcast_in_place(tensor, source, options);
}
inline Work broadcast(Tensor& tensor, int source, const ProcessGroup& group, bool async_op) {
  return detail::broadcast_in_place(tensor, source, {.group = group, .async_op = async_op});
}
/// @}

/// Options of broadcast() in place. As the arguments of torch.distributed.broadcast.
struct BroadcastInPlaceOptions {
  int src = 0;            ///< the rank whose tensor it is
  ProcessGroup group{};   ///< default: all ranks
  bool async_op = false;  ///< as InPlaceOptions::async_op
};
/// Options of reduce() in place. As the arguments of torch.distributed.reduce.
struct ReduceInPlaceOptions {
  int dst = 0;                   ///< the rank that gets the result
  ReduceOp op = ReduceOp::kSum;  ///< reduction; kMean divides the sum by the number of ranks
  ProcessGroup group{};          ///< default: all ranks
  bool async_op = false;         ///< as InPlaceOptions::async_op
};
/// @{
/// In place, with the arguments as PyTorch names them: broadcast(x, {.src = 0}) and
/// reduce(x, {.dst = 0}).
template <class = void>
Work broadcast(Tensor& tensor, const BroadcastInPlaceOptions& options) {
  return detail::broadcast_in_place(tensor, options.src,
                                    {.group = options.group, .async_op = options.async_op});
}
template <class = void>
Work reduce(Tensor& tensor, const ReduceInPlaceOptions& options) {
  return detail::reduce_in_place(
      tensor, options.dst,
      {.op = options.op, .group = options.group, .async_op = options.async_op});
}
/// @}

/// @{
/// Makes the numbers the reductions of the ranks' numbers, which are in memory of the host, as
/// MPI_Allreduce with MPI_IN_PLACE does. Every rank has as many.
template <class T>
requires std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::int64_t>
void all_reduce(std::span<T> values, ReduceOp op = ReduceOp::kSum, const ProcessGroup& group = {}) {
  const std::vector<T> reduced =
      all_reduce(constant(values), {.op = op, .group = group}).template to_vector<T>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = reduced[i];
}
template <class T>
requires std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, std::int32_t> ||
    std::same_as<T, std::int64_t>
void all_reduce(std::vector<T>& values, ReduceOp op = ReduceOp::kSum,
                const ProcessGroup& group = {}) {
  all_reduce(std::span<T>(values), op, group);
}
/// @}

/// Fills `tensors` with the tensors of all ranks, in the group's order. `tensors` has one tensor
/// for each rank, of the shape and dtype of `tensor` or undefined, or is empty; else throws
/// InvalidArgumentError. As torch.distributed.all_gather, and all_gather_object.
Work all_gather(std::vector<Tensor>& tensors, const Tensor& tensor,
                const InPlaceOptions& options = {});
/// The same for strings.
void all_gather_object(std::vector<std::string>& objects, const std::string& object,
                       const CollectiveOptions& options = {});
/// Fills `output` with all_gather_into_tensor(tensor). `output` has its shape and dtype, or is
/// undefined; else throws InvalidArgumentError. As torch.distributed.all_gather_into_tensor.
Work all_gather_into_tensor(Tensor& output, const Tensor& tensor,
                            const InPlaceOptions& options = {});

/// @{
/// Fills `output` with this rank's part of the reduction. `output` has its shape and dtype, or is
/// undefined; else throws InvalidArgumentError. As torch.distributed.reduce_scatter and
/// reduce_scatter_tensor.
Work reduce_scatter(Tensor& output, const std::vector<Tensor>& tensors,
                    const InPlaceReduceOptions& options = {});
Work reduce_scatter_tensor(Tensor& output, const Tensor& tensor,
                           const InPlaceReduceOptions& options = {});
template <std::same_as<ReduceOp> Op>
Work reduce_scatter(Tensor& output, const std::vector<Tensor>& tensors, Op op,
                    const ProcessGroup& group = {}, bool async_op = false) {
  return reduce_scatter(output, tensors, {.op = op, .group = group, .async_op = async_op});
}
template <std::same_as<ReduceOp> Op>
Work reduce_scatter_tensor(Tensor& output, const Tensor& tensor, Op op,
                           const ProcessGroup& group = {}, bool async_op = false) {
  return reduce_scatter_tensor(output, tensor, {.op = op, .group = group, .async_op = async_op});
}
/// @}

/// Fills `outputs` with the tensors that the ranks have for this one. `outputs` has one tensor for
/// each rank, of the shape and dtype that is received or undefined, or is empty; else throws
/// InvalidArgumentError after the exchange. As torch.distributed.all_to_all.
Work all_to_all(std::vector<Tensor>& outputs, const std::vector<Tensor>& tensors,
                const InPlaceOptions& options = {});

/// Makes `tensors` the tensors of all ranks on rank `destination`; does not change it on the other
/// ranks. As torch.distributed.gather.
void gather(const Tensor& tensor, std::vector<Tensor>& tensors, int destination = 0,
            const CollectiveOptions& options = {});
/// Makes `output` the tensor that rank `source` has for this one. Other ranks pass an empty list.
/// Throws InvalidArgumentError if `output` has another shape or dtype. As
/// torch.distributed.scatter.
void scatter(Tensor& output, const std::vector<Tensor>& tensors = {}, int source = 0,
             const CollectiveOptions& options = {});

/// @{
/// Receives a tensor of the shape and dtype of `tensor` into `tensor`. Throws InvalidArgumentError
/// for an undefined tensor, and as recv(shape, source). As torch.distributed.recv and irecv. After
/// irecv(), `tensor` is on the group's device, and has its elements after Work::wait().
void recv(Tensor& tensor, int source, const CollectiveOptions& options = {});
Work irecv(Tensor& tensor, int source, const CollectiveOptions& options = {});
/// @}

}  // namespace tandem::comm
