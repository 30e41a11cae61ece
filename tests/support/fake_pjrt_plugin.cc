// The fake plug-in (fake_pjrt.h). Each result of its programs is the program's first argument.
#include <pjrt_c_api.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/fake_pjrt_script.h"

namespace {

tandem::testing::FakePjrt script;

struct Counted {
  Counted() { ++script.live; }
  ~Counted() { --script.live; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
};

}  // namespace

// The types that the API leaves to the plug-in.
struct PJRT_Error : Counted {
  PJRT_Error(int its_code, std::string its_message) : code(its_code), message(its_message) {}
  int code;
  std::string message;
};
struct PJRT_Event : Counted {
  bool ready = true, failed = false;
  PJRT_Event_OnReadyCallback callback = nullptr;
  void* user = nullptr;
};
struct PJRT_Memory {};
struct PJRT_DeviceDescription {
  int index;
  std::string text;
  std::int64_t coordinates[3];
  PJRT_NamedValue attributes[2];
};
struct PJRT_Device {
  PJRT_DeviceDescription description;
};
struct PJRT_Client : Counted {
  std::vector<PJRT_Device*> devices;
  ~PJRT_Client() {
    for (PJRT_Device* device : devices) delete device;
  }
};
struct PJRT_TopologyDescription : Counted {
  PJRT_Client client;
  std::vector<PJRT_DeviceDescription*> descriptions;
};
struct PJRT_Buffer : Counted {
  std::vector<char> elements;
  const void* host = nullptr;  // while it is not transferred
  PJRT_Event* transferred = nullptr;
  bool failed = false;
};
struct PJRT_Executable : Counted {
  explicit PJRT_Executable(std::size_t its_outputs) : outputs(its_outputs) {}
  std::size_t outputs;
};
struct PJRT_LoadedExecutable : PJRT_Executable {
  using PJRT_Executable::PJRT_Executable;
};

namespace {

PJRT_Memory memory;
std::vector<PJRT_Buffer*> in_transfer;

PJRT_Error* enter(std::string_view function, std::size_t size, std::size_t expected) {
  if (size != expected)
    return new PJRT_Error(3, std::string(function) + ": unexpected size of the arguments");
  if (script.failing != function || script.passes-- > 0) return nullptr;
  return new PJRT_Error(script.code, script.message);
}

// Defines a function of the API whose body has `args`.
#define FAKE(Function, ...)                                                                   \
  PJRT_Error* fake_##Function(Function##_Args* args) {                                        \
    if (PJRT_Error* error = enter(#Function, args->struct_size, Function##_Args_STRUCT_SIZE)) \
      return error;                                                                           \
    __VA_ARGS__ return nullptr;                                                               \
  }

template <class Size>
void give(std::string_view text, const char*& to, Size& size) {
  to = text.data();
  size = text.size();
}

PJRT_NamedValue value_of(std::string_view name, PJRT_NamedValue_Type type, std::size_t size) {
  PJRT_NamedValue value{};
  value.struct_size = PJRT_NamedValue_STRUCT_SIZE;
  give(name, value.name, value.name_size);
  value.type = type;
  value.value_size = size;
  return value;
}

void make_devices(PJRT_Client& client) {
  for (int i = 0; i < script.devices; ++i) {
    auto* device = new PJRT_Device{{i, "FAKE_" + std::to_string(i), {i, 0, 0}, {}}};
    PJRT_DeviceDescription& description = device->description;
    description.attributes[0] = value_of("coords", PJRT_NamedValue_kInt64List, 3);
    description.attributes[0].int64_array_value = description.coordinates;
    description.attributes[1] = value_of("core_on_chip", PJRT_NamedValue_kInt64, 1);
    description.attributes[1].int64_value = 1;
    client.devices.push_back(device);
  }
}

std::string text_of(const PJRT_NamedValue& value) {
  switch (value.type) {
    case PJRT_NamedValue_kString:
      return "string " + std::string(value.string_value, value.value_size);
    case PJRT_NamedValue_kInt64: return "int64 " + std::to_string(value.int64_value);
    case PJRT_NamedValue_kBool: return value.bool_value ? "bool true" : "bool false";
    case PJRT_NamedValue_kFloat: return "float " + std::to_string(value.float_value);
    default: return "?";
  }
}

std::size_t bytes_of(const PJRT_Client_BufferFromHostBuffer_Args& args) {
  std::size_t bytes = args.type == PJRT_Buffer_Type_PRED || args.type == PJRT_Buffer_Type_U8    ? 1
                      : args.type == PJRT_Buffer_Type_F16 || args.type == PJRT_Buffer_Type_BF16 ? 2
                      : args.type == PJRT_Buffer_Type_F32 || args.type == PJRT_Buffer_Type_S32  ? 4
                                                                                                : 8;
  for (std::size_t i = 0; i < args.num_dims; ++i) bytes *= static_cast<std::size_t>(args.dims[i]);
  return bytes;
}

void finish(PJRT_Buffer& buffer) {
  if (!buffer.host) return;
  std::memcpy(buffer.elements.data(), buffer.host, buffer.elements.size());
  buffer.host = nullptr;
  std::erase(in_transfer, &buffer);
  buffer.transferred->ready = true;
  if (buffer.transferred->callback) buffer.transferred->callback(nullptr, buffer.transferred->user);
}

std::vector<PJRT_Event*> late_elements;

void finish_elements() {
  for (PJRT_Event* event : std::exchange(late_elements, {})) event->callback(nullptr, event->user);
}

void finish_transfers() {
  while (!in_transfer.empty()) finish(*in_transfer.back());
}

// The number of types in a program's last return.
std::size_t outputs_of(const PJRT_Program& program) {
  const std::string_view code(program.code, program.code_size);
  const std::string_view types = code.substr(code.rfind("return"));
  std::size_t count = 0;
  for (std::size_t at = 0; (at = types.find("tensor<", at)) != types.npos; ++at) ++count;
  return count;
}

void start_transfer(PJRT_Client_BufferFromHostBuffer_Args* args) {
  args->buffer = new PJRT_Buffer;
  args->buffer->elements.resize(bytes_of(*args));
  args->buffer->host = args->data;
  args->buffer->transferred = args->done_with_host_buffer = new PJRT_Event;
  args->done_with_host_buffer->ready = false;
  in_transfer.push_back(args->buffer);
  if (!script.late_transfers) finish(*args->buffer);
}

void run(const PJRT_LoadedExecutable_Execute_Args* args) {
  ++script.executions;
  const PJRT_ExecuteOptions& options = *args->options;
  script.not_donatable.assign(
      options.non_donatable_input_indices,
      options.non_donatable_input_indices + options.num_non_donatable_input_indices);
  for (std::size_t replica = 0; replica < args->num_devices; ++replica)
    for (std::size_t i = 0; i < args->executable->outputs; ++i) {
      auto* result = new PJRT_Buffer;
      finish(*args->argument_lists[replica][0]);
      result->elements = args->argument_lists[replica][0]->elements;
      result->failed = script.failing == "results";
      args->output_lists[replica][i] = result;
    }
}

// --- the functions of the API ---

void fake_PJRT_Error_Destroy(PJRT_Error_Destroy_Args* args) { delete args->error; }
void fake_PJRT_Error_Message(PJRT_Error_Message_Args* args) {
  give(args->error->message, args->message, args->message_size);
}
FAKE(PJRT_Error_GetCode, args->code = static_cast<PJRT_Error_Code>(args->error->code);)

FAKE(PJRT_Plugin_Initialize, )
FAKE(PJRT_Plugin_Attributes, {
  static const std::int64_t version[3] = {1, 13, 3};
  static PJRT_NamedValue value =
      value_of("stablehlo_current_version", PJRT_NamedValue_kInt64List, 3);
  value.int64_array_value = version;
  args->attributes = &value;
  args->num_attributes = 1;
})

FAKE(PJRT_Event_Destroy, delete args->event;)
FAKE(PJRT_Event_Await, {
  if (args->event->failed) return new PJRT_Error(script.code, script.message);
})
FAKE(PJRT_Event_OnReady, {
  args->event->callback = args->callback;
  args->event->user = args->user_arg;
  if (!args->event->ready) return nullptr;
  PJRT_Error* failure = nullptr;
  if (args->event->failed) failure = new PJRT_Error(script.code, script.message);
  args->callback(failure, args->user_arg);
})

FAKE(PJRT_Client_Create, {
  script.options.clear();
  for (std::size_t i = 0; i < args->num_options; ++i) {
    const PJRT_NamedValue& option = args->create_options[i];
    script.options[std::string(option.name, option.name_size)] = text_of(option);
  }
  args->client = new PJRT_Client;
  make_devices(*args->client);
})
FAKE(PJRT_Client_Destroy, delete args->client;)
FAKE(PJRT_Client_PlatformName, give("fake", args->platform_name, args->platform_name_size);)
FAKE(PJRT_Client_PlatformVersion,
     give("fake 1", args->platform_version, args->platform_version_size);)
FAKE(PJRT_Client_AddressableDevices, {
  args->addressable_devices = args->client->devices.data();
  args->num_addressable_devices = args->client->devices.size();
})
FAKE(PJRT_Client_Compile, {
  script.compile_options.assign(args->compile_options, args->compile_options_size);
  args->executable = new PJRT_LoadedExecutable(outputs_of(*args->program));
})
FAKE(PJRT_Client_BufferFromHostBuffer, start_transfer(args);)

FAKE(PJRT_DeviceDescription_Id, args->id = 10 + args->device_description->index;)
FAKE(PJRT_DeviceDescription_Kind, give("Fake v1", args->device_kind, args->device_kind_size);)
FAKE(PJRT_DeviceDescription_ToString,
     give(args->device_description->text, args->to_string, args->to_string_size);)
FAKE(PJRT_DeviceDescription_Attributes, {
  args->attributes = args->device_description->attributes;
  args->num_attributes = 2;
})
FAKE(PJRT_Device_GetDescription, args->device_description = &args->device->description;)
FAKE(PJRT_Device_LocalHardwareId, args->local_hardware_id = args->device->description.index;)
FAKE(PJRT_Device_AddressableMemories, {
  static PJRT_Memory* const memories[] = {&memory};
  args->memories = memories;
  args->num_memories = 1;
})
FAKE(PJRT_Device_MemoryStats, {
  args->bytes_in_use = 64;
  args->bytes_limit = script.memory_limit;
  args->bytes_limit_is_set = script.memory_limit > 0;
})
FAKE(PJRT_Memory_Kind, give("device", args->kind, args->kind_size);)

FAKE(PJRT_LoadedExecutable_GetExecutable,
     args->executable = new PJRT_Executable(args->loaded_executable->outputs);)
FAKE(PJRT_LoadedExecutable_Destroy, delete args->executable;)
FAKE(PJRT_LoadedExecutable_Execute, run(args);)
FAKE(PJRT_Executable_Destroy, delete args->executable;)
FAKE(PJRT_Executable_NumOutputs, args->num_outputs = args->executable->outputs;)
FAKE(PJRT_Executable_GetCostAnalysis, {
  static PJRT_NamedValue flops = value_of("flops", PJRT_NamedValue_kFloat, 1);
  flops.float_value = 42;
  args->properties = &flops;
  args->num_properties = 1;
})
FAKE(PJRT_Executable_GetCompiledMemoryStats, args->temp_size_in_bytes = 7;)

FAKE(PJRT_Buffer_Destroy, {
  finish(*args->buffer);
  delete args->buffer;
})
FAKE(PJRT_Buffer_CopyToDevice, {
  args->dst_buffer = new PJRT_Buffer;
  finish(*args->buffer);
  args->dst_buffer->elements = args->buffer->elements;
})
FAKE(PJRT_Buffer_ReadyEvent, {
  args->event = new PJRT_Event;
  args->event->failed = args->buffer->failed;
  args->event->ready = !script.late_elements;
  if (script.late_elements) late_elements.push_back(args->event);
})
FAKE(PJRT_Buffer_ToHostBuffer, {
  finish(*args->src);
  std::memcpy(args->dst, args->src->elements.data(),
              std::min(args->dst_size, args->src->elements.size()));
  args->event = new PJRT_Event;
  args->event->failed = args->src->failed;
})

FAKE(PJRT_TopologyDescription_Create, {
  args->topology = new PJRT_TopologyDescription;
  make_devices(args->topology->client);
  for (PJRT_Device* device : args->topology->client.devices)
    args->topology->descriptions.push_back(&device->description);
})
FAKE(PJRT_TopologyDescription_Destroy, delete args->topology;)
FAKE(PJRT_TopologyDescription_PlatformName,
     give("fake", args->platform_name, args->platform_name_size);)
FAKE(PJRT_TopologyDescription_GetDeviceDescriptions, {
  args->descriptions = args->topology->descriptions.data();
  args->num_descriptions = args->topology->descriptions.size();
})
FAKE(PJRT_Compile, {
  script.compile_options.assign(args->compile_options, args->compile_options_size);
  args->executable = new PJRT_Executable(outputs_of(*args->program));
})

PJRT_Api make_table() {
  PJRT_Api api{};
  api.struct_size = script.table_size ? script.table_size : std::size_t{PJRT_Api_STRUCT_SIZE};
  api.pjrt_api_version = {PJRT_Api_Version_STRUCT_SIZE, nullptr, script.major, script.minor};
#define SET(Function) api.Function = &fake_##Function
  SET(PJRT_Error_Destroy);
  SET(PJRT_Error_Message);
  SET(PJRT_Error_GetCode);
  SET(PJRT_Plugin_Initialize);
  SET(PJRT_Plugin_Attributes);
  SET(PJRT_Event_Destroy);
  SET(PJRT_Event_Await);
  SET(PJRT_Event_OnReady);
  SET(PJRT_Client_Create);
  SET(PJRT_Client_Destroy);
  SET(PJRT_Client_PlatformName);
  SET(PJRT_Client_PlatformVersion);
  SET(PJRT_Client_AddressableDevices);
  SET(PJRT_Client_Compile);
  SET(PJRT_Client_BufferFromHostBuffer);
  SET(PJRT_DeviceDescription_Id);
  SET(PJRT_DeviceDescription_Kind);
  SET(PJRT_DeviceDescription_ToString);
  SET(PJRT_DeviceDescription_Attributes);
  SET(PJRT_Device_GetDescription);
  SET(PJRT_Device_LocalHardwareId);
  SET(PJRT_Device_AddressableMemories);
  SET(PJRT_Device_MemoryStats);
  SET(PJRT_Memory_Kind);
  SET(PJRT_LoadedExecutable_GetExecutable);
  SET(PJRT_LoadedExecutable_Destroy);
  SET(PJRT_LoadedExecutable_Execute);
  SET(PJRT_Executable_Destroy);
  SET(PJRT_Executable_NumOutputs);
  SET(PJRT_Executable_GetCostAnalysis);
  SET(PJRT_Executable_GetCompiledMemoryStats);
  SET(PJRT_Buffer_Destroy);
  SET(PJRT_Buffer_CopyToDevice);
  SET(PJRT_Buffer_ReadyEvent);
  SET(PJRT_Buffer_ToHostBuffer);
  SET(PJRT_TopologyDescription_Create);
  SET(PJRT_TopologyDescription_Destroy);
  SET(PJRT_TopologyDescription_PlatformName);
  SET(PJRT_TopologyDescription_GetDeviceDescriptions);
  SET(PJRT_Compile);
#undef SET
  return api;
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) const PJRT_Api* GetPjrtApi() {
  static PJRT_Api api;
  api = make_table();
  return script.has_table ? &api : nullptr;
}

__attribute__((visibility("default"))) tandem::testing::FakePjrt* fake_pjrt() {
  script.finish_transfers = &finish_transfers;
  script.finish_elements = &finish_elements;
  return &script;
}

}  // extern "C"
