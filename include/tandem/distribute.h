/// @file
/// Distribution strategies: how a model's variables and training steps are replicated over devices
/// and processes, and how gradients are reduced. As tf.distribute.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/cluster_resolver.h"
#include "tandem/comm.h"
#include "tandem/data.h"
#include "tandem/errors.h"
#include "tandem/function.h"
#include "tandem/parts.h"
#include "tandem/per_replica.h"
#include "tandem/reduce_op.h"
#include "tandem/registered_datasets.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {
class BatchSource;
}

/// Distribution strategies.
namespace tandem::distribute {

// --- cross-device operations ---

/// How gradients of one process's replicas are reduced. A value. As tf.distribute.CrossDeviceOps.
///
/// The default is NcclAllReduce() if each replica has an NVIDIA GPU to itself and NCCL is
/// available; otherwise each replica reduces an equal part of all gradients.
class CrossDeviceOps {
 public:
  /// The algorithm.
  enum class Kind {
    kAllReduce,             ///< the default
    kReductionToOneDevice,  ///< of ReductionToOneDevice()
    kHierarchicalCopy,      ///< of HierarchicalCopyAllReduce()
    kNccl,                  ///< of NcclAllReduce()
  };
  CrossDeviceOps() = default;
  /// For Tandem's own code; users call the functions below.
  CrossDeviceOps(Kind kind, int num_packs, std::string device)
      : kind_(kind), num_packs_(num_packs), device_(std::move(device)) {}
  Kind kind() const { return kind_; }                    ///< the algorithm
  int num_packs() const { return num_packs_; }           ///< packs per bucket
  const std::string& device() const { return device_; }  ///< device of the reduction

