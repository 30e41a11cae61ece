// TPUStrategy: replicas that are traced like those of MirroredStrategy, and whose devices run the
// traces as one compiled program (graph/compiled_region.h).
#include "tandem/tpu.h"

#include "core/status.h"
#include "device/device_manager.h"
#include "distribute/local_strategy.h"
#include "distribute/tpu_system.h"
#include "graph/graph.h"

namespace tandem::distribute {
namespace {

constexpr const char* kTpuStrategy = "TPUStrategy";

// The devices that the options name; empty for all TPUs.
std::vector<std::string> names_of(const TPUStrategyOptions& options) {
  if (!options.device_assignment) return options.devices;
  if (!options.devices.empty())
    fail<InvalidArgumentError>("[{}] expected either devices or a device_assignment, got both",
                               kTpuStrategy);
  const DeviceAssignment& assignment = *options.device_assignment;
  if (assignment.num_cores_per_replica() != 1)
    fail<UnimplementedError>("[{}] expected replicas of one core, got {} cores per replica",
                             kTpuStrategy, assignment.num_cores_per_replica());
  std::vector<std::string> names;
  for (int replica = 0; replica < assignment.num_replicas(); ++replica) {
    const int task =
        assignment.topology().task_ordinal_at_coordinates(assignment.coordinates(replica, 0));
    if (task != 0)
      fail<InvalidArgumentError>(
          "[{}] expected replicas on the TPUs of this process, task 0; replica {} is on task {}",
          kTpuStrategy, replica, task);
    names.push_back(fmt::format("TPU:{}", assignment.tpu_ordinal(replica)));
  }
  return names;
}

std::vector<Device*> tpus(const std::vector<std::string>& names) {
  std::vector<Device*> devices;
  if (names.empty()) {
    const auto all = DeviceManager::get().devices(DeviceType::kTpu, kTpuStrategy);
    devices.assign(all.begin(), all.end());
  } else {
    devices = replica_devices(names, kTpuStrategy);
    for (const Device* device : devices)
      if (device->type() != DeviceType::kTpu)
        fail<InvalidArgumentError>("[{}] expected TPUs, got {}", kTpuStrategy, device->full_name());
  }
  if (devices.empty())
    fail<NotFoundError>(
        "TPUs not found in the cluster. Load the PJRT plug-in of an accelerator by "
        "config::load_pjrt_plugin() or TANDEM_PJRT_PLUGIN; available devices are {}",
        DeviceManager::get().describe_devices());
  return devices;
}

class TpuImpl final : public LocalStrategy {
 public:
  explicit TpuImpl(const std::vector<Device*>& devices)
      : LocalStrategy(kTpuStrategy, devices,
                      connect_threads(devices, local_plan_for({}, devices))) {}

  void check_reduce(ReduceOp op, const char* method) const override {
    if (op != ReduceOp::kSum && op != ReduceOp::kMean)
      fail<InvalidArgumentError>(
          "reduce_op={} is not supported. Currently we only support ReduceOp.SUM and "
          "ReduceOp.MEAN in TPUStrategy. (in {}())",
          op == ReduceOp::kMin   ? "MIN"
          : op == ReduceOp::kMax ? "MAX"
                                 : "PRODUCT",
          method);
  }

 private:
  void run_step(const std::function<void(int)>& step, const BatchSplit& split) override {
    if (!building)
      fail<UnimplementedError>(
          "TPUStrategy.run(fn, ...) does not support pure eager execution. please make sure "
          "`strategy.run` is called inside a `tandem::function` (fit: run_eagerly must be false)");
    LocalStrategy::run_step(step, split);
  }
};

}  // namespace

TPUStrategy::TPUStrategy(const TPUStrategyOptions& options)
    : Strategy(std::make_shared<TpuImpl>(tpus(names_of(options)))) {}

TPUStrategy::TPUStrategy(const TPUClusterResolver& resolver, const TPUStrategyOptions& options)
    : TPUStrategy((require_local(resolver, kTpuStrategy), options)) {}

}  // namespace tandem::distribute
