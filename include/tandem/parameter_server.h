/// @file
/// Asynchronous training with parameter servers: the variables are on servers, and workers run
/// functions that a coordinator schedules. As tf.distribute.ParameterServerStrategy and
/// tf.distribute.coordinator.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/data.h"
#include "tandem/distribute.h"
#include "tandem/function.h"

/// Parameter servers, for Tandem's own code.
namespace tandem::ps {
class ParameterServerImpl;
class RemoteResult;
}  // namespace tandem::ps

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
///   breaks and the call is repeated. (TensorFlow applies it at least once.)
/// - Code outside scheduled functions runs in this process: reading a variable gets it from the
///   servers, assigning to it sends it there.
/// - fit(), evaluate() and predict() run each batch on one worker. The chief reads the data and
///   sends the batches, so each example is used exactly once per epoch; evaluate() and predict()
///   give the results of a single process. Callbacks that save the training state wait for the
///   batches under way.
class ParameterServerStrategy : public Strategy {
 public:
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
  /// Waits for the call, and returns the tensor of its result. Throws the call's error;
  /// AbortedError if it was cancelled because another call failed; InvalidArgumentError if the
  /// result does not consist of one tensor.
  Tensor fetch() const;
  /// The same for results of several tensors, which are returned in their order.
  std::vector<Tensor> fetch_all() const;
  /// For Tandem's own code.
  explicit RemoteValue(std::shared_ptr<ps::RemoteResult> result) : result_(std::move(result)) {}

 private:
  const ps::RemoteResult& result() const;
  std::shared_ptr<ps::RemoteResult> result_;
};

/// Schedules functions on the workers of a ParameterServerStrategy. All objects for one strategy
/// are the same coordinator. As tf.distribute.coordinator.ClusterCoordinator. Thread-safe.
///
/// If a worker is lost, another one runs its call, and the worker rejoins when it is back. If a
/// call fails, the next schedule(), join() or done() throws its error, once; until then all other
/// calls are cancelled, so that nothing runs when it is thrown. The coordinator can be used again
/// afterwards.
class ClusterCoordinator {
 public:
  /// Throws InvalidArgumentError "Only ParameterServerStrategy is supported to work with
  /// ClusterCoordinator currently." for another strategy.
  explicit ClusterCoordinator(const Strategy& strategy);

  /// Schedules a call of a traced function, and returns at once unless 262,144 calls wait already.
  /// The function is traced here, for the arguments of its first call; each call sends the tensors
  /// among the arguments to the worker. Its variables must be the strategy's.
  ///
  /// The function reads each variable as it was when the call started. Throws UnimplementedError
  /// for a function that reads a variable after it has updated it, that updates variables in
  /// branches or loops, or that captured an iterator; FailedPreconditionError for one that uses
  /// other variables; and the error of an earlier call.
  template <class F, class... Args>
  RemoteValue schedule(const Function<F>& function, const Args&... args) {
    return start([&] { return function.trace(args...); });
  }

  /// Waits until all calls have ended. Throws the error of a call.
  void join();
  /// Whether all calls have ended. Throws the error of a call.
  bool done();

  /// @{
  /// Waits for the values and returns their tensors.
  Tensor fetch(const RemoteValue& value) const { return value.fetch(); }
  std::vector<Tensor> fetch(const std::vector<RemoteValue>& values) const;
  /// @}

 private:
  RemoteValue start(const std::function<tandem::detail::TracedCall()>& trace);

  std::shared_ptr<ps::ParameterServerImpl> impl_;
};

}  // namespace tandem::distribute
