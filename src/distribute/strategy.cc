
#include "core/status.h"
#include "device/device_manager.h"
#include "distribute/local_strategy.h"
#include "distribute/strategy_impl.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "sync/parts.h"
#include "tandem/array.h"

namespace tandem::distribute {

// --- cross-device operations ---

CrossDeviceOps NcclAllReduce(const NcclAllReduceOptions& options) {
  if (options.num_packs < 0)
    fail<InvalidArgumentError>("NCCL all-reduce requires num_packs >= 0, but {} is specified",
                               options.num_packs);
  return CrossDeviceOps(CrossDeviceOps::Kind::kNccl, options.num_packs, {});
}

CrossDeviceOps HierarchicalCopyAllReduce(const HierarchicalCopyOptions& options) {
  if (options.num_packs < 0)
    fail<InvalidArgumentError>("HierarchicalCopy requires num_packs >= 0, but {} is specified",
                               options.num_packs);
  return CrossDeviceOps(CrossDeviceOps::Kind::kHierarchicalCopy, options.num_packs, {});
}

CrossDeviceOps ReductionToOneDevice(const ReductionToOneDeviceOptions& options) {
  return CrossDeviceOps(CrossDeviceOps::Kind::kReductionToOneDevice, 1, options.reduce_to_device);
}

// --- the API of a strategy ---

int Strategy::num_replicas_in_sync() const { return impl_->num_replicas(); }

int Strategy::num_local_replicas() const { return static_cast<int>(impl_->devices().size()); }

std::vector<std::string> Strategy::devices() const {
  std::vector<std::string> names;
  for (const DeviceImpl* device : impl_->devices()) names.push_back(device->full_name());
  return names;
}

std::string Strategy::name() const { return impl_->name(); }
bool Strategy::is_chief() const { return impl_->is_chief(); }

void Strategy::run_replicas(const std::function<void(int)>& step, const BatchSplit& split) const {
  impl_->run(step, split);
}

void Strategy::require_cross_replica(const char* method) const {
  impl_->require_cross_replica(method);
}

std::shared_ptr<const StrategyMark> Strategy::mark() const { return impl_->mark(); }

void Strategy::check_values(std::size_t replicas, const StrategyMark* of,
                            const char* method) const {
  const StrategyMark& mine = *impl_->mark();
  if (of && of != &mine)
    fail_mixed_strategies(
        *of, mine,
        fmt::format("{}() of the second was called with per-replica values of the first; pass "
                    "values of its own datasets or of its own run()",
                    method));
  if (replicas != impl_->devices().size())
    fail<InvalidArgumentError>(
        "[{}] expected per-replica values of {} replica(s), as {} has in this process, got values "
        "of {}",
        method, impl_->devices().size(), mine.description, replicas);
}

DistributedDataset Strategy::experimental_distribute_dataset(const data::Dataset& dataset) const {
  require_cross_replica("experimental_distribute_dataset");
  return DistributedDataset(dataset, impl_);
}

namespace {

// Joins the next `count` batches of a dataset: what the replicas of this process take in one step.
data::Dataset joined_batches(const data::Dataset& dataset, std::size_t count) {
  if (count == 1) return dataset;
  return data::Dataset::from_generator(std::function<data::GeneratorFn()>([dataset, count] {
    const auto cursor = std::make_shared<data::Iterator::Cursor>(dataset.begin());
    return data::GeneratorFn([cursor, count]() -> std::optional<data::Example> {
      std::vector<std::vector<Tensor>> components;
      for (std::size_t i = 0; i < count && *cursor != std::default_sentinel; ++i, ++*cursor) {
        const data::Example& batch = **cursor;
        components.resize(batch.size());
        for (std::size_t k = 0; k < batch.size(); ++k) components[k].push_back(batch[k]);
      }
      if (components.empty()) return std::nullopt;
      std::vector<Tensor> joined;
      for (const std::vector<Tensor>& parts : components) joined.push_back(concat(parts, 0));
      return data::Example(std::move(joined));
    });
  }));
}

}  // namespace

DistributedDataset Strategy::distribute_datasets_from_function(
    const std::function<data::Dataset(const InputContext&)>& make) const {
  require_cross_replica("distribute_datasets_from_function");
  const int local = num_local_replicas();
  InputContext context;
  context.num_input_pipelines = num_replicas_in_sync() / local;
  context.input_pipeline_id = impl_->first_replica() / local;
  context.num_replicas_in_sync = num_replicas_in_sync();
  const data::Dataset dataset = make(context);
  return DistributedDataset(joined_batches(dataset, static_cast<std::size_t>(local))
                                .with_auto_shard(data::AutoShardPolicy::kOff),
                            impl_);
}

// --- the kinds of strategies ---

namespace {

// A single replica that leaves the placement of operations alone.
class DefaultImpl final : public StrategyImpl {
 public:
  DefaultImpl() : StrategyImpl("DefaultStrategy") {}
  bool is_default() const override { return true; }
  const std::vector<DeviceImpl*>& devices() const override {
    static const auto& devices =
        *new const std::vector<DeviceImpl*>{&place_constant("DefaultStrategy")};
    return devices;
  }
  RefPtr<VariableImpl> create(const Tensor& initial_value, VariableOptions options) override {
    DeviceImpl* device = &place_constant("VarHandleOp");
    return make_ref<VariableImpl>(initial_value, std::span(&device, 1), std::move(options));
  }

