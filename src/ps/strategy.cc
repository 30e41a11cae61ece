#include "ps/strategy.h"

#include <array>
#include <string>
#include <utility>

#include "core/status.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "ps/cluster.h"
#include "ps/split.h"
#include "ps/variable_servers.h"
#include "runtime/generator.h"
#include "runtime/placement.h"
#include "runtime/variable_name.h"
#include "runtime/variable_storage.h"
#include "tandem/autodiff.h"
#include "tensor/tensor_buffers.h"
#include "tensor/tensor_impl.h"

namespace tandem::ps {
namespace {

// The storage of a variable on parameter servers. Each read gets the elements from there, onto the
// CPU. Functions that are scheduled on workers do not read them here (ps/split.h). An update that
// this process makes reads the elements, changes them and assigns them: one that a worker makes at
// the same time may be lost.
class RemoteStorage final : public VariableStorage {
 public:
  RemoteStorage(std::shared_ptr<VariableServers> servers, std::vector<Shard> shards,
                std::string name, const TensorType& spec, bool trainable)
      : VariableStorage(std::array{&DeviceManager::get().host()}, 1, trainable),
        servers_(std::move(servers)),
        shards_(std::move(shards)),
        name_(std::move(name)),
        spec_(spec) {
    servers_->add(this, shards_);
  }
  ~RemoteStorage() override { servers_->drop(this); }

  const VariableServers& servers() const { return *servers_; }

  DeviceImpl& home(std::size_t) const override { return device(0); }
  const void* identity(std::size_t) const override { return this; }
  Tensor value(std::size_t reader) override {
    return of_reader(reader, servers_->read(shards_, spec_));
  }
  GradEdge edge(std::size_t reader) override { return {leaf(reader), 0, true}; }
  Tensor writable(std::size_t) override {
    fail<FailedPreconditionError>(
        "[ParameterServerStrategy] a function that updates variable {} was called, expected "
        "ClusterCoordinator::schedule(): the variable is on parameter servers",
        quoted_name(name_, spec_));
  }
  void store(std::size_t, const Tensor& value) override { servers_->assign(shards_, value); }
  bool update(VariableImpl&, std::size_t, const VariableUpdate& update, const Tensor& gradient,
              std::span<VariableStorage* const> slots) override {
    if (context.graph) return false;
    const NoGradScope no_grad;
    const auto read = [](RemoteStorage& storage) {
      return exclusive_on(storage.device(0),
                          storage.servers_->read(storage.shards_, storage.spec_));
    };
    std::array<Tensor, kMaxSlots> of_slots;
    for (std::size_t i = 0; i < slots.size(); ++i)
      of_slots[i] = read(static_cast<RemoteStorage&>(*slots[i]));
    const Tensor elements = read(*this);
    update.apply(elements, gradient, {of_slots.data(), slots.size()});
    store(0, elements);
    for (std::size_t i = 0; i < slots.size(); ++i) slots[i]->store(0, of_slots[i]);
    return true;
  }
  std::unique_ptr<VariableStorage> make_like(const Tensor& initial_value, bool trainable,
                                             MemoryTag) const override {
    return std::make_unique<RemoteStorage>(
        servers_, servers_->create_like(shards_, name_ + "/slot", initial_value), name_ + "/slot",
        impl_of(initial_value), trainable);
  }

