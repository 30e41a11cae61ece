/// @file
/// Asynchronous training with parameter servers: the variables are on servers, and workers run
/// functions that a coordinator schedules. As tf.distribute.ParameterServerStrategy and
/// tf.distribute.coordinator.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/cluster.h"
#include "tandem/data.h"
#include "tandem/distribute.h"
#include "tandem/function.h"
#include "tandem/partitioners.h"
#include "tandem/registered_datasets.h"

/// Parameter servers, for Tandem's own code.
namespace tandem::ps {
class ParameterServerImpl;
class RemoteResult;
}  // namespace tandem::ps

namespace tandem::detail {

// Whether it is a td::function().
template <class F>
inline constexpr bool kIsFunction = false;
template <class F>
inline constexpr bool kIsFunction<Function<F>> = true;

}  // namespace tandem::detail

namespace tandem::distribute {

/// Returns the number of shards of a variable along its first axis: 1 to the size of that axis. As
/// the partitioners of tf.distribute.experimental.partitioners.
using Partitioner = std::function<std::int64_t(const Shape& shape, DType dtype)>;

/// Options of ParameterServerStrategy.
struct ParameterServerOptions {
  /// How many shards each new variable has. Shards are placed on the servers in turn, and so are
  /// the shards of the optimizer's slots, beside those of their variable. Default: one shard.
  /// Variables without axes always have one.
  Partitioner variable_partitioner{};
  ClusterSecurity security{};  ///< token and TLS, as those of the servers
  /// How long the constructor waits for the tasks.
  std::chrono::milliseconds start_limit = std::chrono::minutes(10);
  /// How long a read or an assignment in this process waits for a parameter server that is
  /// restarted or cut off.
  std::chrono::milliseconds server_limit = std::chrono::minutes(2);
  /// How often a variable that a call reads may be written, by other calls, between the start of
  /// the call and the decision about its updates. The chief decides, once for all servers, so a
  /// call's updates happen on all of them or on none; 0 makes the calls serial. A call that would
  /// be more stale is computed again from the present variables: on any worker, or, with elements
  /// of a PerWorkerDataset, on the same one and on the same elements. Costs one more round trip per
  /// call. Default: as often as it happens, or 0 if calls_per_update is larger than 1.
  std::optional<std::int64_t> max_staleness{};
  /// The synchronous mode: an update happens once this many different calls have contributed, with
  /// the mean of their gradients, and has the same calls on all servers. With N workers and C calls
  /// per update, N - C workers are backups: an update does not wait for the slowest ones, whose
  /// calls are computed again from the new variables, as for max_staleness. (TensorFlow's
  /// SyncReplicasOptimizer drops their gradients.) The C calls of an update are calls of one trace:
  /// a call with arguments of other shapes contributes to another update. Updates that wait for
  /// calls when join() returns happen with later ones. The learning rate and step number of C calls
  /// of a trace, in the order of schedule(), are those of one step.
  int calls_per_update = 1;
  /// How many calls a worker gets at the same time. With two, it reads the variables for one call
  /// while it computes another, whose updates the one does not see: they count in the staleness.
  /// Results do not depend on the worker's order of calls otherwise. TensorFlow's get one.
  int calls_per_worker = 1;
  /// How long a call may run on a worker. Then it fails with DeadlineExceededError.
  std::chrono::milliseconds run_limit = std::chrono::hours(1);
  /// How long a lost worker may stay lost. Then schedule(), join() or done() throw
  /// UnavailableError, once after each such time.
  std::chrono::milliseconds worker_recovery_limit = std::chrono::hours(1);
};

/// Asynchronous training: variables live on parameter servers, spread over them in turn, with the
/// optimizer's slots beside them. A ClusterCoordinator in the chief's program schedules functions,
/// each on whichever worker is free; it reads the variables from the servers when it starts and
/// sends its updates to them, where they are applied at once. As
/// tf.distribute.ParameterServerStrategy.
///
/// - Each update is applied exactly once, also if a worker dies or the connection to a server
///   breaks and the call is repeated. (TensorFlow applies it at least once.) A server that is
///   killed continues from a snapshot without the last updates (ClusterStatistics::updates_lost).
/// - Variables may have any size: large ones go over the network in parts of 64 MiB.
/// - Code outside scheduled functions runs in this process: reading a variable gets it from the
///   servers, assigning to it sends it there.
/// - fit(), evaluate() and predict() run each batch on one worker. The chief reads the data and
///   sends the batches, so each example is used exactly once per epoch; evaluate() and predict()
///   give the results of a single process. Callbacks that save the training state wait for the
///   batches under way.
class ParameterServerStrategy : public Strategy {
 public:
  /// Connects to the workers and servers of the cluster, of which this process is the chief, and
  /// waits for them. The job ends when the last handle to the strategy, and the last model that
  /// trains under it, is gone: Server::join() of the other tasks returns.
  ///
  /// Throws InvalidArgumentError for a cluster without workers or parameter servers and for another
  /// task than the chief; DeadlineExceededError that names the tasks that have not answered within
  /// `start_limit`; FailedPreconditionError if a task has another token or serves another chief.
  explicit ParameterServerStrategy(const ClusterResolver& cluster,
                                   const ParameterServerOptions& options = {});
  /// For Tandem's own code.
  explicit ParameterServerStrategy(std::shared_ptr<ps::ParameterServerImpl> impl);
};

/// Whether a scheduled call has ended.
enum class RemoteValueStatus {
  kNotReady,  ///< it waits for a worker or runs
  kAborted,   ///< it was cancelled or has failed
  kReady,     ///< the result is here
};

/// The result of a scheduled call. As tf.distribute.coordinator.RemoteValue. Thread-safe.
class RemoteValue {
 public:
  /// A value without a call.
  RemoteValue() = default;
  RemoteValueStatus status() const;  ///< whether the call has ended
  /// Waits for the call, and returns the tensor of its result, also if another call has failed.
  /// Throws the call's error; DeadlineExceededError after 24 hours; InvalidArgumentError if the
  /// result does not consist of one tensor. If the call was cancelled because of the error of
  /// another one: AbortedError if none of its updates was applied, DataLossError if they were and
  /// its result is lost, UnavailableError if a server did not say.
  Tensor fetch() const;
  /// The same for results of several tensors, which are returned in their order.
  std::vector<Tensor> fetch_all() const;
  /// For Tandem's own code.
  explicit RemoteValue(std::shared_ptr<ps::RemoteResult> result) : result_(std::move(result)) {}

