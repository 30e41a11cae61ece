#include "distribute/local_strategy.h"

#include <algorithm>

#include "core/parallel.h"
#include "core/profile.h"
#include "core/status.h"
#include "op/record.h"
#include "runtime/placement.h"
#include "tandem/random.h"

namespace tandem::distribute {
namespace {

LocalPlan plan_of(const CrossDeviceOps& ops, const std::vector<Device*>& devices) {
  LocalPlan plan;
  switch (ops.kind()) {
    case CrossDeviceOps::Kind::kAllReduce: plan.kind = LocalPlan::Kind::kSliced; break;
    case CrossDeviceOps::Kind::kHierarchicalCopy:
      plan.kind = LocalPlan::Kind::kHierarchical;
      plan.num_packs = ops.num_packs();
      break;
    case CrossDeviceOps::Kind::kReductionToOneDevice:
      plan.kind = LocalPlan::Kind::kToOneDevice;
      if (!ops.device().empty()) {
        Device& target = resolve_device(ops.device(), "ReductionToOneDevice");
        const auto found = std::find(devices.begin(), devices.end(), &target);
        if (found == devices.end())
          fail<InvalidArgumentError>(
              "[ReductionToOneDevice] reduce_to_device '{}' is not a device of the strategy",
              ops.device());
        plan.root = static_cast<int>(found - devices.begin());
      }
      break;
  }
  return plan;
}

// Inside a replica a variable would have one copy that the others do not know.
class RefuseVariables final : public VariableCreator {
 public:
  RefPtr<VariableImpl> create(const Tensor&, VariableOptions options) override {
    fail<FailedPreconditionError>(
        "[Variable] '{}' was created inside a strategy's replica; create variables in "
        "strategy.scope(), before run() "
        "(models: give the first layer an input_shape, or call build())",
        options.name);
  }
};

}  // namespace

LocalStrategy::LocalStrategy(std::string name, std::vector<Device*> devices,
                             const CrossDeviceOps& cross_device_ops)
    : StrategyImpl(std::move(name)),
      devices_(std::move(devices)),
      plan_(plan_of(cross_device_ops, devices_)),
      group_(std::make_shared<LocalGroup>(devices_, LocalGroupOptions{.plan = plan_})),
      errors_(devices_.size()),
      threads_(static_cast<int>(devices_.size())) {
  for (std::size_t id = 0; id < devices_.size(); ++id) {
    replicas_.push_back(
        std::make_unique<Replica>(static_cast<int>(id), group_, *devices_[id], all_));
    all_.push_back(replicas_.back().get());
  }
}

LocalStrategy::~LocalStrategy() = default;

std::vector<bool> LocalStrategy::active_in(const BatchSplit& split) const {
  std::vector<bool> active(devices_.size(), true);
  if (split.total >= 0)
    for (std::size_t id = 0; id < active.size(); ++id) active[id] = split.counts[id] > 0;
  if (std::find(active.begin(), active.end(), true) == active.end())
    fail<InvalidArgumentError>("[{}] the step's batch has no examples", name());
  return active;
}

void LocalStrategy::begin(const BatchSplit& split) {
  const std::vector<bool> active = active_in(split);
  const random::GeneratorState draws = Generator::current().state();
  for (std::size_t id = 0; id < active.size(); ++id)
    replicas_[id]->begin(active[id], split.total >= 0 ? split.offsets[id] : -1, split.total, draws);
  group_->begin(active);
}

void LocalStrategy::run_replica(int id, const std::function<void(int)>& step) {
  Replica& replica = *replicas_[static_cast<std::size_t>(id)];
  if (!replica.active()) return;
  static RefuseVariables refuse;
  try {
    ThreadBudget budget(replica.device().intra_op_threads());
    OnDevice on(replica.device());
    CurrentStrategyScope strategy(this);
    ReplicaContextScope context(&replica);
    GeneratorScope generator(replica.generator());
    VariableCreatorScope creator(&refuse);
    {
      const profile::Span span(
          [] { return profile::Event{.name = "replica step", .lane = profile::Lane::kSteps}; });
      step(id);
    }
    group_->leave(id);
  } catch (const std::exception& error) {
    errors_[static_cast<std::size_t>(id)] = std::current_exception();
    group_->abort(id, error.what());
  } catch (...) {
    errors_[static_cast<std::size_t>(id)] = std::current_exception();
    group_->abort(id, "an exception of an unknown type");
  }
}

void LocalStrategy::trace(const std::function<void(int)>& step, const BatchSplit& split) {
  const std::vector<bool> active = active_in(split);
  TracedStep traced{.group = nullptr,
                    .rank_of = std::vector<int>(devices_.size(), -1),
                    .devices = devices_,
                    .agreements = {},
                    .replicas = {}};
  std::vector<Device*> ranks;
  LocalPlan plan = plan_;
  plan.root = 0;
  for (std::size_t id = 0; id < devices_.size(); ++id) {
    if (!active[id]) continue;
    if (static_cast<int>(id) == plan_.root) plan.root = static_cast<int>(ranks.size());
    traced.rank_of[id] = static_cast<int>(ranks.size());
    ranks.push_back(devices_[id]);
  }
  traced.group = make_lane_group(std::move(ranks), {.plan = plan});
  for (std::size_t id = 0; id < devices_.size(); ++id)
    traced.replicas.push_back(std::make_unique<TracedReplica>(
        traced, static_cast<int>(id), split.total >= 0 ? split.offsets[id] : -1, split.total));
  static RefuseVariables refuse;
  for (std::size_t id = 0; id < devices_.size(); ++id) {
    if (!active[id]) continue;
    const OnDevice on(*devices_[id]);
    const CurrentStrategyScope strategy(this);
    const ReplicaContextScope context(traced.replicas[id].get());
    const GeneratorScope generator(traced.replicas[id]->generator());
    const VariableCreatorScope creator(&refuse);
    step(static_cast<int>(id));
  }
  Generator::current().follow(
      traced.replicas[static_cast<std::size_t>(traced.first())]->generator());
}

void LocalStrategy::run(const std::function<void(int)>& step, const BatchSplit& split) {
  if (ReplicaContext::current())
    throw RuntimeError(
        "Method requires being in cross-replica context: run() was called inside a replica of a "
        "strategy");
  if (building) {
    trace(step, split);
    return;
  }
  begin(split);
  const bool record = grad_mode;
  threads_.run([&](int replica) {
    const bool previous = grad_mode;
    grad_mode = record;
    run_replica(replica, step);
    grad_mode = previous;
  });
  const auto first = std::find_if(all_.begin(), all_.end(),
                                  [](const Replica* replica) { return replica->active(); });
  Generator::current().set_state((*first)->generator().state());

  // The error that came first is the cause; AbortedErrors are its echo.
  std::exception_ptr cause;
  for (std::exception_ptr& error : errors_) {
    if (!error) continue;
    try {
      std::rethrow_exception(error);
    } catch (const AbortedError&) {
      if (!cause) cause = error;
    } catch (...) {
      cause = error;
      break;
    }
  }
  std::fill(errors_.begin(), errors_.end(), nullptr);
  if (cause) std::rethrow_exception(cause);
}

}  // namespace tandem::distribute
