// A logical device, on which tensors are stored and operations run.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "device/allocator.h"
#include "device/device_name.h"
#include "device/stream.h"
#include "tandem/device.h"

namespace tandem {

enum class DeviceBackend : std::uint8_t { kCpu, kEmulatedGpu, kCuda, kPjrt };

// Lives as long as the process, because tensors hold plain pointers to it. Thread-safe.
class DeviceImpl {
 public:
  virtual ~DeviceImpl() = default;
  DeviceImpl(const DeviceImpl&) = delete;
  DeviceImpl& operator=(const DeviceImpl&) = delete;

  const DeviceName& name() const { return name_; }
  // "/job:localhost/replica:0/task:0/device:GPU:0"
  const std::string& full_name() const { return full_name_; }
  DeviceType type() const {
    return backend_ == DeviceBackend::kCpu    ? DeviceType::kCpu
           : backend_ == DeviceBackend::kPjrt ? DeviceType::kTpu
                                              : DeviceType::kGpu;
  }
  DeviceBackend backend() const { return backend_; }
  int index() const { return *name_.id; }
  // Whether host code may read the device's memory directly.
  bool host_accessible() const { return backend_ == DeviceBackend::kCpu; }
  // The number of threads of one operation on this device.
  int intra_op_threads() const { return intra_op_threads_; }

  virtual Allocator& allocator() = 0;
  virtual Stream& stream() = 0;
  // Enqueue a copy on stream(). The host memory of copy_from_host may be reused on return. The host
  // memory of copy_to_host is complete once stream() has passed the copy.
  virtual void copy_from_host(void* device_memory, const void* host, std::size_t bytes) = 0;
  virtual void copy_to_host(void* host, const void* device_memory, std::size_t bytes) = 0;
  // Returns a separate stream, for host copies that overlap with stream(). Makes it wait for the
  // work that stream() has been given so far.
  virtual Stream& start_copy_ahead() = 0;
  // As copy_from_host(), on that stream.
  virtual void copy_from_host_ahead(void* device_memory, const void* host, std::size_t bytes) = 0;
  // Enqueues on stream() a copy to memory of this device from memory of a peer of the same backend,
  // which may be this device.
  virtual void copy_from_peer(void* to, DeviceImpl& peer, const void* peer_memory,
                              std::size_t bytes) = 0;

 protected:
  DeviceImpl(DeviceName name, DeviceBackend backend, int intra_op_threads)
      : name_(std::move(name)),
        full_name_(name_.to_string()),
        backend_(backend),
        intra_op_threads_(intra_op_threads) {}

 private:
  DeviceName name_;
  std::string full_name_;
  DeviceBackend backend_;
  int intra_op_threads_;
};

}  // namespace tandem
