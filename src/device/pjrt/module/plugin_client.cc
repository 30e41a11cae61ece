#include "device/pjrt/module/plugin_client.h"

#include <fmt/format.h>

#include "core/status.h"
#include "device/pjrt/module/check.h"
#include "device/pjrt/module/executable.h"

namespace tandem::pjrt {

PJRT_Buffer_Type type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return PJRT_Buffer_Type_F32;
    case DType::kFloat64: return PJRT_Buffer_Type_F64;
    case DType::kFloat16: return PJRT_Buffer_Type_F16;
    case DType::kBFloat16: return PJRT_Buffer_Type_BF16;
    case DType::kInt32: return PJRT_Buffer_Type_S32;
    case DType::kInt64: return PJRT_Buffer_Type_S64;
    case DType::kUInt8: return PJRT_Buffer_Type_U8;
    case DType::kBool: return PJRT_Buffer_Type_PRED;
  }
  return PJRT_Buffer_Type_INVALID;
}

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

PluginClient::PluginClient(const Plugin& plugin) : api_(*plugin.api), info_(plugin.info) {}

void PluginClient::open(const Options& options) {
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

PluginClient::~PluginClient() {
  if (!client_) return;
  auto args = TANDEM_PJRT_ARGS(PJRT_Client_Destroy);
  args.client = client_;
  static_cast<void>(api_.PJRT_Client_Destroy(&args));
}

void PluginClient::create(const Options& options) {
  std::vector<PJRT_NamedValue> values;
  for (const auto& [name, option] : options) values.push_back(named_value(name, option));
  auto args = TANDEM_PJRT_ARGS(PJRT_Client_Create);
  args.create_options = values.data();
  args.num_options = values.size();
  check(api_, api_.PJRT_Client_Create(&args), fmt::format("creating a client of '{}'", info_.path));
  client_ = args.client;
}

void PluginClient::find_devices() {
  auto args = TANDEM_PJRT_ARGS(PJRT_Client_AddressableDevices);
  args.client = client_;
  check(api_, api_.PJRT_Client_AddressableDevices(&args), "listing the devices");
  for (std::size_t i = 0; i < args.num_addressable_devices; ++i) {
    handles_.push_back(args.addressable_devices[i]);
    devices_.push_back(describe_device(api_, handles_.back()));
  }
}

PJRT_Device* PluginClient::handle(int device) const {
  if (device < 0 || static_cast<std::size_t>(device) >= handles_.size())
    fail<InvalidArgumentError>("[PJRT] expected a device below {}, got {}", handles_.size(),
                               device);
  return handles_[static_cast<std::size_t>(device)];
}

std::optional<MemoryStats> PluginClient::memory_stats(int device) const {
  if (!TANDEM_PJRT_HAS(api_, PJRT_Device_MemoryStats)) return std::nullopt;
  auto args = TANDEM_PJRT_ARGS(PJRT_Device_MemoryStats);
  args.device = handle(device);
  try {
    check(api_, api_.PJRT_Device_MemoryStats(&args), "reading memory statistics");
  } catch (const UnimplementedError&) {
    return std::nullopt;
  }
  MemoryStats stats{.bytes_in_use = args.bytes_in_use, .peak_bytes_in_use = {}, .bytes_limit = {}};
  if (args.peak_bytes_in_use_is_set) stats.peak_bytes_in_use = args.peak_bytes_in_use;
  if (args.bytes_limit_is_set) stats.bytes_limit = args.bytes_limit;
  return stats;
}

namespace {

struct KeptHost {
  const PJRT_Api* api;
  PJRT_Event* event;
  std::shared_ptr<const void> keep;
};

// Called once the plug-in does not need the host memory any more.
void release_host(PJRT_Error* error, void* user) {
  const std::unique_ptr<KeptHost> kept(static_cast<KeptHost*>(user));
  auto destroy_error = TANDEM_PJRT_ARGS(PJRT_Error_Destroy);
  destroy_error.error = error;  // the buffer reports it
  if (error) kept->api->PJRT_Error_Destroy(&destroy_error);
  auto destroy = TANDEM_PJRT_ARGS(PJRT_Event_Destroy);
  destroy.event = kept->event;
  static_cast<void>(kept->api->PJRT_Event_Destroy(&destroy));
}

}  // namespace

std::shared_ptr<Buffer> PluginClient::from_host(const void* host, DType dtype, const Shape& shape,
                                                int device, std::shared_ptr<const void> keep) {
  auto args = TANDEM_PJRT_ARGS(PJRT_Client_BufferFromHostBuffer);
  args.client = client_;
  args.data = host;
  args.type = type_of(dtype);
  args.dims = shape.begin();
  args.num_dims = static_cast<std::size_t>(shape.rank());
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  args.device = handle(device);
  check(api_, api_.PJRT_Client_BufferFromHostBuffer(&args),
        fmt::format("copying a tensor of shape {} and dtype {} to {}", shape.to_string(),
                    name_of(dtype), devices_[static_cast<std::size_t>(device)].description));
  auto buffer =
      std::make_shared<PluginBuffer>(shared_from_this(), args.buffer, dtype, shape, device);
  if (!args.done_with_host_buffer) return buffer;
  auto kept =
      std::make_unique<KeptHost>(KeptHost{&api_, args.done_with_host_buffer, std::move(keep)});
  auto on_ready = TANDEM_PJRT_ARGS(PJRT_Event_OnReady);
  on_ready.event = args.done_with_host_buffer;
  on_ready.callback = release_host;
  on_ready.user_arg = kept.get();
  if (PJRT_Error* const error = api_.PJRT_Event_OnReady(&on_ready)) {
    // The copy still reads the host memory.
    await(api_, args.done_with_host_buffer, "waiting for a copy");
    throw_error(api_, error, "waiting for a copy");
  }
  static_cast<void>(kept.release());  // release_host() frees it
  return buffer;
}

std::unique_ptr<Executable> PluginClient::compile(std::string_view module,
                                                  const CompileOptions& options) {
  const std::string proto = compile_options_proto(devices_, options);
  std::string code(module);
  const PJRT_Program program = program_of(code);
  auto args = TANDEM_PJRT_ARGS(PJRT_Client_Compile);
  args.client = client_;
  args.program = &program;
  args.compile_options = proto.data();
  args.compile_options_size = proto.size();
  check(api_, api_.PJRT_Client_Compile(&args), fmt::format("compiling '{}'", options.name));
  return make_executable(shared_from_this(), args.executable, options);
}

PluginBuffer::~PluginBuffer() {
  auto args = TANDEM_PJRT_ARGS(PJRT_Buffer_Destroy);
  args.buffer = handle_;
  static_cast<void>(client_->api().PJRT_Buffer_Destroy(&args));
}

void PluginBuffer::to_host(void* host, std::size_t bytes) {
  const std::size_t needed = static_cast<std::size_t>(shape_.num_elements()) * size_of(dtype_);
  if (bytes < needed)
    fail<InvalidArgumentError>("[PJRT] expected host memory of {} bytes, got {}", needed, bytes);
  // Row-major, whatever the layout on the device is.
  std::vector<std::int64_t> minor_to_major;
  for (int axis = shape_.rank(); axis-- > 0;) minor_to_major.push_back(axis);
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = minor_to_major.size();
  auto args = TANDEM_PJRT_ARGS(PJRT_Buffer_ToHostBuffer);
  args.src = handle_;
  args.host_layout = &layout;
  args.dst = host;
  args.dst_size = bytes;
  const PJRT_Api& api = client_->api();
  check(api, api.PJRT_Buffer_ToHostBuffer(&args), "copying a tensor to the host");
  await(api, args.event, "copying a tensor to the host");
}

std::shared_ptr<Buffer> PluginBuffer::copy_to(int device) {
  auto args = TANDEM_PJRT_ARGS(PJRT_Buffer_CopyToDevice);
  args.buffer = handle_;
  args.dst_device = client_->handle(device);
  const PJRT_Api& api = client_->api();
  check(api, api.PJRT_Buffer_CopyToDevice(&args), "copying a tensor between devices");
  return std::make_shared<PluginBuffer>(client_, args.dst_buffer, dtype_, shape_, device);
}

}  // namespace tandem::pjrt
