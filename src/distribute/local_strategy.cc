#include "distribute/local_strategy.h"

#include <algorithm>

#include "comm/nccl/nccl_clique.h"
#include "core/joined.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/profile.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "op/record.h"
#include "runtime/autocast.h"
#include "runtime/placement.h"
#include "tandem/random.h"

namespace tandem::distribute {
LocalPlan local_plan_for(const CrossDeviceOps& ops, const std::vector<DeviceImpl*>& devices) {
  LocalPlan plan;
  switch (ops.kind()) {
    case CrossDeviceOps::Kind::kAllReduce: plan.kind = LocalPlan::Kind::kNccl; break;
    case CrossDeviceOps::Kind::kNccl:
      plan.kind = LocalPlan::Kind::kNccl;
      plan.num_packs = ops.num_packs();
      if (const std::string why = why_no_nccl(devices); !why.empty())
        logging::warn("[NcclAllReduce] NCCL is not used: {}. Every replica adds up its share", why);
      break;
    case CrossDeviceOps::Kind::kHierarchicalCopy:
      plan.kind = LocalPlan::Kind::kHierarchical;
      plan.num_packs = ops.num_packs();
      break;
    case CrossDeviceOps::Kind::kReductionToOneDevice:
      plan.kind = LocalPlan::Kind::kToOneDevice;
      if (!ops.device().empty()) {
        DeviceImpl& target = resolve_device(ops.device(), "ReductionToOneDevice");
        const auto found = std::find(devices.begin(), devices.end(), &target);
        if (found == devices.end())
          plan.device = &target;
        else
          plan.root = static_cast<int>(found - devices.begin());
      }
      break;
  }
  return plan;
}

std::vector<DeviceImpl*> replica_devices(const std::vector<std::string>& names, const char* who,
                                         const char* argument) {
  std::vector<DeviceImpl*> devices;
  if (names.empty()) {
    const auto gpus = DeviceManager::get().devices(DeviceType::kGpu, who);
    devices.assign(gpus.begin(), gpus.end());
    if (devices.empty()) devices.push_back(&DeviceManager::get().host());
    return devices;
  }
  for (const std::string& name : names) {
    DeviceImpl& device = resolve_device(name, who);
    if (std::find(devices.begin(), devices.end(), &device) != devices.end())
      fail<InvalidArgumentError>("No duplicates allowed in `{}` argument: ({})", argument,
                                 joined(names, ", "));
    devices.push_back(&device);
  }
  return devices;
}

namespace {

// A variable made inside a replica would have one copy that the other replicas do not know.
class RefuseVariables final : public VariableCreator {
 public:
  RefPtr<VariableImpl> create(const Tensor&, VariableOptions options) override {
    fail<FailedPreconditionError>(
        "[Variable] '{}' was created inside a strategy's replica; create variables in "
        "strategy.scope(), before run() (models and layers make theirs at their first call)",
        options.name);
  }
};

}  // namespace

LocalStrategy::LocalStrategy(std::string name, std::vector<DeviceImpl*> devices,
                             std::shared_ptr<ReplicaConnections> connections,
                             std::optional<std::size_t> writer)
    : StrategyImpl(std::move(name), devices),
      devices_(std::move(devices)),
      connections_(std::move(connections)),
      local_{.strategy = this, .all = {}, .writer = writer.value_or(devices_.size() - 1)},
      replicas_(make_replicas(local_)),
      errors_(devices_.size()),
      threads_(static_cast<int>(devices_.size())) {}

LocalStrategy::~LocalStrategy() = default;

std::vector<std::unique_ptr<Replica>> LocalStrategy::make_replicas(LocalReplicas& local,
                                                                   TracedRun* run) {
  std::vector<std::unique_ptr<Replica>> replicas;
  for (std::size_t id = 0; id < devices_.size(); ++id)
    replicas.push_back(std::make_unique<Replica>(mark(), static_cast<int>(id), *connections_,
                                                 *devices_[id], local, run));
  return replicas;
}

std::vector<bool> LocalStrategy::find_participants(const BatchSplit& split) const {
  std::vector<bool> result(devices_.size(), true);
  if (split.total >= 0 && !requires_all_replicas())
    for (std::size_t id = 0; id < result.size(); ++id) result[id] = split.counts[id] > 0;
  if (split.total == 0 || std::find(result.begin(), result.end(), true) == result.end())
    fail<InvalidArgumentError>("[{}] the step's batch has no examples", name());
  return result;
}

namespace {

Replica& first_active(const std::vector<Replica*>& replicas) {
  return **std::find_if(replicas.begin(), replicas.end(),
                        [](const Replica* replica) { return replica->active(); });
}

}  // namespace

void LocalStrategy::enter(Replica& replica, const std::function<void()>& step) {
  static auto& refuse = *new RefuseVariables;
  const OnDevice on(replica.device());
  const Scoped strategy(context.strategy, this);
  const Scoped mine(context.replica, &replica);
  const Scoped profiled(profile::current_replica, replica.replica_id());
  const Scoped generator(context.generator, &replica.generator());
  const Scoped creator(context.creator, &refuse);
  step();
}

void LocalStrategy::run_replica(int id, const std::function<void(int)>& step) {
  Replica& replica = *replicas_[static_cast<std::size_t>(id)];
  if (!replica.active()) return;
  try {
    const ThreadBudget budget(replica.device().intra_op_threads());
    const AutocastScope one_cache(context.autocast);
    enter(replica, [&] {
      const profile::Span span(
          [] { return profile::Event{.name = "replica step", .lane = profile::Lane::kSteps}; });
      step(id);
    });
    connections_->end_step(id);
  } catch (const std::exception& error) {
    errors_[static_cast<std::size_t>(id)] = std::current_exception();
    connections_->abort(id, error.what());
  } catch (...) {
    errors_[static_cast<std::size_t>(id)] = std::current_exception();
    connections_->abort(id, "an exception of an unknown type");
  }
}

void LocalStrategy::trace(const std::function<void(int)>& step, const BatchSplit& split) {
  const std::vector<bool> participating = find_participants(split);
  TracedRun run{.graph = context.graph,
                .ranks = connections_->program_ranks(participating),
                .root = requires_all_replicas() ? split.leader : 0,
                .agreements = {},
                .elements = {}};
  LocalReplicas local{.strategy = this, .all = {}, .writer = local_.writer};
  const std::vector<std::unique_ptr<Replica>> replicas = make_replicas(local, &run);
  for (Replica* replica : local.all) replica->begin(split, participating);
  const Replica& writer = replicas.front()->writer();
  const auto trace_replica = [&](Replica& replica) {
    enter(replica, [&] { step(replica.local_replica_id()); });
  };
  for (Replica* replica : local.all)
    if (replica->active() && replica != &writer) trace_replica(*replica);
  trace_replica(*local.all[static_cast<std::size_t>(writer.local_replica_id())]);
  Generator::current().follow(first_active(local.all).generator());
}

void LocalStrategy::run_step(const std::function<void(int)>& step, const BatchSplit& split) {
  if (context.graph) {
    trace(step, split);
    return;
  }
  const std::vector<bool> participating = find_participants(split);
  connections_->begin_step(participating);
  local_.builds.store(false, std::memory_order_relaxed);
  local_.built.clear();
  for (Replica* replica : local_.all) replica->begin(split, participating);
  const Context mine = for_worker(context);
  threads_.run([&](int replica) {
    if (replica == 0) return run_replica(replica, step);  // on this thread, in its context
    const Scoped scope(context, mine);
    run_replica(replica, step);
  });
  for (Replica* replica : local_.all) replica->end();
  Generator::current().set_state(first_active(local_.all).generator().state());

  // The error that is not an AbortedError is the cause; AbortedErrors are its consequences.
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
