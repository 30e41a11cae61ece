#include "distribute/multi_worker_strategy.h"

#include "comm/rendezvous/cluster_environment.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/rendezvous/tf_config.h"
#include "core/status.h"
#include "distribute/worker_replicas.h"
#include "group/process_group_impl.h"

namespace tandem::distribute {
namespace {

constexpr const char* kName = "MultiWorkerMirroredStrategy";

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

WorkerPlace place_in(const TfConfig& config) {
  WorkerPlace place{.task_type = config.type, .task_index = config.index};
  place.chief = config.is_chief();
  if (config.type == "ps")
    fail<InvalidArgumentError>(
        "[{}] this process is a task of type 'ps', expected 'chief', 'worker' or 'evaluator'",
        kName);
  if (config.cluster.empty() || !config.trains() || config.num_workers() == 1) return place;
  place.worker = config.rank();
  place.num_workers = config.num_workers();
  place.url = fmt::format("tcp://{}?rank={}&world_size={}", config.first_address(), place.worker,
                          place.num_workers);
  for (const char* type : {"chief", "worker"})
    if (config.count(type) > 0)
      for (const std::string& address : config.cluster.at(type)) place.addresses.push_back(address);
  return place;
}

// The addresses of the workers, behind a message that has their numbers.
std::string with_addresses(const char* message, const WorkerPlace& place) {
  constexpr std::size_t kMost = 16;
  std::string text = message;
  for (std::size_t i = 0; i < std::min(kMost, place.addresses.size()); ++i)
    text +=
        fmt::format("{} rank {} is the worker at {}", i == 0 ? ";" : ",", i, place.addresses[i]);
  return text;
}

std::shared_ptr<Job> meet(const WorkerPlace& place, const MultiWorkerMirroredOptions& options) {
  try {
    return rendezvous(place.url, {.timeout = options.timeout, .silence = options.silence_limit});
  } catch (const DeadlineExceededError& error) {
    throw DeadlineExceededError(with_addresses(error.what(), place));
  }
}

std::shared_ptr<MultiWorkerStrategy> make(const MultiWorkerMirroredOptions& options) {
  if (options.timeout <= std::chrono::milliseconds(0))
    fail<InvalidArgumentError>("[{}] expected a positive timeout, got {} ms", kName,
                               options.timeout.count());
  WorkerPlace place = find_worker_place();
  std::vector<Device*> devices = replica_devices(options.devices, kName);
  if (place.num_workers == 1) {
    auto threads = make_thread_replicas(devices, plan_of({}, devices));
    return std::make_shared<MultiWorkerStrategy>(std::move(place), std::move(devices), nullptr,
                                                 std::move(threads));
  }
  const WorkerReplicasOptions how{.backend = backend_of(options.communication),
                                  .time_limit = options.timeout};
  const bool joins = !place.job;
  const std::shared_ptr<Job> job = joins ? meet(place, options) : place.job;
  auto workers = make_worker_group(job, joins, static_cast<int>(devices.size()), how);
  auto replicas = make_worker_replicas(*job, workers, devices, how);
  return std::make_shared<MultiWorkerStrategy>(std::move(place), std::move(devices),
                                               std::move(workers), std::move(replicas));
}

const WorkerPlace& place_of(const std::shared_ptr<StrategyImpl>& impl) {
  return static_cast<const MultiWorkerStrategy&>(*impl).place();
}

}  // namespace

WorkerPlace find_worker_place() {
  if (const auto config = tf_config_of_environment()) return place_in(*config);
  WorkerPlace place;
  const auto be = [&](int rank, int size) {
    place.worker = place.task_index = rank;
    place.num_workers = size;
    place.chief = rank == 0;
  };
  if (comm::is_initialized()) {
    place.job = comm::detail::default_group(kName)->job();
    be(place.job->rank(), place.job->size());
    return place;
  }
  const ClusterEnvironment environment = cluster_environment();
  if (environment.rank && environment.size) {
    be(*environment.rank, *environment.size);
    place.url = "env://";
  }
  return place;
}

MultiWorkerMirroredStrategy::MultiWorkerMirroredStrategy(const MultiWorkerMirroredOptions& options)
    : Strategy(make(options)) {}

int MultiWorkerMirroredStrategy::num_workers() const { return place_of(impl()).num_workers; }
int MultiWorkerMirroredStrategy::worker() const { return place_of(impl()).worker; }
const std::string& MultiWorkerMirroredStrategy::task_type() const {
  return place_of(impl()).task_type;
}
int MultiWorkerMirroredStrategy::task_index() const { return place_of(impl()).task_index; }

}  // namespace tandem::distribute
