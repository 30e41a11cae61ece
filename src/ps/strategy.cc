#include "ps/strategy.h"

#include <utility>

#include "core/status.h"
#include "device/device_manager.h"
#include "ps/remote_storage.h"
#include "tensor/tensor_impl.h"

namespace tandem::ps {
namespace {

constexpr const char* kName = "ParameterServerStrategy";
constexpr std::chrono::milliseconds kResultLimit = std::chrono::hours(24);
// One closure runs while the next is on its way.
constexpr std::size_t kStepsPerWorker = 2;

std::int64_t num_shards(const distribute::Partitioner& partitioner, const TensorSpec& spec,
                        const std::string& name) {
  if (!partitioner || spec.shape.rank() == 0 || spec.shape[0] == 0) return 1;
  const std::int64_t shards = partitioner(spec.shape, spec.dtype);
  if (shards < 1 || shards > spec.shape[0])
    fail<InvalidArgumentError>(
        "[{}] variable_partitioner gave {} shards for variable '{}' of shape {}, expected 1 to {}",
        kName, shards, name, spec.shape.to_string(), spec.shape[0]);
  return shards;
}

}  // namespace

ParameterServerImpl::ParameterServerImpl(std::vector<std::shared_ptr<ServerClient>> servers,
                                         std::vector<Coordinator::WorkerTask> workers,
                                         const distribute::ParameterServerOptions& options)
    : StrategyImpl(kName),
      devices_{&DeviceManager::get().host()},
      options_(options),
      num_workers_(workers.size()),
      servers_(std::make_shared<VariableServers>(std::move(servers))),
      coordinator_(std::move(workers), {.run_limit = options.run_limit,
                                        .recovery_limit = options.worker_recovery_limit}),
      scheduler_(servers_, coordinator_) {}

ParameterServerImpl::~ParameterServerImpl() = default;

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
  return [result = scheduler_.schedule(step, std::move(inputs), {})] {
    return result->wait(kResultLimit);
  };
}

std::size_t ParameterServerImpl::steps_ahead() const { return kStepsPerWorker * num_workers_; }

// The steps of a loop that failed end, and their errors are not those of the next loop.
void ParameterServerImpl::abort(const char*) {
  try {
    coordinator_.join();
  } catch (const Error&) {
  }
}

}  // namespace tandem::ps
