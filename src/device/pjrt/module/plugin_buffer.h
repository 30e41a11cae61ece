// A buffer of a plug-in.
#pragma once

#include <pjrt_c_api.h>

#include <memory>

#include "device/pjrt/module/client_handle.h"

namespace tandem::pjrt {

class PluginBuffer final : public Buffer {
 public:
  PluginBuffer(std::shared_ptr<const ClientHandle> client, PJRT_Buffer* handle, DType dtype,
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
  const ClientHandle* client() const { return client_.get(); }

 private:
  // Throws the error of what computes the elements.
  void wait_for_elements() const;

  std::shared_ptr<const ClientHandle> client_;
  PJRT_Buffer* handle_;
  DType dtype_;
  Shape shape_;
  int device_;
};

}  // namespace tandem::pjrt
