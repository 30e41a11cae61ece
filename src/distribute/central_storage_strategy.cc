// CentralStorageStrategy: one thread per device, and one copy of each variable.

#include <algorithm>

#include "core/joined.h"
#include "core/log.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "distribute/local_strategy.h"
#include "runtime/placement.h"
#include "tensor/tensor_impl.h"

namespace tandem::distribute {
namespace {

constexpr const char* kCentralStorage = "CentralStorageStrategy";

std::unique_ptr<ReplicaConnections> connect(const std::vector<DeviceImpl*>& devices,
                                            DeviceImpl& home) {
  return connect_threads(
      devices,
      local_plan_for(ReductionToOneDevice({.reduce_to_device = home.full_name()}), devices));
}

// The replica on the parameter device if there is one, because a program keeps the order of the
// operations on a device; else the last one.
std::size_t writer_of(const std::vector<DeviceImpl*>& devices, DeviceImpl& home) {
  const auto found = std::ranges::find(devices, &home);
  return static_cast<std::size_t>(found == devices.end() ? std::ssize(devices) - 1
                                                         : found - devices.begin());
}

class CentralStorageImpl final : public LocalStrategy {
 public:
  CentralStorageImpl(const std::vector<DeviceImpl*>& compute_devices, DeviceImpl& parameter_device)
      : LocalStrategy(kCentralStorage, compute_devices, connect(compute_devices, parameter_device),
                      writer_of(compute_devices, parameter_device)),
        parameter_device_(parameter_device) {}

  DeviceImpl& parameter_device() const { return parameter_device_; }

  RefPtr<VariableImpl> create(const Tensor& initial_value, VariableOptions options) override {
    if (devices().size() > 1) check_aggregation(options);
    // There are no copies to be combined when the variable is read.
    if (options.synchronization == VariableSynchronization::kOnRead)
      options.synchronization = VariableSynchronization::kOnWrite;
    if (devices().size() == 1 && devices().front() == &parameter_device_)
      return LocalStrategy::create(initial_value, std::move(options));
    const bool trainable = options.trainable && is_floating(initial_value.dtype());
    auto storage =
        shared_copy(initial_value, parameter_device_, devices(),
                    writer_of(devices(), parameter_device_), trainable, MemoryTag::kWeights);
    return make_ref<VariableImpl>(std::move(storage), impl_of(initial_value), std::move(options),
                                  nullptr, mark());
  }

 private:
  static void check_aggregation(const VariableOptions& options) {
    switch (options.aggregation) {
      case VariableAggregation::kNone:
      case VariableAggregation::kSum:
      case VariableAggregation::kMean:
      case VariableAggregation::kOnlyFirstReplica: return;
    }
    fail<InvalidArgumentError>("Invalid variable aggregation mode: {} for variable: {}",
                               static_cast<int>(options.aggregation), options.name);
  }

  DeviceImpl& parameter_device_;
};

std::shared_ptr<CentralStorageImpl> make(const CentralStorageOptions& options) {
  const std::vector<DeviceImpl*> devices =
      replica_devices(options.compute_devices, kCentralStorage, "compute_devices");
  DeviceImpl& parameters = !options.parameter_device.empty()
                               ? resolve_device(options.parameter_device, kCentralStorage)
                           : devices.size() == 1 ? *devices.front()
                                                 : DeviceManager::get().host();
  std::vector<std::string> names;
  for (const DeviceImpl* device : devices) names.push_back("'" + device->full_name() + "'");
  logging::info(
      "ParameterServerStrategy (CentralStorageStrategy if you are using a single machine) with "
      "compute_devices = [{}], variable_device = '{}'",
      joined(names, ", "), parameters.full_name());
  return std::make_shared<CentralStorageImpl>(devices, parameters);
}

}  // namespace

CentralStorageStrategy::CentralStorageStrategy(const CentralStorageOptions& options)
    : Strategy(make(options)) {}

const std::string& CentralStorageStrategy::parameter_device() const {
  return static_cast<const CentralStorageImpl&>(*impl()).parameter_device().full_name();
}

}  // namespace tandem::distribute
