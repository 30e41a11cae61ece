// The client of a plug-in, with its buffers and executables.
#pragma once

#include <pjrt_c_api.h>

#include <memory>
#include <vector>

#include "device/pjrt/module/plugin.h"

namespace tandem::pjrt {

PJRT_Buffer_Type type_of(DType dtype);
// Without the properties that only devices of this machine have.
DeviceInfo describe(const PJRT_Api& api, PJRT_DeviceDescription* description);

// Lives as long as its buffers and executables.
class PluginClient final : public Client, public std::enable_shared_from_this<PluginClient> {
 public:
  explicit PluginClient(const Plugin& plugin);
  ~PluginClient() override;
  PluginClient(const PluginClient&) = delete;
  PluginClient& operator=(const PluginClient&) = delete;

  // Creates the plug-in's client. Apart from the constructor, so that a failure frees it.
  void open(const Options& options);

  const PluginInfo& plugin() const override { return info_; }
  const std::vector<DeviceInfo>& devices() const override { return devices_; }
  std::optional<MemoryStats> memory_stats(int device) const override;
  std::shared_ptr<Buffer> from_host(const void* host, DType dtype, const Shape& shape, int device,
                                    std::shared_ptr<const void> keep) override;
  std::unique_ptr<Executable> compile(std::string_view module,
                                      const CompileOptions& options) override;

  const PJRT_Api& api() const { return api_; }
  // Throws InvalidArgumentError for an index that is out of range.
  PJRT_Device* handle(int device) const;

 private:
  void create(const Options& options);
  void find_devices();

  const PJRT_Api& api_;
  PluginInfo info_;
  PJRT_Client* client_ = nullptr;
  std::vector<PJRT_Device*> handles_;
  std::vector<DeviceInfo> devices_;
};

class PluginBuffer final : public Buffer {
 public:
  PluginBuffer(std::shared_ptr<const PluginClient> client, PJRT_Buffer* handle, DType dtype,
               const Shape& shape, int device)
      : client_(std::move(client)),
        handle_(handle),
        dtype_(dtype),
        shape_(shape),
        device_(device) {}
  ~PluginBuffer() override;
  PluginBuffer(const PluginBuffer&) = delete;
  PluginBuffer& operator=(const PluginBuffer&) = delete;

  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  int device() const override { return device_; }
  void to_host(void* host, std::size_t bytes) override;
  std::shared_ptr<Buffer> copy_to(int device) override;

  PJRT_Buffer* handle() const { return handle_; }
  const PluginClient* client() const { return client_.get(); }

 private:
  std::shared_ptr<const PluginClient> client_;
  PJRT_Buffer* handle_;
  DType dtype_;
  Shape shape_;
  int device_;
};

}  // namespace tandem::pjrt