 private:
  void run_step(const std::function<void(int)>& step, const BatchSplit&) override { step(0); }
};

}  // namespace

const std::shared_ptr<StrategyImpl>& default_strategy() {
  static const auto& strategy = *new const std::shared_ptr<StrategyImpl>(new DefaultImpl);
  return strategy;
}

DefaultStrategy::DefaultStrategy() : Strategy(default_strategy()) {}

namespace {

std::shared_ptr<LocalStrategy> make_local(const char* name, const std::vector<DeviceImpl*>& devices,
                                          const CrossDeviceOps& ops = {}) {
  return std::make_shared<LocalStrategy>(name, devices,
                                         connect_threads(devices, local_plan_for(ops, devices)));
}

}  // namespace

OneDeviceStrategy::OneDeviceStrategy(const std::string& device)
    : Strategy(make_local("OneDeviceStrategy", {&resolve_device(device, "OneDeviceStrategy")})) {}

MirroredStrategy::MirroredStrategy(const MirroredOptions& options)
    : Strategy(make_local("MirroredStrategy", replica_devices(options.devices, "MirroredStrategy"),
                          options.cross_device_ops)) {}

// --- scopes ---

struct StrategyScope::State {
  explicit State(const std::shared_ptr<StrategyImpl>& entered)
      : runner(entered),
        strategy(context.strategy, entered.get()),
        creator(context.creator, entered.get()) {}

  std::shared_ptr<StepRunner> runner;
  Scoped<StrategyImpl*> strategy;
  Scoped<VariableCreator*> creator;
  Scoped<const std::shared_ptr<StepRunner>*> runner_scope{context.runner, &runner};
};

StrategyScope::StrategyScope(std::shared_ptr<StrategyImpl> strategy) {
  if (ReplicaContext::current())
    throw RuntimeError(
        "Must not be called inside a replica: a strategy's scope was opened inside run()");
  if (context.strategy && context.strategy != strategy.get())
    fail_mixed_strategies(*context.strategy->mark(), *strategy->mark(),
                          "The scope of the second was opened inside that of the first; close that "
                          "one before, or use one strategy for both");
  state_ = std::make_unique<State>(strategy);
}

StrategyScope::~StrategyScope() = default;

Strategy get_strategy() {
  return Strategy(context.strategy ? context.strategy->shared_from_this() : default_strategy());
}
bool has_strategy() { return context.strategy && !context.strategy->is_default(); }
bool in_replica_context() { return !in_cross_replica_context(); }
bool in_cross_replica_context() { return has_strategy() && !ReplicaContext::current(); }
std::vector<Tensor> detail::for_each_part(const data::Example& examples,
                                          const tandem::detail::PartStep& step) {
  if (in_cross_replica_context())
    throw RuntimeError(
        "for_each_part() was called between a strategy's steps, expected inside a replica: call it "
        "in the step that run() runs");
  return sum_over_parts(examples.components(), ReplicaContext::current(),
                        [&](const std::vector<Tensor>& part) { return step(data::Example(part)); });
}

int replica_id_in_sync_group() { return context.replica ? context.replica->replica_id() : 0; }

}  // namespace tandem::distribute
