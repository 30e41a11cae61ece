// ParameterServerStrategy and ClusterCoordinator.
#include "core/status.h"
#include "data/description.h"
#include "graph/graph.h"
#include "ps/strategy.h"
#include "tandem/parameter_server.h"

namespace tandem::distribute {
ParameterServerStrategy::ParameterServerStrategy(const ClusterResolver& cluster,
                                                 const ParameterServerOptions& options)
    : Strategy(ps::connect(cluster, options)) {}

ParameterServerStrategy::ParameterServerStrategy(std::shared_ptr<ps::ParameterServerImpl> impl)
    : Strategy(std::move(impl)) {}

// --- RemoteValue ---

const ps::RemoteResult& RemoteValue::result() const {
  if (!result_)
    throw FailedPreconditionError(
        "[RemoteValue] expected the result of ClusterCoordinator::schedule(), got an empty value");
  return *result_;
}

RemoteValueStatus RemoteValue::status() const {
  switch (result().state()) {
    case ps::RemoteResult::State::kNotReady: return RemoteValueStatus::kNotReady;
    case ps::RemoteResult::State::kAborted: return RemoteValueStatus::kAborted;
    case ps::RemoteResult::State::kReady: break;
  }
  return RemoteValueStatus::kReady;
}

std::vector<Tensor> RemoteValue::fetch_all() const {
  return result().wait(ps::RemoteResult::kLimit);
}

Tensor RemoteValue::fetch() const {
  std::vector<Tensor> tensors = fetch_all();
  if (tensors.size() != 1)
    fail<InvalidArgumentError>(
        "[RemoteValue] the result has {} tensors, expected one; use fetch_all()", tensors.size());
  return std::move(tensors.front());
}

// --- PerWorkerDataset ---

class PerWorkerDataset::State {
 public:
  State(std::shared_ptr<ps::ParameterServerImpl> impl, data::DatasetDescription dataset)
      : impl_(std::move(impl)),
        iterator_(data::dataset_elsewhere(dataset.element_spec).iterate()),
        id_(impl_->add_iterator(std::move(dataset), iterator_.pass())) {}
  ~State() { impl_->remove_iterator(id_); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const data::Iterator& iterator() const { return iterator_; }

 private:
  std::shared_ptr<ps::ParameterServerImpl> impl_;
  data::Iterator iterator_;
  std::uint64_t id_;
};

const data::Iterator& PerWorkerDataset::traced() const {
  if (!state_)
    throw FailedPreconditionError(
        "[PerWorkerDataset] expected the result of "
        "ClusterCoordinator::create_per_worker_dataset(), got an empty value");
  return state_->iterator();
}

// --- PerWorkerValues ---

class PerWorkerValues::State {
 public:
  State(std::shared_ptr<ps::ParameterServerImpl> impl, std::vector<Tensor> values)
      : tensor(values.front().detach()),
        values_(std::make_shared<const std::vector<Tensor>>(std::move(values))),
        impl_(std::move(impl)) {
    impl_->add_values(tensor, values_);
  }
  ~State() { impl_->remove_values(tensor); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const std::vector<Tensor>& values() const { return *values_; }

  const Tensor tensor;  // of this object alone

 private:
  std::shared_ptr<const std::vector<Tensor>> values_;
  std::shared_ptr<ps::ParameterServerImpl> impl_;
};

const PerWorkerValues::State& PerWorkerValues::state() const {
  if (!state_)
    throw FailedPreconditionError(
        "[PerWorkerValues] expected the result of "
        "ClusterCoordinator::create_per_worker_values(), got an empty value");
  return *state_;
}

const Tensor& PerWorkerValues::tensor() const { return state().tensor; }

Tensor PerWorkerValues::value(std::size_t worker) const {
  const std::vector<Tensor>& values = state().values();
  if (worker >= values.size())
    fail<OutOfRangeError>("[PerWorkerValues] expected a worker below {}, got {}", values.size(),
                          worker);
  return values[worker];
}

// --- ClusterCoordinator ---

ClusterCoordinator::ClusterCoordinator(const Strategy& strategy)
    : impl_(std::dynamic_pointer_cast<ps::ParameterServerImpl>(strategy.impl())) {
  if (!impl_)
    fail<InvalidArgumentError>(
        "Only ParameterServerStrategy is supported to work with ClusterCoordinator currently. (got "
        "{})",
        strategy.name());
}

RemoteValue ClusterCoordinator::start(const std::function<tandem::detail::TracedCall()>& trace) {
  if (context.graph)
    throw FailedPreconditionError(
        "[ClusterCoordinator] schedule() was called while a function is traced: call it outside");
  tandem::detail::TracedCall call;
  {
    const StrategyScope scope(impl_);
    call = trace();
  }
  std::vector<std::uint64_t> iterators;
  for (const auto& pass : call.passes) iterators.push_back(impl_->iterator_of(*pass));
  std::vector<ps::Coordinator::WorkersArgument> workers = impl_->workers_arguments(call.inputs);
  return RemoteValue(impl_->scheduler().schedule(call.function, std::move(call.inputs),
                                                 std::move(iterators), std::move(workers)));
}

PerWorkerDataset ClusterCoordinator::create_per_worker_dataset(const data::Dataset& dataset) {
  return PerWorkerDataset(
      std::make_shared<PerWorkerDataset::State>(impl_, data::describe(dataset)));
}

PerWorkerDataset ClusterCoordinator::create_per_worker_dataset(const DistributedDataset& dataset) {
  return create_per_worker_dataset(dataset.dataset_of(impl_.get()));
}

PerWorkerDataset ClusterCoordinator::create_per_worker_dataset(const data::DatasetFn& make) {
  return create_per_worker_dataset(data::call_dataset_fn(make, {}));
}

PerWorkerValues ClusterCoordinator::create_per_worker_values(
    const std::function<Tensor(int worker)>& make) {
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < impl_->num_workers(); ++i) {
    const Tensor& value = values.emplace_back(make(static_cast<int>(i)).detach());
    if (value.dtype() != values[0].dtype() || value.shape() != values[0].shape())
      fail<InvalidArgumentError>(
          "[ClusterCoordinator] expected a value of shape {} and dtype {} for worker {}, as for "
          "worker 0, got {} and {}",
          values[0].shape().to_string(), name_of(values[0].dtype()), i, value.shape().to_string(),
          name_of(value.dtype()));
  }
  return PerWorkerValues(std::make_shared<PerWorkerValues::State>(impl_, std::move(values)));
}

void ClusterCoordinator::join() { impl_->coordinator().join(); }

bool ClusterCoordinator::done() { return impl_->coordinator().done(); }

ClusterStatistics ClusterCoordinator::statistics() const {
  const ps::Coordinator::Counts counts = impl_->coordinator().counts();
  const ps::Staleness& staleness = counts.staleness;
  return {.calls_finished = counts.finished,
          .calls_repeated = counts.put_back,
          .workers_lost = counts.lost_workers,
          .updates = static_cast<std::int64_t>(staleness.updates),
          .calls_recomputed = static_cast<std::int64_t>(staleness.recomputed),
          .mean_staleness = staleness.measured == 0 ? 0.0
                                                    : static_cast<double>(staleness.sum) /
                                                          static_cast<double>(staleness.measured),
          .max_staleness = static_cast<std::int64_t>(staleness.max),
          .updates_lost = counts.updates_lost};
}

std::vector<Tensor> ClusterCoordinator::fetch(const std::vector<RemoteValue>& values) const {
  std::vector<Tensor> tensors;
  tensors.reserve(values.size());
  for (const RemoteValue& value : values) tensors.push_back(value.fetch());
  return tensors;
}

}  // namespace tandem::distribute
