#include "distribute/multi_worker_strategy.h"

#include <exception>

#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/rendezvous/cluster_environment.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/tf_config.h"
#include "core/status.h"
#include "core/thread_team.h"
#include "device/device_manager.h"
#include "distribute/distributed_iterator.h"
#include "group/connect.h"
#include "group/process_group_impl.h"

namespace tandem::distribute {
namespace {

constexpr const char* kMultiWorker = "MultiWorkerMirroredStrategy";

// The group of traced programs: each process runs its own replicas' part.
class WorkerProgramGroup final : public CollectiveGroup {
 public:
  explicit WorkerProgramGroup(std::shared_ptr<ReplicaConnections> replicas)
      : replicas_(std::move(replicas)) {}
  Communicator& communicator(int rank) override {
    return *replicas_->communicator(rank - replicas_->first_replica());
  }
  int size() const override { return replicas_->num_replicas(); }
  bool within_program() const override { return false; }
  void begin() override { replicas_->begin_step({}); }
  void abort(const std::string& reason) override { replicas_->abort(0, reason); }

 private:
  std::shared_ptr<ReplicaConnections> replicas_;
};

// Connects one replica per device with those of the other workers. If each worker has one replica,
// the processes' communicator joins them directly. Otherwise threads reduce within a worker, and
// that communicator between workers. Owned by the strategy and its programs.
class WorkerConnections final : public ReplicaConnections,
                                public std::enable_shared_from_this<WorkerConnections> {
 public:
  // `between`: of the processes, on the first device.
  WorkerConnections(std::unique_ptr<Communicator> between, std::shared_ptr<JobMembership> workers,
                    const std::vector<DeviceImpl*>& devices, std::chrono::milliseconds limit)
      : workers_(std::move(workers)) {
    if (workers_->num_replicas() == workers_->size()) {
      communicators_.push_back(std::move(between));
      return;
    }
    threads_ = std::make_shared<LocalGroup>(
        devices, LocalGroupOptions{.plan = {.kind = LocalPlan::Kind::kNccl}, .time_limit = limit});
    communicators_.resize(devices.size());
    std::vector<std::exception_ptr> errors(devices.size());
    ThreadTeam together(static_cast<int>(devices.size()));  // the ranks meet
    together.run([&](int local) {
      try {
        communicators_[static_cast<std::size_t>(local)] = make_hierarchical_communicator(
            threads_->communicator(local), local == 0 ? std::move(between) : nullptr,
            {.time_limit = limit, .direct = nullptr});
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(local)] = std::current_exception();
        threads_->abort(local, error.what());
      }
    });
    for (const std::exception_ptr& error : errors)
      if (error) std::rethrow_exception(error);
  }

  int num_replicas() const override { return workers_->num_replicas(); }
  int first_replica() const override { return workers_->first_replica(); }
  bool requires_all_replicas() const override { return true; }
  std::shared_ptr<Communicator> communicator(int local) override {
    return communicators_[static_cast<std::size_t>(local)];
  }
  void begin_step(const std::vector<bool>&) override {
    workers_->check();
    if (threads_) threads_->begin_step(std::vector<bool>(communicators_.size(), true));
  }
  void end_step(int local) override {
    if (threads_) threads_->end_step(local);
  }
  void abort(int local, const std::string& reason) override {
    if (threads_) threads_->abort(local, reason);
    workers_->abort(reason);
  }
  ProgramRanks program_ranks(const std::vector<bool>&) override {
    ProgramRanks ranks{.group = programs_.lock(), .of_replica = {}};
    if (!ranks.group)
      programs_ = ranks.group = std::make_shared<WorkerProgramGroup>(shared_from_this());
    for (std::size_t local = 0; local < communicators_.size(); ++local)
      ranks.of_replica.push_back(first_replica() + static_cast<int>(local));
    return ranks;
  }