 private:
  const std::shared_ptr<VariableServers> servers_;
  const std::vector<Shard> shards_;
  const std::string name_;
  const TensorType spec_;
};

std::int64_t num_shards(const distribute::Partitioner& partitioner, const TensorType& spec,
                        const std::string& name) {
  if (!partitioner || spec.shape.rank() == 0 || spec.shape.word(0) == 0) return 1;
  const std::int64_t shards = partitioner(spec.shape, spec.dtype);
  if (shards < 1 || shards > spec.shape.word(0))
    fail<InvalidArgumentError>(
        "[{}] variable_partitioner gave {} shards for variable '{}' of shape {}, expected 1 to {}",
        kParameterServer, shards, name, spec.shape.to_string(), spec.shape.word(0));
  return shards;
}

Decisions::Rules rules_of(const distribute::ParameterServerOptions& options) {
  if (options.calls_per_update < 1)
    fail<InvalidArgumentError>("[{}] expected calls_per_update of at least 1, got {}",
                               kParameterServer, options.calls_per_update);
  if (options.max_staleness && *options.max_staleness < 0)
    fail<InvalidArgumentError>("[{}] expected max_staleness of at least 0, got {}",
                               kParameterServer, *options.max_staleness);
  Decisions::Rules rules{.calls_per_update = static_cast<std::uint32_t>(options.calls_per_update)};
  if (options.max_staleness)
    rules.max_staleness = static_cast<std::uint64_t>(*options.max_staleness);
  else if (options.calls_per_update > 1)
    rules.max_staleness = 0;
  return rules;
}

Coordinator::Options coordination_of(const distribute::ParameterServerOptions& options,
                                     const Cluster* cluster) {
  if (options.calls_per_worker < 1)
    fail<InvalidArgumentError>("[{}] expected calls_per_worker of at least 1, got {}",
                               kParameterServer, options.calls_per_worker);
  return {.run_limit = options.run_limit,
          .recovery_limit = options.worker_recovery_limit,
          .queue = {.schedule_limit = options.run_limit},
          .rules = rules_of(options),
          .closures_per_worker = static_cast<std::size_t>(options.calls_per_worker),
          .lost_updates = cluster ? cluster->lost_updates() : nullptr};
}

// Advances the thread's generator as a call that runs here would.
void advance_random(const TracedFunction& function) {
  random::GeneratorState next = Generator::current().state();
  next.offset += function.random_count;
  if (function.last_random) next.offset += function.last_random->total();
  Generator::current().set_state(next);
}

}  // namespace

FunctionScheduler::Sent& FunctionScheduler::send(
    const std::shared_ptr<const TracedFunction>& function) {
  const auto found = sent_.find(function.get());
  if (found != sent_.end() && found->second.function.lock() == function) return found->second;
  remove_expired();
  SplitFunction parts = split(*function, [&](const Resource& variable) {
    std::vector<Shard> shards = servers_->find(variable.identity());
    if (shards.empty())
      fail<FailedPreconditionError>(
          "[{}] uses variable {}, which is not on the parameter servers: create it in the scope of "
          "the ParameterServerStrategy",
          function->name, quoted_name(variable.name(), variable.spec()));
    return shards;
  });
  Sent sent{.function = function,
            .used = {},
            .id = next_id_++,
            .worker_attributes = std::move(parts.worker_attributes),
            .update_attributes = std::move(parts.update_attributes)};
  servers_->add_updates(sent.id, parts.message);
  sent.used = coordinator_.add_function(sent.id, std::move(parts.message));
  return sent_.emplace(function.get(), std::move(sent)).first->second;
}

void FunctionScheduler::remove_expired() {
  // First, so that the functions that used these variables are seen to be gone below.
  const std::vector<VariableId> dropped = servers_->take_dropped();
  dropped_.insert(dropped_.end(), dropped.begin(), dropped.end());
  std::erase_if(sent_, [&](const auto& entry) {
    const Sent& sent = entry.second;
    if (!sent.function.expired()) return false;
    coordinator_.remove_function(sent.id);
    gone_.emplace(sent.id, sent.used);
    return true;
  });
  std::vector<std::uint64_t> unused;
  for (const auto& [id, used] : gone_)
    if (used.expired()) unused.push_back(id);
  if (!unused.empty()) servers_->remove_updates(unused);
  for (const std::uint64_t id : unused) gone_.erase(id);
  if (!gone_.empty() || dropped_.empty()) return;  // a closure may still use them
  servers_->remove(dropped_);
  dropped_.clear();
}

std::shared_ptr<RemoteResult> FunctionScheduler::schedule(
    const std::shared_ptr<const TracedFunction>& function, std::vector<Tensor> arguments,
    std::vector<std::uint64_t> iterators, std::vector<Coordinator::WorkersArgument> workers) {
  const std::lock_guard lock(mutex_);
  Sent& sent = send(function);
  FunctionRun run{.function = sent.id,
                  .arguments = std::move(arguments),
                  .iterators = std::move(iterators),
                  .random = Generator::current().state()};
  for (const Node* node : sent.worker_attributes)
    run.worker_attributes.push_back(attributes_of_run(*node));
  for (const Node* node : sent.update_attributes)
    if (node) run.update_attributes.push_back(attributes_of_run(*node));
  auto result = coordinator_.schedule(std::move(run), std::move(workers));
  advance_random(*function);
  if (++sent.calls_of_step >= calls_per_update_) {
    sent.calls_of_step = 0;
    function->graph->end_run();
  }
  return result;
}

ParameterServerImpl::ParameterServerImpl(std::vector<std::shared_ptr<ServerClient>> servers,
                                         std::vector<Coordinator::WorkerTask> workers,
                                         const distribute::ParameterServerOptions& options,
                                         std::unique_ptr<Cluster> cluster)
    : StrategyImpl(kParameterServer),
      cluster_(std::move(cluster)),
      devices_{&DeviceManager::get().host()},
      options_(options),
      num_workers_(workers.size()),
      servers_(std::make_shared<VariableServers>(servers)),
      coordinator_(std::move(workers), std::move(servers),
                   coordination_of(options, cluster_.get())),
      scheduler_(servers_, coordinator_, static_cast<std::uint32_t>(options.calls_per_update)) {}

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
  const TensorType& spec = impl_of(initial_value);
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
