#include "runtime/placement.h"

#include <atomic>
#include <string>

#include "core/status.h"
#include "device/device_manager.h"
#include "op/find_kernel.h"
#include "runtime/placement_errors.h"
#include "tandem/config.h"
#include "tandem/device.h"

namespace tandem {

namespace {

std::atomic<bool> soft_placement{true};
std::atomic<bool> log_placement{false};

// The default devices.
struct Defaults {
  DeviceImpl* cpu = nullptr;
  DeviceImpl* gpu = nullptr;  // null if there is none
};

// `initializer`: reported as the reason for the initialisation of devices, if this is the first
// use.
Defaults find_defaults(std::string_view initializer) {
  DeviceManager& manager = DeviceManager::get();
  const auto gpus = manager.devices(DeviceType::kGpu, initializer);
  return {&manager.host(), gpus.empty() ? nullptr : gpus.front()};
}

// Devices live as long as the process, so they are looked up once.
const Defaults& defaults(std::string_view initializer) {
  static const Defaults found = find_defaults(initializer);
  return found;
}

DeviceImpl& default_device(const OpDef& op) {
  const Defaults& devices = defaults(op.name);
  if (devices.gpu && (find_kernel(op, devices.gpu->backend()) || (op.traits & kView) != 0))
    return *devices.gpu;
  return *devices.cpu;
}

bool has_kernel(const OpDef& op, const DeviceImpl& device) {
  return (op.traits & kView) != 0 || find_kernel(op, device.backend()) != nullptr;
}

// The devices that match a name, GPUs before CPUs before TPUs, by index.
std::vector<DeviceImpl*> matching(const DeviceName& name, std::string_view by) {
  std::vector<DeviceImpl*> found;
  for (DeviceType type : {DeviceType::kGpu, DeviceType::kCpu, DeviceType::kTpu})
    for (DeviceImpl* device : DeviceManager::get().devices(type, by))
      if (is_specification(name, device->name())) found.push_back(device);
  return found;
}

[[noreturn]] void no_such_device(std::string_view what, const PlacementFrame& frame) {
  fail<InvalidArgumentError>("Cannot assign a device for operation {}: {}", what,
                             missing_device(what, *frame.name, frame.text));
}

[[noreturn]] void no_kernel(const OpDef& op, const PlacementFrame& frame) {
  fail<InvalidArgumentError>(
      "Cannot assign a device for operation {}: Could not satisfy explicit device specification "
      "'{}' because no "
      "supported kernel for {} devices is available. All available devices {}. Soft placement "
      "(tandem::config::set_soft_device_placement) would run it on another device.",
      op.name, frame.text, frame.name->type.value_or("such"),
      DeviceManager::get().describe_devices());
}

bool same_process(const DeviceName& name) {
  DeviceName process = DeviceManager::get().host().name();
  return (!name.job || name.job == process.job) &&
         (!name.replica || name.replica == process.replica) &&
         (!name.task || name.task == process.task);
}

// The device that the frame requests. place() handles the common case.
DeviceImpl& place_in_frame(const OpDef& op, const PlacementFrame& frame) {
  const auto candidates = matching(*frame.name, op.name);
  for (DeviceImpl* device : candidates)
    if (has_kernel(op, *device)) return *device;
  // Soft placement relaxes the type and the id, never job, replica or task.
  if (soft_placement.load(std::memory_order_relaxed) && same_process(*frame.name))
    return default_device(op);
  if (candidates.empty()) no_such_device(op.name, frame);
  no_kernel(op, frame);
}

DeviceImpl* resolve(const PlacementFrame& frame, std::string_view by) {
  if (!frame.resolved) {
    const auto candidates = matching(*frame.name, by);
    frame.device = candidates.empty() ? nullptr : candidates.front();
    frame.resolved = true;
  }
  return frame.device;
}

}  // namespace

DeviceImpl& place(const OpDef& op, std::span<const Tensor* const> inputs) {
  if (op.mutated_inputs != 0) return impl_of(*inputs[0]).device();
  if (const PlacementFrame* frame = context.placement) {
    DeviceImpl* device = resolve(*frame, op.name);
    if (device && has_kernel(op, *device)) [[likely]]
      return *device;
    return place_in_frame(op, *frame);
  }
  if ((op.traits & (kView | kMetadata)) != 0 && !inputs.empty()) {
    DeviceImpl& device = impl_of(*inputs[0]).device();
    if (has_kernel(op, device)) return device;
  }
  return default_device(op);
}

DeviceImpl& place_constant(std::string_view what) {
  if (const PlacementFrame* frame = context.placement) {
    if (DeviceImpl* device = resolve(*frame, what)) return *device;
    if (!soft_placement.load(std::memory_order_relaxed) || !same_process(*frame->name))
      no_such_device(what, *frame);
  }
  const Defaults& devices = defaults(what);
  return devices.gpu ? *devices.gpu : *devices.cpu;
}

DeviceImpl& resolve_device(std::string_view name, std::string_view for_whom) {
  const DeviceName parsed = DeviceName::parse(name);
  const auto candidates = matching(parsed, for_whom);
  if (candidates.empty())
    fail<InvalidArgumentError>("[{}] there is no device '{}'; available devices are {}", for_whom,
                               name, DeviceManager::get().describe_devices());
  return *candidates.front();
}

void log_execution(std::string_view op, const DeviceImpl& device) {
  if (log_placement.load(std::memory_order_relaxed)) [[unlikely]]
    fmt::print(stderr, "Executing op {} in device {}\n", op, device.full_name());
}

void log_call(std::string_view function, std::size_t number) {
  if (log_placement.load(std::memory_order_relaxed)) [[unlikely]]
    log_execution(fmt::format("__inference_{}_{}", function, number), place_constant(function));
}

void OnDeviceOf::enter(DeviceImpl& device) {
  frame_ = {&device.name(), device.full_name(), &device, true};
  context.placement = &frame_;
}

void OnDeviceOf::enter(const DeviceName& requested, std::string_view text) {
  if (requested == DeviceName()) return;
  frame_ = {&requested, text, nullptr, false};
  context.placement = &frame_;
}

OnDeviceOf::OnDeviceOf(const Tensor& tensor) {
  if (!is_symbolic(tensor)) {
    enter(impl_of(tensor).device());
  } else {
    const Node& node = *symbol_of(tensor).node;
    enter(node.requested, node.requested_text);
  }
}

OnDeviceOf::OnDeviceOf(const OpNode& node) {
  if (node.device)
    enter(*node.device);
  else if (node.requested)
    enter(node.requested->device, node.requested->text);
}

NodeOptions node_options(std::string_view name) {
  if (!context.placement) return {.name = name};
  return {.requested = context.placement->name,
          .requested_text = context.placement->text,
          .name = name};
}

struct DeviceScope::Saved {
  DeviceName name;
  std::string text;
  PlacementFrame frame;
  Scoped<const PlacementFrame*> scope{context.placement, context.placement};
};

DeviceScope::DeviceScope(std::string_view device) : saved_(std::make_unique<Saved>()) {
  saved_->text = device;
  const DeviceName inner = DeviceName::parse(device);
  if (inner == DeviceName()) {  // resets to the default placement
    context.placement = nullptr;
    return;
  }
  saved_->name = context.placement ? nest(*context.placement->name, inner) : inner;
  saved_->frame = {&saved_->name, saved_->text, nullptr, false};
  context.placement = &saved_->frame;
}

DeviceScope::~DeviceScope() = default;

void synchronize() {
  if (!DeviceManager::get().initialized()) return;
  for (DeviceImpl* device : DeviceManager::get().devices("synchronize"))
    device->stream().synchronize();
}

namespace cuda {
namespace {
thread_local PlacementFrame chosen_gpu;  // of the calling thread; unresolved before set_device()
}  // namespace

void set_device(int index) {
  if (context.placement && context.placement != &chosen_gpu)
    fail<FailedPreconditionError>(
        "[set_device] a td::DeviceScope is open on this thread: call set_device() outside of it, "
        "or open a td::DeviceScope");
  DeviceImpl& device = resolve_device(Device(DeviceType::kGpu, index).name(), "set_device");
  chosen_gpu = {&device.name(), device.full_name(), &device, true};
  context.placement = &chosen_gpu;
}

int current_device() { return chosen_gpu.resolved ? chosen_gpu.device->index() : 0; }
}  // namespace cuda

namespace config {
void set_soft_device_placement(bool enabled) { soft_placement.store(enabled); }
bool get_soft_device_placement() { return soft_placement.load(); }
}  // namespace config

namespace debugging {
void set_log_device_placement(bool enabled) { log_placement.store(enabled); }
bool get_log_device_placement() { return log_placement.load(); }
}  // namespace debugging

}  // namespace tandem