 private:
  std::shared_ptr<JobMembership> workers_;
  std::shared_ptr<LocalGroup> threads_;  // null if every worker has one replica
  std::vector<std::shared_ptr<Communicator>> communicators_;
  std::weak_ptr<CollectiveGroup> programs_;  // shared by the programs that exist now
};

const char* backend_of(Communication communication) {
  switch (communication) {
    case Communication::kAuto: return "auto";
    case Communication::kShm: return "shm";
    case Communication::kGloo: return "gloo";
    case Communication::kMpi: return "mpi";
    case Communication::kNccl: return "nccl";
  }
  return "auto";
}

WorkerConfig place_in(const TfConfig& config) {
  WorkerConfig worker_config{.task_type = config.type, .task_index = config.index};
  worker_config.chief = config.is_chief();
  if (config.type == "ps")
    fail<InvalidArgumentError>(
        "[{}] this process is a task of type 'ps', expected 'chief', 'worker' or 'evaluator'",
        kMultiWorker);
  if (config.cluster.empty() || !config.trains() || config.num_workers() == 1) return worker_config;
  worker_config.worker = config.rank();
  worker_config.num_workers = config.num_workers();
  const bool outside = cluster_environment().has_server_for(worker_config.num_workers);
  worker_config.url = fmt::format("{}?rank={}&world_size={}",
                                  outside ? "env://" : "tcp://" + config.first_address(),
                                  worker_config.worker, worker_config.num_workers);
  for (const char* type : {"chief", "worker"})
    if (config.count(type) > 0)
      for (const std::string& address : config.cluster.at(type))
        worker_config.addresses.push_back(address);
  return worker_config;
}

// Adds the workers' addresses to a message that names them by rank.
std::string with_addresses(const char* message, const WorkerConfig& worker_config) {
  constexpr std::size_t kMost = 16;
  std::string text = message;
  for (std::size_t i = 0; i < std::min(kMost, worker_config.addresses.size()); ++i)
    text += fmt::format("{} rank {} is the worker at {}", i == 0 ? ";" : ",", i,
                        worker_config.addresses[i]);
  return text;
}

std::shared_ptr<Job> meet(const WorkerConfig& worker_config,
                          const MultiWorkerMirroredOptions& options) {
  try {
    return rendezvous(worker_config.url,
                      {.timeout = options.timeout, .silence = options.silence_limit});
  } catch (const DeadlineExceededError& error) {
    throw DeadlineExceededError(with_addresses(error.what(), worker_config));
  }
}

// This worker's communicator of all workers. A collective call.
std::unique_ptr<Communicator> connect_workers(const WorkerConfig& config, Job& job,
                                              DeviceImpl& device, const ConnectOptions& how) {
  return config.group ? config.group->duplicate(device) : connect(job, device, how);
}

void check(const MultiWorkerMirroredOptions& options) {
  if (options.timeout <= std::chrono::milliseconds(0))
    fail<InvalidArgumentError>("[{}] expected a positive timeout, got {} ms", kMultiWorker,
                               options.timeout.count());
  if (!options.group.impl()) return;
  options.group.impl()->require_use(kMultiWorker);
  if (options.group.backend() == "nccl")
    fail<UnimplementedError>("[{}] expected a group that reaches the host's memory, got 'nccl'",
                             kMultiWorker);
  if (options.communication_options.implementation != Communication::kAuto)
    fail<InvalidArgumentError>(
        "[{}] expected no implementation with a group, which has '{}'; got '{}'", kMultiWorker,
        options.group.backend(), backend_of(options.communication_options.implementation));
  if (options.silence_limit)
    fail<InvalidArgumentError>("[{}] expected no silence_limit with a group, got {} ms",
                               kMultiWorker, options.silence_limit->count());
}

std::shared_ptr<MultiWorkerStrategy> make(const MultiWorkerMirroredOptions& options) {
  check(options);
  WorkerConfig worker_config = find_worker_config(options.group);
  std::vector<DeviceImpl*> devices = replica_devices(options.devices, kMultiWorker);
  if (worker_config.num_workers == 1) {
    auto threads = connect_threads(devices, local_plan_for({}, devices));
    return std::make_shared<MultiWorkerStrategy>(std::move(worker_config), std::move(devices),
                                                 nullptr, std::move(threads));
  }
  const ConnectOptions how{.backend = backend_of(options.communication_options.implementation),
                           .time_limit = options.timeout};
  const bool joins = !worker_config.job;
  const std::shared_ptr<Job> job = joins ? meet(worker_config, options) : worker_config.job;
  // The workers agree on host memory, which NCCL cannot access.
  auto host = connect_workers(
      worker_config, *job, DeviceManager::get().host(),
      {.backend = how.backend == "nccl" ? "auto" : how.backend, .time_limit = how.time_limit});
  if (devices.size() > 1 && !host->allows_any_thread())
    fail<FailedPreconditionError>(
        "[{}] expected one device with a group whose functions only the calling thread may call "
        "(MPI below MPI_THREAD_MULTIPLE), got {}",
        kMultiWorker, devices.size());
  auto workers = std::make_shared<JobMembership>(job, joins, std::move(host),
                                                 static_cast<int>(devices.size()));
  auto replicas = std::make_shared<WorkerConnections>(
      connect_workers(worker_config, *job, *devices.front(), how), workers, devices,
      options.timeout);
  return std::make_shared<MultiWorkerStrategy>(std::move(worker_config), std::move(devices),
                                               std::move(workers), std::move(replicas));
}

const WorkerConfig& config_of(const std::shared_ptr<StrategyImpl>& impl) {
  return static_cast<const MultiWorkerStrategy&>(*impl).config();
}

}  // namespace

