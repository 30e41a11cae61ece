#include "device/pjrt/module/compiler_client.h"

#include <fmt/format.h>

#include "core/status.h"
#include "device/pjrt/module/check.h"
#include "device/pjrt/module/executable.h"

namespace tandem::pjrt {
namespace {

[[noreturn]] void refuse(std::string_view what) {
  fail<UnimplementedError>(
      "[PJRT] {}: the devices of a topology only compile; load the plug-in on a machine that has "
      "them",
      what);
}

class CompiledProgram final : public Executable {
 public:
  CompiledProgram(const PJRT_Api& api, PJRT_Executable* executable)
      : api_(api), executable_(executable) {}
  ~CompiledProgram() override {
    auto args = TANDEM_PJRT_ARGS(PJRT_Executable_Destroy);
    args.executable = executable_;
    static_cast<void>(api_.PJRT_Executable_Destroy(&args));
  }

  std::vector<Buffers> run(const std::vector<Buffers>&) override { refuse("running a program"); }
  CompiledMemory memory() const override { return memory_of(api_, executable_); }
  double flops() const override { return flops_of(api_, executable_); }

 private:
  const PJRT_Api& api_;
  PJRT_Executable* executable_;
};

class CompilerClient final : public Client {
 public:
  explicit CompilerClient(const Plugin& plugin) : api_(*plugin.api), info_(plugin.info) {}

  // Apart from the constructor, so that a failure frees the topology.
  void open(const std::string& topology) {
    if (!TANDEM_PJRT_HAS(api_, PJRT_TopologyDescription_Create) ||
        !TANDEM_PJRT_HAS(api_, PJRT_Compile))
      fail<UnimplementedError>("[PJRT] '{}' cannot compile for a topology", info_.path);
    auto args = TANDEM_PJRT_ARGS(PJRT_TopologyDescription_Create);
    args.topology_name = topology.data();
    args.topology_name_size = topology.size();
    check(api_, api_.PJRT_TopologyDescription_Create(&args),
          fmt::format("finding topology '{}'", topology));
    topology_ = args.topology;
    auto platform = TANDEM_PJRT_ARGS(PJRT_TopologyDescription_PlatformName);
    platform.topology = topology_;
    check(api_, api_.PJRT_TopologyDescription_PlatformName(&platform), "reading the platform");
    info_.platform.assign(platform.platform_name, platform.platform_name_size);
    auto devices = TANDEM_PJRT_ARGS(PJRT_TopologyDescription_GetDeviceDescriptions);
    devices.topology = topology_;
    check(api_, api_.PJRT_TopologyDescription_GetDeviceDescriptions(&devices),
          "listing the devices");
    for (std::size_t i = 0; i < devices.num_descriptions; ++i)
      devices_.push_back(describe(api_, devices.descriptions[i]));
  }
  ~CompilerClient() override {
    if (!topology_) return;
    auto args = TANDEM_PJRT_ARGS(PJRT_TopologyDescription_Destroy);
    args.topology = topology_;
    static_cast<void>(api_.PJRT_TopologyDescription_Destroy(&args));
  }

  const PluginInfo& plugin() const override { return info_; }
  const std::vector<DeviceInfo>& devices() const override { return devices_; }
  std::optional<MemoryStats> memory_stats(int) const override { return std::nullopt; }
  std::shared_ptr<Buffer> from_host(const void*, DType, const Shape&, int,
                                    std::shared_ptr<const void>) override {
    refuse("copying a tensor to a device");
  }

  std::unique_ptr<Executable> compile(std::string_view module,
                                      const CompileOptions& options) override {
    const std::string proto = compile_options_proto(info_, devices_, options);
    std::string code(module);
    const PJRT_Program program = program_of(code);
    auto args = TANDEM_PJRT_ARGS(PJRT_Compile);
    args.topology = topology_;
    args.program = &program;
    args.compile_options = proto.data();
    args.compile_options_size = proto.size();
    check(api_, api_.PJRT_Compile(&args), fmt::format("compiling '{}'", options.name));
    return std::make_unique<CompiledProgram>(api_, args.executable);
  }

 private:
  const PJRT_Api& api_;
  PluginInfo info_;
  PJRT_TopologyDescription* topology_ = nullptr;
  std::vector<DeviceInfo> devices_;
};

}  // namespace

std::shared_ptr<Client> make_compiler(const Plugin& plugin, const std::string& topology) {
  auto client = std::make_shared<CompilerClient>(plugin);
  client->open(topology);
  return client;
}

}  // namespace tandem::pjrt
