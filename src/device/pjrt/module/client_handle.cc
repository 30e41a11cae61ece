#include "device/pjrt/module/client_handle.h"

#include <fmt/format.h>

#include "core/env.h"
#include "core/status.h"
#include "device/pjrt/module/check.h"

namespace tandem::pjrt {

namespace {

PJRT_NamedValue named_value(const std::string& name, const Option& option) {
  PJRT_NamedValue value{};
  value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  value.name = name.data();
  value.name_size = name.size();
  value.value_size = 1;
  if (const auto* text = std::get_if<std::string>(&option)) {
    value.type = PJRT_NamedValue_kString;
    value.string_value = text->data();
    value.value_size = text->size();
  } else if (const auto* number = std::get_if<std::int64_t>(&option)) {
    value.type = PJRT_NamedValue_kInt64;
    value.int64_value = *number;
  } else if (const auto* flag = std::get_if<bool>(&option)) {
    value.type = PJRT_NamedValue_kBool;
    value.bool_value = *flag;
  } else {
    value.type = PJRT_NamedValue_kFloat;
    value.float_value = std::get<float>(option);
  }
  return value;
}

}  // namespace

DeviceInfo describe(const PJRT_Api& api, PJRT_DeviceDescription* description) {
  DeviceInfo info;
  auto id = TANDEM_PJRT_ARGS(PJRT_DeviceDescription_Id);
  id.device_description = description;
  check(api, api.PJRT_DeviceDescription_Id(&id), "describing a device");
  info.id = id.id;
  auto kind = TANDEM_PJRT_ARGS(PJRT_DeviceDescription_Kind);
  kind.device_description = description;
  check(api, api.PJRT_DeviceDescription_Kind(&kind), "describing a device");
  info.kind.assign(kind.device_kind, kind.device_kind_size);
  auto text = TANDEM_PJRT_ARGS(PJRT_DeviceDescription_ToString);
  text.device_description = description;
  check(api, api.PJRT_DeviceDescription_ToString(&text), "describing a device");
  info.description.assign(text.to_string, text.to_string_size);
  auto attributes = TANDEM_PJRT_ARGS(PJRT_DeviceDescription_Attributes);
  attributes.device_description = description;
  check(api, api.PJRT_DeviceDescription_Attributes(&attributes), "describing a device");
  for (std::size_t i = 0; i < attributes.num_attributes; ++i) {
    const PJRT_NamedValue& value = attributes.attributes[i];
    const std::string_view name(value.name, value.name_size);
    if (name == "coords" && value.type == PJRT_NamedValue_kInt64List)
      info.coordinates.assign(value.int64_array_value, value.int64_array_value + value.value_size);
    if (name == "core_on_chip" && value.type == PJRT_NamedValue_kInt64)
      info.core_on_chip = value.int64_value;
  }
  return info;
}

namespace {

DeviceInfo describe_device(const PJRT_Api& api, PJRT_Device* device) {
  auto description = TANDEM_PJRT_ARGS(PJRT_Device_GetDescription);
  description.device = device;
  check(api, api.PJRT_Device_GetDescription(&description), "describing a device");
  DeviceInfo info = describe(api, description.device_description);
  auto local = TANDEM_PJRT_ARGS(PJRT_Device_LocalHardwareId);
  local.device = device;
  check(api, api.PJRT_Device_LocalHardwareId(&local), "describing a device");
  info.local_hardware_id = local.local_hardware_id;
  auto memories = TANDEM_PJRT_ARGS(PJRT_Device_AddressableMemories);
  memories.device = device;
  check(api, api.PJRT_Device_AddressableMemories(&memories), "describing a device");
  for (std::size_t i = 0; i < memories.num_memories; ++i) {
    auto of_memory = TANDEM_PJRT_ARGS(PJRT_Memory_Kind);
    of_memory.memory = memories.memories[i];
    check(api, api.PJRT_Memory_Kind(&of_memory), "describing a memory");
    info.memory_kinds.emplace_back(of_memory.kind, of_memory.kind_size);
  }
  return info;
}

}  // namespace

ClientHandle::ClientHandle(const Plugin& plugin)
    : api_(*plugin.api),
      info_(plugin.info),
      time_limit_(env_int("TANDEM_PJRT_TIMEOUT", 1).value_or(3600)) {}

void ClientHandle::open(const Options& options) {
  create(options);
  auto platform = TANDEM_PJRT_ARGS(PJRT_Client_PlatformName);
  platform.client = client_;
  check(api_, api_.PJRT_Client_PlatformName(&platform), "reading the platform");
  info_.platform.assign(platform.platform_name, platform.platform_name_size);
  auto version = TANDEM_PJRT_ARGS(PJRT_Client_PlatformVersion);
  version.client = client_;
  check(api_, api_.PJRT_Client_PlatformVersion(&version), "reading the platform's version");
  info_.platform_version.assign(version.platform_version, version.platform_version_size);
  find_devices();
}

ClientHandle::~ClientHandle() {
  if (!client_) return;
  auto args = TANDEM_PJRT_ARGS(PJRT_Client_Destroy);
  args.client = client_;
  static_cast<void>(api_.PJRT_Client_Destroy(&args));
}

void ClientHandle::create(const Options& options) {
  std::vector<PJRT_NamedValue> values;
  for (const auto& [name, option] : options) values.push_back(named_value(name, option));
  auto args = TANDEM_PJRT_ARGS(PJRT_Client_Create);
  args.create_options = values.data();
  args.num_options = values.size();
  check(api_, api_.PJRT_Client_Create(&args), fmt::format("creating a client of '{}'", info_.path));
  client_ = args.client;
}

void ClientHandle::find_devices() {
  auto args = TANDEM_PJRT_ARGS(PJRT_Client_AddressableDevices);
  args.client = client_;
  check(api_, api_.PJRT_Client_AddressableDevices(&args), "listing the devices");
  for (std::size_t i = 0; i < args.num_addressable_devices; ++i) {
    handles_.push_back(args.addressable_devices[i]);
    devices_.push_back(describe_device(api_, handles_.back()));
  }
}

PJRT_Device* ClientHandle::device(int index) const {
  if (index < 0 || static_cast<std::size_t>(index) >= handles_.size())
    fail<InvalidArgumentError>("[PJRT] expected a device below {}, got {}", handles_.size(), index);
  return handles_[static_cast<std::size_t>(index)];
}

}  // namespace tandem::pjrt