WorkerConfig find_worker_config(const comm::ProcessGroup& group) {
  WorkerConfig worker_config;
  const auto be = [&](int rank, int size) {
    worker_config.worker = worker_config.task_index = rank;
    worker_config.num_workers = size;
    worker_config.chief = rank == 0;
  };
  if (group.impl()) {
    worker_config.group = group.impl();
    worker_config.job = group.impl()->job();
    be(group.rank(), group.size());
    return worker_config;
  }
  if (const auto config = tf_config_of_environment()) return place_in(*config);
  if (comm::is_initialized()) {
    worker_config.job = comm::detail::default_group(kMultiWorker)->job();
    be(worker_config.job->rank(), worker_config.job->size());
    return worker_config;
  }
  const ClusterEnvironment environment = cluster_environment();
  if (environment.rank && environment.size) {
    environment.require_one_launcher();
    be(*environment.rank, *environment.size);
    worker_config.url = "env://";
  }
  return worker_config;
}

std::unique_ptr<BatchSource> MultiWorkerStrategy::iterate(
    const data::Dataset& data, const data::IterateOptions& options,
    std::function<void(const data::Example&)> check) {
  if (!workers_) return LocalStrategy::iterate(data, options, std::move(check));
  return std::make_unique<DistributedIterator>(shared_from_this(), data, options, std::move(check));
}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const MultiWorkerMirroredOptions& options)
    : Strategy(make(options)) {}

int MultiWorkerMirroredStrategy::num_workers() const { return config_of(impl()).num_workers; }
int MultiWorkerMirroredStrategy::worker() const { return config_of(impl()).worker; }
const std::string& MultiWorkerMirroredStrategy::task_type() const {
  return config_of(impl()).task_type;
}
int MultiWorkerMirroredStrategy::task_index() const { return config_of(impl()).task_index; }
ClusterResolver MultiWorkerMirroredStrategy::cluster_resolver() const {
  const TfConfig config = tf_config_of_environment().value_or(TfConfig());
  return SimpleClusterResolver(config.cluster, task_type(), task_index());
}

}  // namespace tandem::distribute
