#include "ps/strategy.h"

#include <utility>

#include "core/status.h"
#include "device/device_manager.h"
#include "ps/cluster.h"
#include "ps/remote_storage.h"
#include "tensor/tensor_impl.h"

namespace tandem::ps {
namespace {

std::int64_t num_shards(const distribute::Partitioner& partitioner, const TensorSpec& spec,
                        const std::string& name) {
  if (!partitioner || spec.shape.rank() == 0 || spec.shape[0] == 0) return 1;
  const std::int64_t shards = partitioner(spec.shape, spec.dtype);
  if (shards < 1 || shards > spec.shape[0])
    fail<InvalidArgumentError>(
        "[{}] variable_partitioner gave {} shards for variable '{}' of shape {}, expected 1 to {}",
        kParameterServer, shards, name, spec.shape.to_string(), spec.shape[0]);
  return shards;
}

FunctionScheduler::Options scheduling_of(const distribute::ParameterServerOptions& options) {
  if (options.calls_per_update < 1)
    fail<InvalidArgumentError>("[{}] expected calls_per_update of at least 1, got {}",
                               kParameterServer, options.calls_per_update);
  if (options.max_staleness && *options.max_staleness < 0)
    fail<InvalidArgumentError>("[{}] expected max_staleness of at least 0, got {}",
                               kParameterServer, *options.max_staleness);
  FunctionScheduler::Options result{.contributions =
                                        static_cast<std::uint32_t>(options.calls_per_update)};
  if (options.max_staleness)
    result.max_staleness = static_cast<std::uint64_t>(*options.max_staleness);
  else if (options.calls_per_update > 1)
    result.max_staleness = 0;
  return result;
}

Coordinator::Options coordination_of(const distribute::ParameterServerOptions& options) {
  if (options.calls_per_worker < 1)
    fail<InvalidArgumentError>("[{}] expected calls_per_worker of at least 1, got {}",
                               kParameterServer, options.calls_per_worker);
  return {.run_limit = options.run_limit,
          .recovery_limit = options.worker_recovery_limit,
          .closures_per_worker = static_cast<std::size_t>(options.calls_per_worker)};
}

}  // namespace

ParameterServerImpl::ParameterServerImpl(std::vector<std::shared_ptr<ServerClient>> servers,
                                         std::vector<Coordinator::WorkerTask> workers,
                                         const distribute::ParameterServerOptions& options,
                                         std::unique_ptr<Cluster> cluster)
    : StrategyImpl(kParameterServer),
      cluster_(std::move(cluster)),
      devices_{&DeviceManager::get().host()},
      options_(options),
      num_workers_(workers.size()),
      servers_(std::make_shared<VariableServers>(std::move(servers))),
      coordinator_(std::move(workers), coordination_of(options)),
      scheduler_(servers_, coordinator_, scheduling_of(options)) {}

ParameterServerImpl::~ParameterServerImpl() = default;

std::uint64_t ParameterServerImpl::add_iterator(data::DatasetDescription dataset,
                                                const std::shared_ptr<ElementPass>& pass) {
  std::uint64_t id = 0;
  {
    const std::lock_guard lock(mutex_);
    id = next_iterator_++;
    iterators_.emplace(pass.get(), id);
  }
  coordinator_.add_iterator(id, std::move(dataset));
  return id;
}

void ParameterServerImpl::remove_iterator(std::uint64_t id) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(iterators_, [id](const auto& entry) { return entry.second == id; });
  }
  coordinator_.remove_iterator(id);
}

std::uint64_t ParameterServerImpl::iterator_of(const ElementPass& pass) const {
  const std::lock_guard lock(mutex_);
  const auto found = iterators_.find(&pass);
  if (found == iterators_.end())
    throw InvalidArgumentError(
        "[ClusterCoordinator] an iterator of this process is among the arguments, expected the "
        "result of create_per_worker_dataset()");
  return found->second;
}

void ParameterServerImpl::add_values(const Tensor& tensor,
                                     std::shared_ptr<const std::vector<Tensor>> values) {
  const std::lock_guard lock(mutex_);
  values_.emplace(&impl_of(tensor), std::move(values));
}

void ParameterServerImpl::remove_values(const Tensor& tensor) {
  const std::lock_guard lock(mutex_);
  values_.erase(&impl_of(tensor));
}

std::vector<Coordinator::WorkersArgument> ParameterServerImpl::workers_arguments(
    std::span<const Tensor> inputs) const {
  std::vector<Coordinator::WorkersArgument> arguments;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const auto found = values_.find(&impl_of(inputs[i]));
    if (found != values_.end()) arguments.push_back({i, found->second});
  }
  return arguments;
}

RefPtr<VariableImpl> ParameterServerImpl::create(const Tensor& initial_value,
                                                 VariableOptions options) {
  const TensorSpec& spec = impl_of(initial_value);
  const bool trainable = options.trainable && is_floating(spec.dtype);
  std::vector<Shard> shards = servers_->create(
      options.name, initial_value, num_shards(options_.variable_partitioner, spec, options.name));
  auto storage =
      std::make_unique<RemoteStorage>(servers_, std::move(shards), options.name, spec, trainable);
  return make_ref<VariableImpl>(std::move(storage), spec, std::move(options), nullptr, mark());
}

bool ParameterServerImpl::owns(const Variable& variable) const {
  const auto* storage = dynamic_cast<const RemoteStorage*>(&variable.impl().storage());
  return storage && &storage->servers() == servers_.get();
}

void ParameterServerImpl::run_step(const std::function<void(int)>& step,
                                   const distribute::BatchSplit&) {
  step(0);
}

std::function<std::vector<Tensor>()> ParameterServerImpl::start(
    std::shared_ptr<const TracedFunction> step, std::vector<Tensor> inputs) {
  return [this, result = scheduler_.schedule(step, std::move(inputs), {})] {
    try {
      return result->wait(RemoteResult::kLimit);
    } catch (...) {
      // The error of the call that failed first, which may have cancelled this one. It is thrown
      // here, and not by a later loop.
      coordinator_.join();
      throw;
    }
  };
}

// Beside the closures that run, each worker's next one is ready.
std::size_t ParameterServerImpl::steps_ahead() const {
  return (static_cast<std::size_t>(options_.calls_per_worker) + 1) * num_workers_;
}

// The steps of a loop that failed end, and their errors are not those of the next loop.
void ParameterServerImpl::abort(const char*) {
  try {
    coordinator_.join();
  } catch (const Error&) {
  }
}

std::shared_ptr<ParameterServerImpl> connect(const distribute::ClusterResolver& resolver,
                                             const distribute::ParameterServerOptions& options) {
  auto cluster = std::make_unique<Cluster>(
      resolver, Cluster::Options{.security = options.security, .start_limit = options.start_limit});
  std::vector<std::shared_ptr<ServerClient>> servers;
  for (const Cluster::Task& task : cluster->servers())
    servers.push_back(std::make_shared<ServerClient>(
        task.channel, ServerClient::Limits{.call = options.server_limit}));
  std::vector<Coordinator::WorkerTask> workers;
  for (const Cluster::Task& task : cluster->workers()) workers.push_back({task.name, task.channel});
  return std::make_shared<ParameterServerImpl>(std::move(servers), std::move(workers), options,
                                               std::move(cluster));
}

}  // namespace tandem::ps
