// Strategies: where the copies of a model's variables live, and how the replicas of a step run and
// bring their gradients together. After TensorFlow's tf.distribute.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/data.h"
#include "tandem/errors.h"
#include "tandem/function.h"
#include "tandem/parts.h"
#include "tandem/per_replica.h"
#include "tandem/reduce_op.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {
class BatchSource;
}

namespace tandem::distribute {

// --- cross-device operations ---

// How gradients are brought together inside a process. A value. By itself: NcclAllReduce() where
// each replica has a GPU of NVIDIA's to itself and there is NCCL; else every replica adds up its
// share of all gradients.
class CrossDeviceOps {
 public:
  enum class Kind { kAllReduce, kReductionToOneDevice, kHierarchicalCopy, kNccl };
  CrossDeviceOps() = default;
  CrossDeviceOps(Kind kind, int num_packs, std::string device)
      : kind_(kind), num_packs_(num_packs), device_(std::move(device)) {}
  Kind kind() const { return kind_; }
  int num_packs() const { return num_packs_; }
  const std::string& device() const { return device_; }

 private:
  Kind kind_ = Kind::kAllReduce;
  int num_packs_ = 1;
  std::string device_;
};

struct NcclAllReduceOptions {
  int num_packs = 1;  // equal packs of each bucket; 0: a call a gradient, without buckets
};
// NVIDIA's NCCL, on streams of its own, beside the backward pass. Where it cannot join the
// replicas' devices, a warning tells why, and they are brought together as without it. The order of
// sums is NCCL's: the same in every run on the same GPUs. Throws InvalidArgumentError "NCCL
// all-reduce requires num_packs >= 0, but N is specified".
CrossDeviceOps NcclAllReduce(const NcclAllReduceOptions& options = {});

struct HierarchicalCopyOptions {
  int num_packs = 1;  // equal packs of each bucket; 0: a pack a gradient
};
// Packs go round the replicas; each is summed by halves of the replicas, then the two halves.
// Throws InvalidArgumentError "HierarchicalCopy requires num_packs >= 0, but N is specified".
CrossDeviceOps HierarchicalCopyAllReduce(const HierarchicalCopyOptions& options = {});

struct ReductionToOneDeviceOptions {
  // Any device of this process, such as "/cpu:0" for replicas on GPUs; empty: the first replica's.
  std::string reduce_to_device{};
};
// Everything is copied to one device, summed there in the order of the replicas, and copied back.
// A strategy throws InvalidArgumentError for a device that does not exist.
// Replicas on devices of different kinds are always brought together in this way.
CrossDeviceOps ReductionToOneDevice(const ReductionToOneDeviceOptions& options = {});

// --- strategies ---

class StrategyImpl;

// Closes a strategy's scope when it goes. Scopes close in the reverse order of opening, on the
// thread that opened them.
class StrategyScope {
 public:
  explicit StrategyScope(std::shared_ptr<StrategyImpl> strategy);
  ~StrategyScope();
  StrategyScope(const StrategyScope&) = delete;
  StrategyScope& operator=(const StrategyScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

class DistributedDataset;

// A shared handle on a strategy; the kinds below make one. One thread at a time may run steps.
class Strategy {
 public:
  int num_replicas_in_sync() const;  // of all processes
  int num_local_replicas() const;    // of this one
  // The devices that this process's replicas run on, by full name.
  std::vector<std::string> devices() const;
  std::string name() const;  // "MirroredStrategy", ...
  // Whether this process writes what there is to be one of: checkpoints, logs.
  bool is_chief() const;

  // Variables made while the scope is open belong to the strategy. Opening it again inside itself
  // is allowed; inside another strategy's it is a RuntimeError.
  [[nodiscard]] StrategyScope scope() const { return StrategyScope(impl_); }

  // Calls fn on every replica, side by side, each on its device with its values of the arguments
  // (PerReplica<T> becomes T; everything else is shared) and in a ReplicaContext, and returns what
  // each returned. When a replica throws, the others are stopped and its error is thrown.
  //
  // Throws RuntimeError "Method requires being in cross-replica context: ..." inside a replica, as
  // reduce() and gather() do. PerReplica values of another strategy are a RuntimeError "Mixing
  // different ...", those of another number of replicas an InvalidArgumentError.
  //
  // Over several processes every one of them calls run, and a replica that gets no examples of the
  // batch stands by: it runs fn on the batch's first example, for the others wait for it in their
  // collectives; it contributes zeros to sums, its metrics and on-read variables stay as they are,
  // and what it returns is not present.
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

  // One tensor of the values of all replicas, on the first replica's device; over several processes
  // each of them calls it and gets the same. With `axis`, the values are
  // reduced over that axis as well; kMean then divides by the whole number of elements along it, so
  // that uneven batches weigh rightly.
  Tensor reduce(ReduceOp op, const PerReplica<Tensor>& value,
                std::optional<std::int64_t> axis = std::nullopt) const;
  Tensor reduce(ReduceOp op, const Tensor& value,
                std::optional<std::int64_t> axis = std::nullopt) const;
  // The values of all replicas joined along `axis`. Over several processes each of them calls it;
  // in a traced function they tell each other the sizes while they trace, which they do together.
  Tensor gather(const PerReplica<Tensor>& value, std::int64_t axis) const;

  // `dataset`, whose batches are GLOBAL, split evenly over the replicas and copied to their
  // devices. Over several processes each of them gives the same dataset (InvalidArgumentError where
  // an epoch begins with another batch), or, under AutoShardPolicy::kOff, one of its own. Throws
  // InvalidArgumentError "Expected a dataset whose elements have rank >= 1 ..." for scalars.
  DistributedDataset experimental_distribute_dataset(const data::Dataset& dataset) const;

  const std::shared_ptr<StrategyImpl>& impl() const { return impl_; }
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
  template <class T>
  void check(const PerReplica<T>& value, const char* method) const {
    check_values(value.size(), value.strategy().get(), method);
  }
  template <class T>
  void check(const T&, const char*) const {}
  // Throws where values of `of`'s replicas, so many, are not values of this strategy's.
  void check_values(std::size_t replicas, const StrategyMark* of, const char* method) const;
  void require_cross_replica(const char* method) const;
  std::shared_ptr<const StrategyMark> mark() const;
  void run_replicas(const std::function<void(int replica)>& step, const BatchSplit& split) const;

  std::shared_ptr<StrategyImpl> impl_;
};

// What is in force outside every scope: one replica, no copies.
class DefaultStrategy : public Strategy {
 public:
  DefaultStrategy();
};

// Variables and computation on one device.
class OneDeviceStrategy : public Strategy {
 public:
  explicit OneDeviceStrategy(const std::string& device);
};

struct MirroredOptions {
  // One replica each; empty: all GPUs, else CPU:0. Throws InvalidArgumentError "No duplicates
  // allowed in `devices` argument: (...)" and for devices that do not exist.
  std::vector<std::string> devices{};
  CrossDeviceOps cross_device_ops{};
};
// A replica a device, with a copy of every variable on each, kept equal: gradients are summed over
// the replicas before every replica applies them. Replicas run at the same time, a thread each.
class MirroredStrategy : public Strategy {
 public:
  explicit MirroredStrategy(const MirroredOptions& options = {});
};

// What moves bytes between the workers.
enum class Communication {
  kAuto,  // kShm on one host, else the fastest that there is
  kShm,
  kGloo,
  kMpi,
  kNccl,
};

struct MultiWorkerMirroredOptions {
  Communication communication = Communication::kAuto;
  // For all workers to be there, and of every wait for another one.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
  // This worker's, one replica each; as in MirroredOptions.
  std::vector<std::string> devices{};
  /// A worker of which nothing is heard for so long counts as dead, and the job fails. Not given:
  /// the environment variable TANDEM_SILENCE_LIMIT, in seconds, else 30 s. A worker whose process
  /// ends is noticed at once; this is for cut cables and stopped processes, and has to be longer
  /// than a pause that the job is to survive (a debugger, a live migration, a crowded host).
  std::optional<std::chrono::milliseconds> silence_limit{};
};
// Mirrored over several processes, the workers, which train in step: TF_CONFIG tells which they are
// and which of them this process is, else the variables of a launcher (tandem run, torchrun,
// mpirun, Slurm); without either it is alone. The first worker (the chief, where the cluster has
// one) listens at its address in TF_CONFIG; workers on several hosts need the job's secret in
// TANDEM_JOB_TOKEN (docs/processes.md). An evaluator task is alone, too.
//
// Every worker runs the same program: it makes the same variables (which start with the chief's
// values), takes the same steps, and saves when the others do, for reading a variable whose copies
// the replicas keep apart takes all of them. save_weights() and checkpoints write on the chief.
//
// The constructor waits for all workers; DeadlineExceededError names those that did not come. Where
// a worker dies or fails, all others throw an UnavailableError or AbortedError that names it,
// within seconds, from the step or the call that they are in; then the job is over.
//
// Throws InvalidArgumentError for a TF_CONFIG that makes no sense.
class MultiWorkerMirroredStrategy : public Strategy {
 public:
  explicit MultiWorkerMirroredStrategy(const MultiWorkerMirroredOptions& options = {});

  int num_workers() const;
  int worker() const;                    // this one's number; 0 is the chief
  const std::string& task_type() const;  // "worker", "chief", "evaluator"
  int task_index() const;
};

// The strategy whose scope is open on this thread (or whose replica this is); the default one
// otherwise.
Strategy get_strategy();
bool has_strategy();
// Exactly one of the two holds: inside a replica (or outside every strategy), or between a
// strategy's steps.
bool in_replica_context();
bool in_cross_replica_context();
// The index of the replica that this thread runs; 0 outside.
int replica_id_in_sync_group();

// --- replica-invariant steps ---

namespace detail {
std::vector<Tensor> for_each_part(const data::Example& examples,
                                  const tandem::detail::PartStep& step);
}

// The step of a replica's own training loop in the replica-invariant mode
// (config::set_replica_invariant_parts): calls `step` on each part of the replica's examples, a
// batch of a distributed dataset inside Strategy::run(), or outside every strategy the global
// batch. An optimizer's step in it is taken once, in the last part, with the gradients of the whole
// batch; losses are averaged with nn::compute_average_loss(), as in a strategy's replica. `step`
// returns nothing, or a Tensor, whose sum over the parts is the result. Where the mode is off,
// `step` is called once with all examples.
//
// Throws InvalidArgumentError where the examples are not those of whole parts, RuntimeError inside
// a part and between a strategy's steps, UnimplementedError for a second optimizer's step in one.
template <class Step>
auto for_each_part(const data::Example& examples, const Step& step) {
  return tandem::detail::over_parts(
      [&](const tandem::detail::PartStep& part) { return detail::for_each_part(examples, part); },
      step);
}

// --- input ---

// A dataset whose elements come as one part a replica.
class DistributedDataset {
 public:
  DistributedDataset(data::Dataset dataset, std::shared_ptr<StrategyImpl> strategy);

  class Iterator {
   public:
    using value_type = PerReplica<data::Example>;
    const value_type& operator*() const { return current_; }
    Iterator& operator++();
    bool operator!=(std::default_sentinel_t) const { return !done_; }
    bool operator==(std::default_sentinel_t) const { return done_; }

   private:
    friend class DistributedDataset;
    void load();
    std::shared_ptr<BatchSource> input_;
    value_type current_;
    bool done_ = true;
  };
  // A new epoch of the dataset.
  Iterator begin() const;
  std::default_sentinel_t end() const { return {}; }

 private:
  data::Dataset dataset_;
  std::shared_ptr<StrategyImpl> strategy_;
};

}  // namespace tandem::distribute
