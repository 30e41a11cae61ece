#include <algorithm>
#include <set>

#include "core/status.h"
#include "device/device_manager.h"
#include "distribute/local_strategy.h"
#include "distribute/strategy_impl.h"
#include "ops/math/element_count.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem::distribute {

// --- cross-device operations ---

CrossDeviceOps HierarchicalCopyAllReduce(const HierarchicalCopyOptions& options) {
  if (options.num_packs < 0)
    fail<InvalidArgumentError>("HierarchicalCopy requires num_packs >= 0, but {} is specified",
                               options.num_packs);
  return CrossDeviceOps(CrossDeviceOps::Kind::kHierarchicalCopy, options.num_packs, {});
}

CrossDeviceOps ReductionToOneDevice(const ReductionToOneDeviceOptions& options) {
  return CrossDeviceOps(CrossDeviceOps::Kind::kReductionToOneDevice, 1, options.reduce_to_device);
}

BatchSplit BatchSplit::even(std::int64_t examples, int replicas) {
  BatchSplit split;
  split.total = examples;
  std::int64_t offset = 0;
  for (int replica = 0; replica < replicas; ++replica) {
    const std::int64_t count = examples / replicas + (replica < examples % replicas ? 1 : 0);
    split.offsets.push_back(offset);
    split.counts.push_back(count);
    offset += count;
  }
  return split;
}

// --- the faces of a strategy ---

int Strategy::num_replicas_in_sync() const { return impl_->num_replicas(); }

std::vector<std::string> Strategy::devices() const {
  std::vector<std::string> names;
  for (const Device* device : impl_->devices()) names.push_back(device->full_name());
  return names;
}

std::string Strategy::name() const { return impl_->name(); }

void Strategy::run_replicas(const std::function<void(int)>& step, const BatchSplit& split) const {
  impl_->run(step, split);
}

namespace {

// The present values, on the first replica's device.
std::vector<Tensor> collect(StrategyImpl& strategy, const PerReplica<Tensor>& value,
                            const char* what) {
  std::vector<Tensor> tensors;
  Device& device = *strategy.devices().front();
  for (std::size_t replica = 0; replica < value.size(); ++replica)
    if (value.present(replica)) tensors.push_back(copy_to_device(value[replica], device));
  if (tensors.empty()) fail<InvalidArgumentError>("[{}] no replica has a value", what);
  return tensors;
}

Tensor combine(ReduceOp op, const std::vector<Tensor>& tensors) {
  if (tensors.size() == 1) return tensors.front();
  if (op == ReduceOp::kSum) return add_n(tensors);
  if (op == ReduceOp::kMean) return divide(add_n(tensors), static_cast<double>(tensors.size()));
  Tensor result = tensors.front();
  for (std::size_t i = 1; i < tensors.size(); ++i)
    result = op == ReduceOp::kMin   ? minimum(result, tensors[i])
             : op == ReduceOp::kMax ? maximum(result, tensors[i])
                                    : multiply(result, tensors[i]);
  return result;
}

Tensor reduce_axis(ReduceOp op, const Tensor& tensor, std::int64_t axis) {
  const ReduceOptions options{.axis = Dims{axis}};
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean: return reduce_sum(tensor, options);
    case ReduceOp::kMin: return reduce_min(tensor, options);
    case ReduceOp::kMax: return reduce_max(tensor, options);
    case ReduceOp::kProduct: return reduce_prod(tensor, options);
  }
  return tensor;
}

}  // namespace

Tensor Strategy::reduce(ReduceOp op, const PerReplica<Tensor>& value,
                        std::optional<std::int64_t> axis) const {
  std::vector<Tensor> tensors = collect(*impl_, value, "reduce");
  OnDevice on(*impl_->devices().front());
  if (!axis) return combine(op, tensors);
  std::int64_t elements = 0;
  std::vector<Tensor> counts;  // of what is not known before the graph runs
  for (Tensor& tensor : tensors) {
    const std::int64_t size = tensor.dim(*axis);
    if (size >= 0)
      elements += size;
    else
      counts.push_back(element_count({size}, tensor.dtype()));
    tensor = reduce_axis(op, tensor, *axis);
  }
  if (op != ReduceOp::kMean) return combine(op, tensors);
  const Tensor sum = combine(ReduceOp::kSum, tensors);
  if (counts.empty()) return divide(sum, static_cast<double>(elements));
  return divide(sum, add(add_n(counts), static_cast<double>(elements)));
}

Tensor Strategy::reduce(ReduceOp op, const Tensor& value, std::optional<std::int64_t> axis) const {
  return reduce(op, PerReplica<Tensor>(std::vector<Tensor>{value}), axis);
}