 private:
  const ps::RemoteResult& result() const;
  std::shared_ptr<ps::RemoteResult> result_;
};

/// A dataset that each worker iterates over for itself. An argument of ClusterCoordinator::
/// schedule(); the function gets a data::Iterator of the worker that runs it. A handle.
class PerWorkerDataset {
 public:
  /// A value without a dataset.
  PerWorkerDataset() = default;
  /// Dtypes and shapes of the components of the elements.
  std::vector<data::ComponentSpec> element_spec() const { return traced().element_spec(); }
  /// @{
  /// This dataset, as an argument of schedule(): each worker has one iterator of it. As
  /// iter(per_worker_dataset) in TensorFlow.
  const PerWorkerDataset& iterator() const { return *this; }
  const PerWorkerDataset& begin() const { return *this; }
  /// @}

  /// For Tandem's own code.
  class State;
  /// For Tandem's own code.
  explicit PerWorkerDataset(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// For Tandem's own code: the iterator that stands for those of the workers in a trace.
  const data::Iterator& traced() const;

 private:
  std::shared_ptr<State> state_;
};

/// A tensor for each worker. An argument of ClusterCoordinator::schedule(); the function gets that
/// of the worker that runs it. As tf.distribute.coordinator's PerWorkerValues. A handle.
class PerWorkerValues {
 public:
  /// A value without tensors.
  PerWorkerValues() = default;
  /// The tensor of a worker. Throws OutOfRangeError if there is no such worker.
  Tensor value(std::size_t worker) const;

  /// For Tandem's own code.
  class State;
  /// For Tandem's own code.
  explicit PerWorkerValues(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// For Tandem's own code: the tensor that stands for those of the workers in a trace.
  const Tensor& tensor() const;

 private:
  const State& state() const;
  std::shared_ptr<State> state_;
};

/// Counters of a coordinator since its start.
struct ClusterStatistics {
  std::int64_t calls_finished = 0;  ///< calls that have returned
  std::int64_t calls_repeated = 0;  ///< runs that were lost with their worker, and repeated
  std::int64_t workers_lost = 0;    ///< how often a worker was lost
  /// Updates that were applied, or that wait for other calls (calls_per_update), of the calls that
  /// have returned.
  std::int64_t updates = 0;
  /// How often a call was computed again, or moved to another worker, because of max_staleness.
  std::int64_t calls_recomputed = 0;
  /// Writes by others between the read and the update. Those of runs that were lost with their
  /// worker are not known.
  double mean_staleness = 0.0;
  std::int64_t max_staleness = 0;  ///< the largest number of these
  /// By server: updates of calls that had returned, which the server has lost because it was killed
  /// and continued from a snapshot (ServerOptions::snapshot_directory). They are counted when the
  /// server is heard of after its restart. Empty for a strategy without a cluster.
  std::vector<std::int64_t> updates_lost{};
};

/// Schedules functions on the workers of a ParameterServerStrategy. All objects for one strategy
/// are the same coordinator. As tf.distribute.coordinator.ClusterCoordinator. Thread-safe.
///
/// If a worker is lost, another one runs its call, and the worker rejoins when it is back. If a
/// call fails, the next schedule(), join() or done() throws its error, once; until then the others
/// go on. Before it is thrown, calls that have started end, and the others are cancelled. Calls
/// that take 10 seconds longer are cancelled, too. The servers refuse from then on what such calls
/// send, so that no variable changes after the error was thrown, and each call's result says
/// whether its updates were applied. (A server that cannot be reached may change later: a warning
/// names it.) The coordinator can be used again afterwards.
class ClusterCoordinator {
 public:
  /// Throws InvalidArgumentError "Only ParameterServerStrategy is supported to work with
  /// ClusterCoordinator currently." for another strategy.
  explicit ClusterCoordinator(const Strategy& strategy);

