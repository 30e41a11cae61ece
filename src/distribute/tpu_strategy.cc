// TPUStrategy: replicas that are traced like those of MirroredStrategy, and whose devices run the
// traces as one compiled program (graph/compiled_region.h).
#include "tandem/tpu.h"

#include <atomic>

#include "core/env.h"
#include "core/log.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "distribute/local_strategy.h"
#include "graph/graph.h"

namespace tandem::distribute {
namespace {

constexpr const char* kTpuStrategy = "TPUStrategy";

constinit std::atomic<bool> initialized{false};  // whether the local system is

std::optional<std::string> tpu_of_environment() {
  const auto endpoints = env_string("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS");
  return endpoints ? endpoints : env_string("TPU_NAME");
}

void require_local(const TPUClusterResolver& resolver, const char* who) {
  if (!resolver.is_local())
    fail<UnimplementedError>(
        "[{}] cannot connect to the remote TPU '{}': Tandem runs on devices that are attached to "
        "this host, by their PJRT plug-in (config::load_pjrt_plugin() or TANDEM_PJRT_PLUGIN) and "
        "TPUClusterResolver(\"local\")",
        who, resolver.tpu());
}

TPUClusterResolver system_or_default(const std::optional<TPUClusterResolver>& resolver) {
  if (context.graph)
    fail<RuntimeError>(
        "initialize_tpu_system is not supported within tf.functions.  You should call "
        "initialize_tpu_system outside of your tf.function.");
  return resolver ? *resolver : TPUClusterResolver(tpu_of_environment().value_or("local"));
}

std::vector<DeviceImpl*> tpus(const std::vector<std::string>& names) {
  std::vector<DeviceImpl*> devices;
  if (names.empty()) {
    const auto all = DeviceManager::get().devices(DeviceType::kTpu, kTpuStrategy);
    devices.assign(all.begin(), all.end());
  } else {
    devices = replica_devices(names, kTpuStrategy);
    for (const DeviceImpl* device : devices)
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
  explicit TpuImpl(const std::vector<DeviceImpl*>& devices)
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
    if (!context.graph)
      fail<UnimplementedError>(
          "TPUStrategy.run(fn, ...) does not support pure eager execution. please make sure "
          "`strategy.run` is called inside a `tandem::function` (fit: run_eagerly must be false)");
    LocalStrategy::run_step(step, split);
  }
};

}  // namespace

TPUStrategy::TPUStrategy(const TPUStrategyOptions& options)
    : Strategy(std::make_shared<TpuImpl>(tpus(options.devices))) {}

TPUStrategy::TPUStrategy(const TPUClusterResolver& resolver, const TPUStrategyOptions& options)
    : TPUStrategy((require_local(resolver, kTpuStrategy), options)) {}

TPUClusterResolver::TPUClusterResolver(std::string tpu) : tpu_(std::move(tpu)) {
  if (tpu_.empty()) tpu_ = tpu_of_environment().value_or("");
  if (tpu_.empty())
    fail<InvalidArgumentError>("[TPUClusterResolver] Please provide a TPU Name to connect to.");
}

TPUClusterResolver TPUClusterResolver::connect(const std::string& tpu) {
  TPUClusterResolver resolver(tpu);
  tpu::initialize_tpu_system(resolver);
  return resolver;
}

}  // namespace tandem::distribute

namespace tandem::tpu {

using distribute::TPUClusterResolver;

void initialize_tpu_system(const std::optional<TPUClusterResolver>& resolver) {
  constexpr const char* kName = "initialize_tpu_system";
  const TPUClusterResolver system = distribute::system_or_default(resolver);
  distribute::require_local(system, kName);
  if (distribute::initialized)
    logging::warn(
        "TPU system {} has already been initialized. Reinitializing the TPU can cause previously "
        "created variables on TPU to be lost.",
        system.tpu());
  logging::info("Initializing the TPU system: {}", system.tpu());
  if (DeviceManager::get().devices(DeviceType::kTpu, kName).empty())
    fail<NotFoundError>(
        "TPUs not found in the cluster. Failed in initialization: no TPU is attached to this host: "
        "load the PJRT plug-in of an accelerator by config::load_pjrt_plugin() or "
        "TANDEM_PJRT_PLUGIN");
  distribute::initialized = true;
  logging::info("Finished initializing TPU system.");
}

void shutdown_tpu_system(const std::optional<TPUClusterResolver>& resolver) {
  const TPUClusterResolver system = distribute::system_or_default(resolver);
  if (!system.is_local() || !distribute::initialized)
    logging::warn("You are shutting down a TPU system {} that has not been initialized.",
                  system.tpu());
  distribute::require_local(system, "shutdown_tpu_system");
  logging::info("Shutting down the TPU system: {}", system.tpu());
  distribute::initialized = false;
  logging::info("Finished shutting down TPU system.");
}

}  // namespace tandem::tpu
