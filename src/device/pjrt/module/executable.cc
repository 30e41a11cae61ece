#include "device/pjrt/module/executable.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/status.h"
#include "device/pjrt/module/check.h"
#include "device/pjrt/module/plugin_buffer.h"

namespace tandem::pjrt {
namespace {

// --- the wire format of protocol buffers, for three fields ---

void add_varint(std::string& out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) out += static_cast<char>(number | 0x80);
  out += static_cast<char>(number);
}
void add_number(std::string& out, unsigned field, std::uint64_t number) {
  add_varint(out, field << 3);
  add_varint(out, number);
}
void add_bytes(std::string& out, unsigned field, const std::string& bytes) {
  add_varint(out, field << 3 | 2);
  add_varint(out, bytes.size());
  out += bytes;
}

// OptionOverrideProto { bool bool_field = 2; }; a map entry has the key in field 1, the value in 2.
void add_override(std::string& out, const char* option, bool value) {
  std::string boolean, entry;
  add_number(boolean, 2, value ? 1 : 0);
  add_bytes(entry, 1, option);
  add_bytes(entry, 2, boolean);
  add_bytes(out, 7, entry);
}

}  // namespace

// CompileOptionsProto { ExecutableBuildOptionsProto executable_build_options = 3;
//                       map<string, OptionOverrideProto> env_option_overrides = 7; }
// ExecutableBuildOptionsProto { int64 num_replicas = 4; int64 num_partitions = 5;
//                               DeviceAssignmentProto device_assignment = 9; }
// DeviceAssignmentProto { int32 replica_count = 1; int32 computation_count = 2;
//                         repeated ComputationDevice computation_devices = 3; }
// ComputationDevice { repeated int64 replica_device_ids = 1; }
std::string compile_options_proto(const PluginInfo& plugin, const std::vector<DeviceInfo>& devices,
                                  const CompileOptions& options) {
  std::string ids;
  for (const int device : options.devices) {
    if (device < 0 || static_cast<std::size_t>(device) >= devices.size())
      fail<InvalidArgumentError>("[PJRT] '{}': expected devices below {}, got {}", options.name,
                                 devices.size(), device);
    if (std::ranges::count(options.devices, device) > 1)
      fail<InvalidArgumentError>("[PJRT] two replicas of '{}' are on device {}", options.name,
                                 device);
    add_number(ids, 1, static_cast<std::uint64_t>(devices[static_cast<std::size_t>(device)].id));
  }
  std::string assignment, build, proto;
  add_number(assignment, 1, options.devices.size());
  add_number(assignment, 2, 1);
  add_bytes(assignment, 3, ids);
  add_number(build, 4, options.devices.size());
  add_number(build, 5, 1);
  add_bytes(build, 9, assignment);
  add_bytes(proto, 3, build);
  // On CPUs, XLA's maximum ignores a NaN by default, unlike StableHLO's.
  if (plugin.platform == "cpu") add_override(proto, "xla_cpu_enable_fast_min_max", false);
  return proto;
}

PJRT_Program program_of(std::string& code) {
  static constexpr std::string_view kFormat = "mlir";
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  program.code = code.data();
  program.code_size = code.size();
  program.format = kFormat.data();
  program.format_size = kFormat.size();
  return program;
}

CompiledMemory memory_of(const PJRT_Api& api, PJRT_Executable* executable) {
  if (!TANDEM_PJRT_HAS(api, PJRT_Executable_GetCompiledMemoryStats)) return {};
  auto args = TANDEM_PJRT_ARGS(PJRT_Executable_GetCompiledMemoryStats);
  args.executable = executable;
  try {
    check(api, api.PJRT_Executable_GetCompiledMemoryStats(&args), "reading memory statistics");
  } catch (const UnimplementedError&) {
    return {};
  }
  return {.arguments = args.argument_size_in_bytes,
          .outputs = args.output_size_in_bytes,
          .temporaries = args.temp_size_in_bytes,
          .code = args.generated_code_size_in_bytes,
          .aliased = args.alias_size_in_bytes};
}

double flops_of(const PJRT_Api& api, PJRT_Executable* executable) {
  if (!TANDEM_PJRT_HAS(api, PJRT_Executable_GetCostAnalysis)) return 0.0;
  auto args = TANDEM_PJRT_ARGS(PJRT_Executable_GetCostAnalysis);
  args.executable = executable;
  try {
    check(api, api.PJRT_Executable_GetCostAnalysis(&args), "reading the cost analysis");
  } catch (const UnimplementedError&) {
    return 0.0;
  }
  for (std::size_t i = 0; i < args.num_properties; ++i) {
    const PJRT_NamedValue& value = args.properties[i];
    if (std::string_view(value.name, value.name_size) == "flops" &&
        value.type == PJRT_NamedValue_kFloat)
      return static_cast<double>(value.float_value);
  }
  return 0.0;
}

namespace {

class PluginExecutable final : public Executable {
 public:
  PluginExecutable(std::shared_ptr<const ClientHandle> client, PJRT_LoadedExecutable* handle,
                   const CompileOptions& options)
      : client_(std::move(client)), api_(client_->api()), handle_(handle), options_(options) {}

  // Apart from the constructor, so that a failure frees the handle.
  void open() {
    auto args = TANDEM_PJRT_ARGS(PJRT_LoadedExecutable_GetExecutable);
    args.loaded_executable = handle_;
    check(api_, api_.PJRT_LoadedExecutable_GetExecutable(&args), "reading a compiled program");
    executable_ = args.executable;
    auto outputs = TANDEM_PJRT_ARGS(PJRT_Executable_NumOutputs);
    outputs.executable = executable_;
    check(api_, api_.PJRT_Executable_NumOutputs(&outputs), "reading a compiled program");
    if (outputs.num_outputs != options_.results.size())
      fail<InternalError>("[PJRT] '{}' has {} results, expected {}", options_.name,
                          outputs.num_outputs, options_.results.size());
  }