Tensor Strategy::gather(const PerReplica<Tensor>& value, std::int64_t axis) const {
  const std::vector<Tensor> tensors = collect(*impl_, value, "gather");
  OnDevice on(*impl_->devices().front());
  return concat(tensors, axis);
}

DistributedDataset Strategy::experimental_distribute_dataset(const data::Dataset& dataset) const {
  return DistributedDataset(dataset, impl_);
}

// --- the kinds ---

namespace {

// One replica, wherever operations go by themselves.
class DefaultImpl final : public StrategyImpl {
 public:
  DefaultImpl() : StrategyImpl("DefaultStrategy") {}
  bool is_default() const override { return true; }
  const std::vector<Device*>& devices() const override {
    static const std::vector<Device*> devices = {&place_constant("DefaultStrategy")};
    return devices;
  }
  void run(const std::function<void(int)>& step, const BatchSplit&) override { step(0); }
  RefPtr<VariableImpl> create(const Tensor& initial_value, VariableOptions options) override {
    Device* device = &place_constant("VarHandleOp");
    return make_ref<VariableImpl>(initial_value, std::span(&device, 1), std::move(options));
  }
};

std::vector<Device*> mirrored_devices(const MirroredOptions& options) {
  std::vector<Device*> devices;
  if (options.devices.empty()) {
    const auto gpus = DeviceManager::get().devices(DeviceType::kGpu, "MirroredStrategy");
    devices.assign(gpus.begin(), gpus.end());
    if (devices.empty()) devices.push_back(&DeviceManager::get().host());
    return devices;
  }
  for (const std::string& name : options.devices) {
    Device& device = resolve_device(name, "MirroredStrategy");
    if (std::find(devices.begin(), devices.end(), &device) != devices.end())
      fail<InvalidArgumentError>("No duplicates allowed in `devices` argument: ({})",
                                 fmt::join(options.devices, ", "));
    devices.push_back(&device);
  }
  return devices;
}

}  // namespace

const std::shared_ptr<StrategyImpl>& default_strategy() {
  static const std::shared_ptr<StrategyImpl> strategy = std::make_shared<DefaultImpl>();
  return strategy;
}

DefaultStrategy::DefaultStrategy() : Strategy(default_strategy()) {}

OneDeviceStrategy::OneDeviceStrategy(const std::string& device)
    : Strategy(std::make_shared<LocalStrategy>(
          "OneDeviceStrategy", std::vector<Device*>{&resolve_device(device, "OneDeviceStrategy")},
          CrossDeviceOps())) {}

MirroredStrategy::MirroredStrategy(const MirroredOptions& options)
    : Strategy(std::make_shared<LocalStrategy>("MirroredStrategy", mirrored_devices(options),
                                               options.cross_device_ops)) {}

// --- scopes ---

namespace {

thread_local StrategyImpl* current = nullptr;

}  // namespace

StrategyImpl* current_strategy() { return current; }

CurrentStrategyScope::CurrentStrategyScope(StrategyImpl* strategy) : previous_(current) {
  current = strategy;
}
CurrentStrategyScope::~CurrentStrategyScope() { current = previous_; }

struct StrategyScope::State {
  explicit State(const std::shared_ptr<StrategyImpl>& entered)
      : strategy(entered), mark(entered.get()), creator(entered.get()), runner(entered->runner()) {}
  std::shared_ptr<StrategyImpl> strategy;
  CurrentStrategyScope mark;
  VariableCreatorScope creator;
  ReplicaRunnerScope runner;
};

StrategyScope::StrategyScope(std::shared_ptr<StrategyImpl> strategy) {
  if (ReplicaContext::current())
    throw RuntimeError(
        "Must not be called inside a replica: a strategy's scope was opened inside run()");
  if (current && current != strategy.get())
    fail<RuntimeError>("Mixing different tandem::distribute::Strategy objects: {} is not {}",
                       current->name(), strategy->name());
  state_ = std::make_unique<State>(strategy);
}

StrategyScope::~StrategyScope() = default;

Strategy get_strategy() {
  return Strategy(current ? current->shared_from_this() : default_strategy());
}
bool has_strategy() { return current && !current->is_default(); }
bool in_replica_context() { return !in_cross_replica_context(); }
bool in_cross_replica_context() { return has_strategy() && !ReplicaContext::current(); }
int replica_id_in_sync_group() {
  const ReplicaContext* context = ReplicaContext::current();
  return context ? context->replica_id() : 0;
}

}  // namespace tandem::distribute