 private:
  Kind kind_ = Kind::kAllReduce;
  int num_packs_ = 1;
  std::string device_;
};

/// Options of NcclAllReduce().
struct NcclAllReduceOptions {
  int num_packs = 1;  ///< equal packs per bucket; 0: one call per gradient, without buckets
};
/// Reduces with NCCL on streams of its own, concurrently with the backward pass. If NCCL cannot
/// connect the replicas' devices, logs a warning with the reason and uses the default without NCCL.
/// NCCL determines the order of sums; it is the same in every run on the same GPUs. As
/// tf.distribute.NcclAllReduce.
///
/// Throws InvalidArgumentError "NCCL all-reduce requires num_packs >= 0, but N is specified".
CrossDeviceOps NcclAllReduce(const NcclAllReduceOptions& options = {});

/// Options of HierarchicalCopyAllReduce().
struct HierarchicalCopyOptions {
  int num_packs = 1;  ///< equal packs per bucket; 0: one pack per gradient
};
/// Distributes packs over the replicas; each is summed within the two halves of the replicas, then
/// across. As tf.distribute.HierarchicalCopyAllReduce.
///
/// Throws InvalidArgumentError "HierarchicalCopy requires num_packs >= 0, but N is specified".
CrossDeviceOps HierarchicalCopyAllReduce(const HierarchicalCopyOptions& options = {});

/// Options of ReductionToOneDevice().
struct ReductionToOneDeviceOptions {
  /// Any device of this process, such as "/cpu:0" for replicas on GPUs. Default: the first
  /// replica's device.
  std::string reduce_to_device{};
};
/// Copies gradients to one device, sums them there in the order of the replicas and copies the
/// result back. Replicas on devices of different types always use this. The strategy throws
/// InvalidArgumentError for a device that does not exist. As tf.distribute.ReductionToOneDevice.
CrossDeviceOps ReductionToOneDevice(const ReductionToOneDeviceOptions& options = {});

// --- strategies ---

class StrategyImpl;

/// Keeps a strategy's scope open while it exists. Scopes close in the reverse order of opening, on
/// the thread that opened them.
class StrategyScope {
 public:
  /// Opens the scope.
  explicit StrategyScope(std::shared_ptr<StrategyImpl> strategy);
  /// Closes the scope.
  ~StrategyScope();
  StrategyScope(const StrategyScope&) = delete;
  StrategyScope& operator=(const StrategyScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class DistributedDataset;

/// Component `index` of a batch on each replica. Throws InvalidArgumentError unless the examples
/// have `count` components.
PerReplica<Tensor> component(const PerReplica<data::Example>& batch, std::size_t index,
                             std::size_t count);
/// Component `index` of a batch of pairs, for `for (const auto& [x, y] : distributed_dataset)`.
template <std::size_t index>
PerReplica<Tensor> get(const PerReplica<data::Example>& batch) {
  return component(batch, index, 2);
}

/// Options of Strategy::reduce().
struct ReduceAxis {
  std::optional<std::int64_t> axis{};  ///< axis to reduce over as well; default: none
};

/// Base class of strategies: a shared handle. Only one thread at a time may run steps. As
/// tf.distribute.Strategy.
class Strategy {
 public:
  int num_replicas_in_sync() const;  ///< number of replicas in all processes
  int num_local_replicas() const;    ///< number of replicas in this process
  /// Full names of the devices of this process's replicas.
  std::vector<std::string> devices() const;
  std::string name() const;  ///< for example "MirroredStrategy"
  /// Whether this process writes files that only one process should write, such as checkpoints and
  /// logs.
  bool is_chief() const;

  /// Opens the strategy's scope: variables created while it is open belong to the strategy. The
  /// same strategy's scope may be opened again inside it; another strategy's throws RuntimeError.
  /// As tf.distribute.Strategy.scope.
  [[nodiscard]] StrategyScope scope() const { return StrategyScope(impl_); }

  /// Runs fn on every replica in parallel and returns what each returned. Each replica runs on its
  /// device, in a replica context and with its own arguments: PerReplica<T> becomes T, other
  /// arguments are shared. If a replica throws, the others are stopped and its error is thrown. As
  /// tf.distribute.Strategy.run.
  ///
  /// Models and layers that are first called in fn make their variables in the scope of this
  /// strategy. Other variables cannot be made there (throws FailedPreconditionError).
  ///
  /// Throws RuntimeError "Method requires being in cross-replica context: ..." inside a replica, as
  /// do reduce() and gather(). PerReplica values of another strategy give RuntimeError "Mixing
  /// different ...", those of another number of replicas InvalidArgumentError.
  ///
  /// Over several processes, each calls run(). A replica that gets no examples of the batch becomes
  /// a padding replica: it runs fn on the batch's first example, because the others wait for it in
  /// their collectives. It contributes zeros to sums, its metrics and on-read variables do not
  /// change, and its result is not present.
  template <class Fn, class... Args>
  auto run(Fn&& fn, const Args&... args) const {
    using Result = std::invoke_result_t<Fn&, decltype(local(args, 0))...>;
    (check(args, "run"), ...);
    const BatchSplit split = split_of(args...);
    if constexpr (std::is_void_v<Result>) {
      run_replicas(
          [&]([[maybe_unused]] int replica) {
            fn(local(args, static_cast<std::size_t>(replica))...);
          },
          split);
    } else {
      std::vector<Result> results(static_cast<std::size_t>(num_local_replicas()));
      run_replicas(
          [&](int replica) {
            results[static_cast<std::size_t>(replica)] =
                fn(local(args, static_cast<std::size_t>(replica))...);
          },
          split);
      return PerReplica<Result>(std::move(results), split, mark());
    }
  }
  /// @{
  /// The same with the arguments in braces, if they have one type, or in a tuple that fn does not
  /// take itself. As `args` of tf.distribute.Strategy.run.
  template <class Fn, class T, std::size_t count>
  auto run(Fn&& fn, T (&&args)[count]) const {
    return run_elements(fn, args, std::make_index_sequence<count>());
  }
  template <class Fn, class... Args>
  requires(!std::is_invocable_v<Fn&, const std::tuple<Args...>&>) auto run(
      Fn&& fn, const std::tuple<Args...>& args) const {
    return run_elements(fn, args, std::index_sequence_for<Args...>());
  }
  /// @}
  /// The same for a function of the two components of a batch.
  template <class Fn>
  requires(
      !std::is_invocable_v<Fn&, const data::Example&> &&
      std::is_invocable_v<Fn&, const Tensor&,
                          const Tensor&>) auto run(Fn&& fn,
                                                   const PerReplica<data::Example>& batch) const {
    return run(fn, component(batch, 0, 2), component(batch, 1, 2));
  }

  /// @{
  /// Reduces the values of all replicas to one tensor on the first replica's device. Over several
  /// processes, each calls this and gets the same result. With `axis`, also reduces over that axis;
  /// kMean then divides by the total number of elements along it, so that uneven batches get the
  /// right weight. As tf.distribute.Strategy.reduce.
  Tensor reduce(ReduceOp op, const PerReplica<Tensor>& value,
                std::optional<std::int64_t> axis = std::nullopt) const;
  Tensor reduce(ReduceOp op, const Tensor& value,
                std::optional<std::int64_t> axis = std::nullopt) const;
  /// @}
  /// The same with the axis as an option: `reduce(op, value, {.axis = std::nullopt})`.
  template <class Value, std::same_as<ReduceAxis> Options = ReduceAxis>
  Tensor reduce(ReduceOp op, const Value& value, const Options& options) const {
    return reduce(op, value, options.axis);
  }
  /// Concatenates the values of all replicas along `axis`. Over several processes, each calls this;
  /// in a traced function the processes exchange sizes during the trace, so they must trace at the
  /// same time. As tf.distribute.Strategy.gather.
  Tensor gather(const PerReplica<Tensor>& value, std::int64_t axis) const;
  /// The values of this process's replicas. As tf.distribute.Strategy.experimental_local_results.
  template <class T>
  static const std::vector<T>& experimental_local_results(const PerReplica<T>& value) {
    return value.values();
  }

  /// Splits the GLOBAL batches of `dataset` evenly over the replicas and copies the parts to their
  /// devices. As tf.distribute.Strategy.experimental_distribute_dataset.
  ///
  /// Over several processes, each passes the same dataset (throws InvalidArgumentError if the first
  /// batches of an epoch differ) or, with AutoShardPolicy::kOff, a dataset of its own. Throws
  /// InvalidArgumentError "Expected a dataset whose elements have rank >= 1 ..." for scalars.
  DistributedDataset experimental_distribute_dataset(const data::Dataset& dataset) const;

  /// Distributes the dataset that `make` returns, which is called once in each process. Its batches
  /// are those of a replica: each replica takes the next one. The dataset is not sharded: `make`
  /// does it, by the InputContext. As tf.distribute.Strategy.distribute_datasets_from_function.
  DistributedDataset distribute_datasets_from_function(
      const std::function<data::Dataset(const InputContext&)>& make) const;

  const std::shared_ptr<StrategyImpl>& impl() const { return impl_; }  ///< for Tandem's own code
  /// For Tandem's own code.
  explicit Strategy(std::shared_ptr<StrategyImpl> impl) : impl_(std::move(impl)) {}

 private:
  template <class T>
  static const T& local(const PerReplica<T>& value, std::size_t replica) {
    return value[replica];
  }
  template <class T>
  static const T& local(const T& value, std::size_t) {
    return value;
  }
  template <class T>
  static const BatchSplit* split_in(const PerReplica<T>& value) {
    return value.split().total >= 0 ? &value.split() : nullptr;
  }
  template <class T>
  static const BatchSplit* split_in(const T&) {
    return nullptr;
  }
  template <class... Args>
  static BatchSplit split_of(const Args&... args) {
    const BatchSplit* found = nullptr;
    ((found = found ? found : split_in(args)), ...);
    return found ? *found : BatchSplit();
  }
  template <class Fn, class T, std::size_t... i>
  auto run_elements(Fn& fn, const T& args, std::index_sequence<i...>) const {
    if constexpr (std::is_array_v<T>)
      return run(fn, args[i]...);
    else
      return run(fn, std::get<i>(args)...);
  }
  template <class T>
  void check(const PerReplica<T>& value, const char* method) const {
    check_values(value.size(), value.strategy().get(), method);
  }
  template <class T>
  void check(const T&, const char*) const {}
  // Throws unless values of so many replicas of strategy `of` belong to this strategy.
  void check_values(std::size_t replicas, const StrategyMark* of, const char* method) const;
  void require_cross_replica(const char* method) const;
  std::shared_ptr<const StrategyMark> mark() const;
  void run_replicas(const std::function<void(int replica)>& step, const BatchSplit& split) const;

  std::shared_ptr<StrategyImpl> impl_;
};

/// The strategy outside all scopes: one replica, no copies of variables.
class DefaultStrategy : public Strategy {
 public:
  /// Makes the default strategy.
  DefaultStrategy();
};

/// All variables and computation on one device. As tf.distribute.OneDeviceStrategy.
class OneDeviceStrategy : public Strategy {
 public:
  /// Makes a strategy on the device of this name.
  explicit OneDeviceStrategy(const std::string& device);
};

/// Options of MirroredStrategy.
struct MirroredOptions {
  /// Devices, with one replica each. Default: all GPUs, else CPU:0. Throws InvalidArgumentError "No
  /// duplicates allowed in `devices` argument: (...)" and for devices that do not exist.
  std::vector<std::string> devices{};
  CrossDeviceOps cross_device_ops{};  ///< how gradients are reduced
};
/// One replica per device in one process, with a copy of every variable on each. The copies stay
/// equal: gradients are summed over the replicas before each replica applies them. Replicas run in
/// parallel, one thread per replica. As tf.distribute.MirroredStrategy.
class MirroredStrategy : public Strategy {
 public:
  /// Makes a replica on each device.
  explicit MirroredStrategy(const MirroredOptions& options = {});
  /// The same with names of devices, as in MirroredStrategy({"/gpu:0", "/gpu:1"}).
  template <std::convertible_to<std::string>... Names>
  requires(sizeof...(Names) > 0) MirroredStrategy(const Names&... devices)  // NOLINT
      : MirroredStrategy(MirroredOptions{.devices = {devices...}}) {}
};

/// Options of CentralStorageStrategy.
struct CentralStorageOptions {
  /// Devices that compute, with one replica each. Default: all GPUs, else CPU:0. Throws
  /// InvalidArgumentError "No duplicates allowed in `compute_devices` argument: (...)" and for
  /// devices that do not exist.
  std::vector<std::string> compute_devices{};
  /// Device of the variables and of their updates; any device of this process. Default: the
  /// compute device if there is one, else CPU:0.
  std::string parameter_device{};
};
/// One replica per compute device in one process, and one copy of every variable and of the
/// optimizer's slots on the parameter device. Training is synchronous, as with MirroredStrategy:
/// gradients are summed on the parameter device, where each variable is updated once, and no
/// replica continues before that. Each replica gets a variable's value once per step, and again
/// after a write. As tf.distribute.experimental.CentralStorageStrategy.
///
/// Use it if variables and slots need more memory than the compute devices have; otherwise
/// MirroredStrategy, which copies only gradients in a step. The optimizer's step counter has a copy
/// per replica.
///
/// With several replicas:
/// - A variable is synchronized on write, also if it is created with kOnRead: values that replicas
///   assign are reduced by the variable's aggregation, and assigned once. With kNone such an
///   assignment throws InvalidArgumentError "You must specify an aggregation method to update a
///   AggregatingVariable in Replica Context. ...". Creating a variable with a value that is not an
///   aggregation throws InvalidArgumentError "Invalid variable aggregation mode: ...".
/// - In a traced step, all replicas must read a variable that the step has written before, or none.
///   UnimplementedError: one body of control flow that replicas run reads a variable and then
///   updates it; a model whose layers assign variables, such as BatchNormalization, in the
///   replica-invariant mode.
class CentralStorageStrategy : public Strategy {
 public:
  /// Makes a replica on each compute device.
  explicit CentralStorageStrategy(const CentralStorageOptions& options = {});
  /// The same with names of compute devices, as in CentralStorageStrategy({"/gpu:0", "/gpu:1"}).
  template <std::convertible_to<std::string>... Names>
  requires(sizeof...(Names) > 0) CentralStorageStrategy(const Names&... compute_devices)  // NOLINT
      : CentralStorageStrategy(CentralStorageOptions{.compute_devices = {compute_devices...}}) {}
  const std::string& parameter_device() const;  ///< full name of the variables' device
};

/// Backend of the collectives between workers.
enum class Communication {
  kAuto,         ///< kShm on one host, else the fastest available
  kShm,          ///< shared memory, on one host
  kGloo,         ///< Gloo
  kMpi,          ///< MPI, under mpirun
  kNccl,         ///< NCCL
  AUTO = kAuto,  ///< as kAuto
  RING = kGloo,  ///< as kGloo
  NCCL = kNccl,  ///< as kNccl
  Auto = kAuto,  ///< as kAuto
  Shm = kShm,    ///< as kShm
  Gloo = kGloo,  ///< as kGloo
  Mpi = kMpi,    ///< as kMpi
  Nccl = kNccl,  ///< as kNccl
};

/// How workers communicate. As tf.distribute.experimental.CommunicationOptions.
struct CommunicationOptions {
  Communication implementation = Communication::kAuto;  ///< backend of the collectives
};

/// Options of MultiWorkerMirroredStrategy.
struct MultiWorkerMirroredOptions {
  CommunicationOptions communication_options{};  ///< how the workers communicate
  /// Timeout of the start and of every wait for another worker.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  /// Devices of this worker, with one replica each, as MirroredOptions::devices.
  std::vector<std::string> devices{};
  /// A worker that has sent nothing for this long counts as dead, and the job fails. Default: the
  /// environment variable TANDEM_SILENCE_LIMIT in seconds, else 30 s. A worker whose process exits
  /// is detected at once; the limit is for broken networks and stopped processes. Choose it longer
  /// than any pause that the job should survive (a debugger, a live migration, an overloaded host).
  std::optional<std::chrono::milliseconds> silence_limit{};
  /// The workers are the ranks of this group, such as one of comm::from_mpi(). It has a backend of
  /// its own. Default: as MultiWorkerMirroredStrategy says.
  comm::ProcessGroup group{};
};
/// Synchronous training over several processes, the workers. As
/// tf.distribute.MultiWorkerMirroredStrategy.
///
/// The workers are the ranks of MultiWorkerMirroredOptions::group. Without one, the cluster and
/// this process's task come from TF_CONFIG, else from the variables of a launcher (tandem run,
/// torchrun, mpirun, Slurm). Without either, and in an evaluator task, the process is a cluster of
/// one. The workers meet at the server of TANDEM_RENDEZVOUS; without one, the first worker (the
/// chief, if the cluster has one) listens at its address in TF_CONFIG. Workers on several hosts
/// need the job's secret in TANDEM_JOB_TOKEN (docs/processes.md).
///
/// All workers run the same program. They create the same variables, which get the chief's initial
/// values, and take the same steps. They also save at the same time, because reading an on-read
/// variable is a collective. Only the chief writes the files of save_weights() and of checkpoints.
///
/// The constructor waits for all workers; DeadlineExceededError names those that are missing. If a
/// worker dies or fails, all others throw an UnavailableError or AbortedError that names it within
/// seconds, from their current step or call, and the job has failed. Throws InvalidArgumentError
/// for an invalid TF_CONFIG, a group with an implementation or silence limit, and one that this
/// process is no member of; FailedPreconditionError for several devices with a group whose
/// functions only the thread that calls Tandem may call (below MPI_THREAD_MULTIPLE).
class MultiWorkerMirroredStrategy : public Strategy {
 public:
  /// Joins the cluster.
  explicit MultiWorkerMirroredStrategy(const MultiWorkerMirroredOptions& options = {});

  int num_workers() const;               ///< number of workers
  int worker() const;                    ///< index of this worker; 0 is the chief
  const std::string& task_type() const;  ///< "worker", "chief" or "evaluator"
  int task_index() const;                ///< index of this task among those of its type
  /// The cluster of TF_CONFIG, or an empty one, and task_type() and task_index(). As
  /// tf.distribute.Strategy.cluster_resolver.
  ClusterResolver cluster_resolver() const;
};

/// The strategy whose scope is open on this thread or whose replica runs on it, else a
/// DefaultStrategy. As tf.distribute.get_strategy.
Strategy get_strategy();
/// Whether get_strategy() is not the default strategy. As tf.distribute.has_strategy.
bool has_strategy();
/// Whether this thread runs a replica (or is outside all strategies). As
/// tf.distribute.in_replica_context.
bool in_replica_context();
/// The opposite of in_replica_context(): inside a scope, but not in a step. As
/// tf.distribute.in_cross_replica_context.
bool in_cross_replica_context();
/// Global index of the replica that this thread runs; 0 outside of replicas.
int replica_id_in_sync_group();

// --- replica-invariant steps ---

namespace detail {
std::vector<Tensor> for_each_part(const data::Example& examples,
                                  const tandem::detail::PartStep& step);
}

/// Runs a step of a custom training loop in replica-invariant mode
/// (config::set_replica_invariant_parts). Calls `step` for each part of `examples`: inside
/// Strategy::run() a replica's batch of a distributed dataset, outside of strategies the global
/// batch. If the mode is off, `step` is called once with all examples.
///
/// An optimizer step inside `step` happens once, in the last part, with the gradients of the whole
/// batch. Average losses with nn::compute_average_loss(), as in a replica. `step` returns nothing
/// or a Tensor; the result is the sum of the tensors over the parts.
///
/// Throws InvalidArgumentError if the examples do not divide into whole parts, RuntimeError inside
/// a part and in a cross-replica context, and UnimplementedError for a second optimizer step in
/// `step`.
template <class Step>
auto for_each_part(const data::Example& examples, const Step& step) {
  return tandem::detail::over_parts(
      [&](const tandem::detail::PartStep& part) { return detail::for_each_part(examples, part); },
      step);
}

// --- input ---

/// A dataset whose elements are split into one part per replica. Made by
/// Strategy::experimental_distribute_dataset().
class DistributedDataset {
 public:
  /// For Tandem's own code.
  DistributedDataset(data::Dataset dataset, std::shared_ptr<StrategyImpl> strategy);

  /// A C++ input iterator over global batches.
  class Iterator {
   public:
    using value_type = PerReplica<data::Example>;             ///< one part per replica
    const value_type& operator*() const { return current_; }  ///< the current batch
    Iterator& operator++();                                   ///< takes the next batch
    /// @{
    /// Whether there is a batch.
    bool operator!=(std::default_sentinel_t) const { return !done_; }
    bool operator==(std::default_sentinel_t) const { return done_; }
    /// @}

   private:
    friend class DistributedDataset;
    void load();
    std::shared_ptr<StrategyImpl> strategy_;  // used by input_
    std::shared_ptr<BatchSource> input_;
    value_type current_;
    bool done_ = true;
  };
  /// Starts a new epoch of the dataset.
  Iterator begin() const;
  /// The end of the iteration.
  std::default_sentinel_t end() const { return {}; }
  /// For Tandem's own code: the dataset. Throws InvalidArgumentError for another strategy.
  const data::Dataset& dataset_of(const StrategyImpl* strategy) const;

 private:
  data::Dataset dataset_;
  std::shared_ptr<StrategyImpl> strategy_;
};

}  // namespace tandem::distribute

/// @cond
// A batch of pairs decomposes, as in `for (const auto& [x, y] : distributed_dataset)`.
template <>
struct std::tuple_size<tandem::distribute::PerReplica<tandem::data::Example>>
    : std::integral_constant<std::size_t, 2> {};
template <std::size_t index>
struct std::tuple_element<index, tandem::distribute::PerReplica<tandem::data::Example>> {
  using type = tandem::distribute::PerReplica<tandem::Tensor>;  ///< one component on each replica
};
/// @endcond