  ~PluginExecutable() override {
    if (executable_) {
      auto args = TANDEM_PJRT_ARGS(PJRT_Executable_Destroy);
      args.executable = executable_;
      static_cast<void>(api_.PJRT_Executable_Destroy(&args));
    }
    auto args = TANDEM_PJRT_ARGS(PJRT_LoadedExecutable_Destroy);
    args.executable = handle_;
    static_cast<void>(api_.PJRT_LoadedExecutable_Destroy(&args));
  }

  std::vector<Buffers> run(const std::vector<Buffers>& arguments) override {
    check_arguments(arguments);
    const std::vector<std::int64_t> kept = not_donated(arguments);
    const std::size_t replicas = options_.devices.size();
    std::vector<std::vector<PJRT_Buffer*>> given(replicas), made(replicas);
    std::vector<PJRT_Buffer* const*> given_lists;
    std::vector<PJRT_Buffer**> made_lists;
    for (std::size_t replica = 0; replica < replicas; ++replica) {
      for (const auto& buffer : arguments[replica])
        given[replica].push_back(static_cast<const PluginBuffer&>(*buffer).handle());
      made[replica].resize(options_.results.size());
      given_lists.push_back(given[replica].data());
      made_lists.push_back(made[replica].data());
    }
    PJRT_ExecuteOptions execution{};
    execution.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
    execution.non_donatable_input_indices = kept.data();
    execution.num_non_donatable_input_indices = kept.size();
    auto args = TANDEM_PJRT_ARGS(PJRT_LoadedExecutable_Execute);
    args.executable = handle_;
    args.options = &execution;
    args.argument_lists = given_lists.data();
    args.num_devices = replicas;
    args.num_args = options_.parameters.size();
    args.output_lists = made_lists.data();
    check(api_, api_.PJRT_LoadedExecutable_Execute(&args),
          fmt::format("running '{}'", options_.name));
    return take(made);
  }

  CompiledMemory memory() const override { return memory_of(api_, executable_); }
  double flops() const override { return flops_of(api_, executable_); }

 private:
  // A plug-in may abort the process for arguments that do not suit the program.
  void check_arguments(const std::vector<Buffers>& arguments) const {
    if (arguments.size() != options_.devices.size())
      fail<InvalidArgumentError>("[PJRT] '{}' has {} replicas, got arguments for {}", options_.name,
                                 options_.devices.size(), arguments.size());
    for (std::size_t replica = 0; replica < arguments.size(); ++replica) {
      if (arguments[replica].size() != options_.parameters.size())
        fail<InvalidArgumentError>("[PJRT] '{}' has {} parameters, got {} arguments", options_.name,
                                   options_.parameters.size(), arguments[replica].size());
      for (std::size_t i = 0; i < options_.parameters.size(); ++i)
        check_argument(arguments[replica][i].get(), replica, i);
    }
  }

  void check_argument(const Buffer* buffer, std::size_t replica, std::size_t index) const {
    const ParameterType& expected = options_.parameters[index];
    const auto* mine = dynamic_cast<const PluginBuffer*>(buffer);
    if (!mine || mine->client() != client_.get())
      fail<InvalidArgumentError>("[PJRT] argument {} of '{}' is not a buffer of this plug-in",
                                 index, options_.name);
    if (mine->dtype() != expected.dtype || !(mine->shape() == expected.shape))
      fail<InvalidArgumentError>(
          "[PJRT] argument {} of '{}': expected shape {} and dtype {}, got {} and {}", index,
          options_.name, expected.shape.to_string(), name_of(expected.dtype),
          mine->shape().to_string(), name_of(mine->dtype()));
    if (mine->device() != options_.devices[replica])
      fail<InvalidArgumentError>(
          "[PJRT] argument {} of '{}' for replica {}: expected a buffer on device {}, got one on "
          "device {}",
          index, options_.name, replica, options_.devices[replica], mine->device());
  }

  // The parameters that must not be donated in this run: something else refers to a buffer.
  std::vector<std::int64_t> not_donated(const std::vector<Buffers>& arguments) const {
    std::vector<std::int64_t> kept;
    for (std::size_t i = 0; i < options_.parameters.size(); ++i)
      if (options_.parameters[i].donated &&
          std::ranges::any_of(arguments, [i](const Buffers& of) { return of[i].use_count() > 1; }))
        kept.push_back(static_cast<std::int64_t>(i));
    return kept;
  }

  std::vector<Buffers> take(const std::vector<std::vector<PJRT_Buffer*>>& made) const {
    std::vector<Buffers> results(made.size());
    for (std::size_t replica = 0; replica < made.size(); ++replica)
      for (std::size_t i = 0; i < made[replica].size(); ++i)
        results[replica].push_back(
            std::make_shared<PluginBuffer>(client_, made[replica][i], options_.results[i].dtype,
                                           options_.results[i].shape, options_.devices[replica]));
    return results;
  }

  std::shared_ptr<const ClientHandle> client_;
  const PJRT_Api& api_;
  PJRT_LoadedExecutable* handle_;
  PJRT_Executable* executable_ = nullptr;
  CompileOptions options_;
};

}  // namespace

std::unique_ptr<Executable> make_executable(std::shared_ptr<const ClientHandle> client,
                                            PJRT_LoadedExecutable* handle,
                                            const CompileOptions& options) {
  auto executable = std::make_unique<PluginExecutable>(std::move(client), handle, options);
  executable->open();
  return executable;
}

}  // namespace tandem::pjrt
