// A device of a PJRT plug-in. It runs compiled programs only (graph/region_step.h); single
// operations run on a CPU.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "device/bfc_allocator.h"
#include "device/cpu/cpu_device.h"
#include "device/device.h"
#include "device/pjrt/client.h"

namespace tandem {

// The contents of a device's memory. A plug-in has no addresses, only buffers, so addresses are
// handles: nothing is stored there. A tensor is elements on the host that wait to be uploaded, a
// buffer, or both. Thread-safe.
class PjrtContents {
 public:
  PjrtContents(std::shared_ptr<pjrt::Client> client, int device)
      : client_(std::move(client)), device_(device) {}

  void write(std::byte* to, const void* host, std::size_t bytes);
  // Waits for the elements. Throws InternalError if nothing has written some of them.
  void read(void* host, const std::byte* from, std::size_t bytes);
  // Shares the contents: neither side changes them in place.
  void copy(std::byte* to, PjrtContents& peer, const std::byte* from, std::size_t bytes);
  void erase(std::byte* begin, std::size_t bytes);

  // The tensor at an address as a buffer; uploaded if necessary.
  std::shared_ptr<pjrt::Buffer> buffer(std::byte* at, DType dtype, const Shape& shape);
  // The same, for a program that writes its result into the buffer's memory: the tensor is gone.
  std::shared_ptr<pjrt::Buffer> take(std::byte* at, DType dtype, const Shape& shape);
  void set(std::byte* at, std::shared_ptr<pjrt::Buffer> buffer);

 private:
  // A part of a tensor has the whole one's `host` and `buffer`, so that cutting waits for nothing.
  struct Tensor {
    std::size_t bytes = 0;
    std::shared_ptr<std::vector<std::byte>> host = nullptr;  // may be null if there is a buffer
    // May be null if there are elements on the host.
    std::shared_ptr<pjrt::Buffer> buffer = nullptr;
    std::size_t offset = 0;  // of the part
    bool is_part = false;
  };
  using Tensors = std::map<std::byte*, Tensor>;  // by address; they do not overlap

  static std::size_t bytes_of(DType dtype, const Shape& shape);
  static void download(Tensor& tensor);
  // The first tensor that ends after `begin`.
  Tensors::iterator first_of(const std::byte* begin);
  // The tensor that is exactly this range; null if there is none.
  Tensor* whole(const std::byte* begin, std::size_t bytes);
  void erase_locked(std::byte* begin, std::size_t bytes);
  void put(std::byte* at, Tensor tensor);
  void read_locked(void* host, const std::byte* from, std::size_t bytes);

  const std::shared_ptr<pjrt::Client> client_;
  const int device_;
  std::mutex mutex_;
  Tensors tensors_;
};

struct PjrtDeviceOptions {
  DeviceName name;
  std::shared_ptr<pjrt::Client> client;
  int client_index = 0;           // in Client::devices()
  std::int64_t memory_limit = 0;  // bytes
  int intra_op_threads = 1;
};

class PjrtDevice final : public DeviceImpl {
 public:
  explicit PjrtDevice(const PjrtDeviceOptions& options);
  ~PjrtDevice() override;

  Allocator& allocator() override;
  Stream& stream() override { return stream_; }
  void copy_from_host(void* device_memory, const void* host, std::size_t bytes) override;
  void copy_to_host(void* host, const void* device_memory, std::size_t bytes) override;
  Stream& start_copy_ahead() override { return stream_; }
  void copy_from_host_ahead(void* device_memory, const void* host, std::size_t bytes) override {
    copy_from_host(device_memory, host, bytes);
  }
  void copy_from_peer(void* to, DeviceImpl& peer, const void* peer_memory,
                      std::size_t bytes) override;

  pjrt::Client& client() const { return *client_; }
  int client_index() const { return client_index_; }
  PjrtContents& contents() { return contents_; }

 private:
  class Memory;

  std::shared_ptr<pjrt::Client> client_;
  int client_index_;
  PjrtContents contents_;
  InlineStream stream_;
  std::unique_ptr<Memory> memory_;
};

// Which plug-in is loaded.
struct PluginRequest {
  std::string path;
  pjrt::Options options{};
  std::string topology{};  // of a compiler; empty for a client
  friend bool operator==(const PluginRequest&, const PluginRequest&) = default;
};

// Bytes of a device; the host's memory if the plug-in does not tell.
std::int64_t memory_of(const pjrt::Client& client, int device);

}  // namespace tandem