  /// Schedules a call of a traced function, and returns at once unless 8,192 calls wait for a
  /// worker already. Then it waits until one of them starts, at most `run_limit`, after which it
  /// throws DeadlineExceededError.
  /// The function is traced here, once per signature as if it were called; each call sends the
  /// tensors among the arguments to the worker. Its variables must be the strategy's.
  ///
  /// The function reads each variable as it was when the call started. Throws UnimplementedError
  /// for a function that reads a variable after it has updated it, that updates variables in
  /// branches or loops, or that captured an iterator; FailedPreconditionError for one that uses
  /// other variables; and the error of an earlier call.
  template <class F, class... Args>
  RemoteValue schedule(const Function<F>& function, const Args&... args) {
    return start([&] { return function.trace(traced(args)...); });
  }
  /// The same with the arguments in braces, if they have one type. As `args` of
  /// tf.distribute.coordinator.ClusterCoordinator.schedule.
  template <class F, class T, std::size_t kCount>
  RemoteValue schedule(const Function<F>& function, const T (&args)[kCount]) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return schedule(function, args[I]...);
    }
    (std::make_index_sequence<kCount>());
  }
  /// Does not compile: each call would trace the function again.
  template <class F, class... Args>
  requires(!tandem::detail::kIsFunction<F>) RemoteValue schedule(const F&, const Args&...) {
    static_assert(!std::same_as<F, F>,
                  "make the function once, const auto step = td::function(f), and write "
                  "schedule(step, arguments...): it is traced once per signature");
    return {};
  }
  /// Does not compile, likewise.
  template <class F>
  requires(!tandem::detail::kIsFunction<F>) RemoteValue
      schedule(const F& function, std::initializer_list<PerWorkerDataset>) {
    return schedule(function);
  }

  /// @{
  /// Sends a dataset to the workers, each of which iterates over all of it, from its beginning, at
  /// its own pace; shuffle and repeat it, and choose the number of calls. The order of a shuffle is
  /// different on each worker, unless it was given a seed. `make` is called once, in this process.
  /// The pipeline is sent with its tensors; files are read by the workers, under the same paths. A
  /// worker that was restarted continues where it was. (TensorFlow's begins again.) A worker is one
  /// replica, so that a DistributedDataset of this strategy is its dataset.
  /// As tf.distribute.coordinator.ClusterCoordinator.create_per_worker_dataset.
  ///
  /// Throws UnimplementedError, which names the transformation, for a pipeline with a C++ function
  /// that cannot be traced, such as a generator: use data::registered_dataset().
  PerWorkerDataset create_per_worker_dataset(const data::Dataset& dataset);
  PerWorkerDataset create_per_worker_dataset(const data::DatasetFn& make);
  PerWorkerDataset create_per_worker_dataset(const DistributedDataset& dataset);
  template <std::invocable<> Make>
  PerWorkerDataset create_per_worker_dataset(const Make& make) {
    if constexpr (std::convertible_to<std::invoke_result_t<const Make&>, data::Dataset>)
      return create_per_worker_dataset(static_cast<data::Dataset>(make()));
    else
      return create_per_worker_dataset(static_cast<const DistributedDataset&>(make()));
  }
  /// @}

  /// Calls `make` for each worker, in this process, and keeps the tensors here: a call is sent with
  /// that of its worker, so choose small ones. A call that is repeated on another worker gets that
  /// worker's. Throws InvalidArgumentError if the tensors differ in dtype or shape.
  PerWorkerValues create_per_worker_values(const std::function<Tensor(int worker)>& make);

  /// Waits until all calls have ended. Throws the error of a call.
  void join();
  /// Whether all calls have ended. Throws the error of a call.
  bool done();

  /// Counters of this strategy's coordinator.
  ClusterStatistics statistics() const;

  /// @{
  /// Waits for the values and returns their tensors.
  Tensor fetch(const RemoteValue& value) const { return value.fetch(); }
  std::vector<Tensor> fetch(const std::vector<RemoteValue>& values) const;
  /// @}

 private:
  template <class T>
  static const T& traced(const T& argument) {
    return argument;
  }
  static const data::Iterator& traced(const PerWorkerDataset& dataset) { return dataset.traced(); }
  static const Tensor& traced(const PerWorkerValues& values) { return values.tensor(); }
  RemoteValue start(const std::function<tandem::detail::TracedCall()>& trace);

  std::shared_ptr<ps::ParameterServerImpl> impl_;
};

}  // namespace tandem::distribute
