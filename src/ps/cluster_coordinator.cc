// ParameterServerStrategy and ClusterCoordinator.
#include "core/status.h"
#include "graph/graph.h"
#include "ps/strategy.h"
#include "tandem/parameter_server.h"

namespace tandem::distribute {
namespace {

constexpr std::chrono::milliseconds kResultLimit = std::chrono::hours(24);

}  // namespace

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

std::vector<Tensor> RemoteValue::fetch_all() const { return result().wait(kResultLimit); }

Tensor RemoteValue::fetch() const {
  std::vector<Tensor> tensors = fetch_all();
  if (tensors.size() != 1)
    fail<InvalidArgumentError>(
        "[RemoteValue] the result has {} tensors, expected one; use fetch_all()", tensors.size());
  return std::move(tensors.front());
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
  if (building)
    throw FailedPreconditionError(
        "[ClusterCoordinator] schedule() was called while a function is traced: call it outside");
  tandem::detail::TracedCall call;
  {
    const StrategyScope scope(impl_);
    call = trace();
  }
  return RemoteValue(impl_->scheduler().schedule(call.function, std::move(call.inputs), {}));
}

void ClusterCoordinator::join() { impl_->coordinator().join(); }

bool ClusterCoordinator::done() { return impl_->coordinator().done(); }

std::vector<Tensor> ClusterCoordinator::fetch(const std::vector<RemoteValue>& values) const {
  std::vector<Tensor> tensors;
  tensors.reserve(values.size());
  for (const RemoteValue& value : values) tensors.push_back(value.fetch());
  return tensors;
}

}  // namespace tandem::distribute
