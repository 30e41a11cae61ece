#include "device/pjrt/module/plugin_client.h"

#include <fmt/format.h>

#include "core/status.h"
#include "device/pjrt/module/check.h"
#include "device/pjrt/module/event.h"
#include "device/pjrt/module/executable.h"
#include "device/pjrt/module/plugin_buffer.h"

namespace tandem::pjrt {
namespace {

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
    case DType::kInt8: return PJRT_Buffer_Type_S8;
    case DType::kInt16: return PJRT_Buffer_Type_S16;
    case DType::kUInt16: return PJRT_Buffer_Type_U16;
    case DType::kUInt32: return PJRT_Buffer_Type_U32;
    case DType::kUInt64: return PJRT_Buffer_Type_U64;
    case DType::kFloat8E4M3FN: return PJRT_Buffer_Type_F8E4M3FN;
    case DType::kFloat8E5M2: return PJRT_Buffer_Type_F8E5M2;
  }
  return PJRT_Buffer_Type_INVALID;
}

class PluginClient final : public Client {
 public:
  explicit PluginClient(std::shared_ptr<const ClientHandle> client)
      : client_(std::move(client)), api_(client_->api()) {}

  const PluginInfo& plugin() const override { return client_->plugin(); }
  const std::vector<DeviceInfo>& devices() const override { return client_->devices(); }

  std::optional<MemoryStats> memory_stats(int device) const override {
    if (!TANDEM_PJRT_HAS(api_, PJRT_Device_MemoryStats)) return std::nullopt;
    auto args = TANDEM_PJRT_ARGS(PJRT_Device_MemoryStats);
    args.device = client_->device(device);
    try {
      check(api_, api_.PJRT_Device_MemoryStats(&args), "reading memory statistics");
    } catch (const UnimplementedError&) {
      return std::nullopt;
    }
    MemoryStats stats{
        .bytes_in_use = args.bytes_in_use, .peak_bytes_in_use = {}, .bytes_limit = {}};
    if (args.peak_bytes_in_use_is_set) stats.peak_bytes_in_use = args.peak_bytes_in_use;
    if (args.bytes_limit_is_set) stats.bytes_limit = args.bytes_limit;
    return stats;
  }

  std::shared_ptr<Buffer> from_host(const void* host, DType dtype, const Shape& shape, int device,
                                    std::shared_ptr<const void> keep) override {
    auto args = TANDEM_PJRT_ARGS(PJRT_Client_BufferFromHostBuffer);
    args.client = client_->get();
    args.data = host;
    args.type = type_of(dtype);
    args.dims = shape.words().begin();
    args.num_dims = static_cast<std::size_t>(shape.rank());
    args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
    args.device = client_->device(device);
    check(api_, api_.PJRT_Client_BufferFromHostBuffer(&args),
          fmt::format("copying a tensor of shape {} and dtype {} to {}", shape.to_string(),
                      name_of(dtype), devices()[static_cast<std::size_t>(device)].description));
    auto buffer = std::make_shared<PluginBuffer>(client_, args.buffer, dtype, shape, device);
    // If the copy fails, the buffer reports it.
    if (args.done_with_host_buffer)
      when_ready(api_, args.done_with_host_buffer, "waiting for a copy",
                 [keep = std::move(keep)](const std::exception_ptr&) {});
    return buffer;
  }

  std::unique_ptr<Executable> compile(std::string_view module,
                                      const CompileOptions& options) override {
    const std::string proto = compile_options_proto(plugin(), devices(), options);
    std::string code(module);
    const PJRT_Program program = program_of(code);
    auto args = TANDEM_PJRT_ARGS(PJRT_Client_Compile);
    args.client = client_->get();
    args.program = &program;
    args.compile_options = proto.data();
    args.compile_options_size = proto.size();
    check(api_, api_.PJRT_Client_Compile(&args), fmt::format("compiling '{}'", options.name));
    return make_executable(client_, args.executable, options);
  }

 private:
  std::shared_ptr<const ClientHandle> client_;
  const PJRT_Api& api_;
};

}  // namespace

std::shared_ptr<Client> make_client(const Plugin& plugin, const Options& options) {
  auto client = std::make_shared<ClientHandle>(plugin);
  client->open(options);
  return std::make_shared<PluginClient>(std::move(client));
}

}  // namespace tandem::pjrt
