// GPUs whose kernels enqueue themselves (Stream::Execution::kNative): their additional functions
// and restrictions.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "device/device.h"
#include "device/shared_failure.h"

namespace tandem {

// A recorded sequence of work that can be launched repeatedly, such as a CUDA graph.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  // Enqueues it on the device's stream(). REQUIRES: the memory that it was recorded with still
  // exists.
  virtual void launch() = 0;
};

// Host code, including tasks of its stream, cannot access its memory: computing there requires a
// kernel. (Tasks of an emulated GPU can.)
class NativeGpu : public DeviceImpl {
 public:
  // Held while work is launched on several GPUs whose parts wait for each other, such as an NCCL
  // collective. All GPUs then get such work in the same order. Also held by calls that may wait for
  // a GPU, such as driver allocations: between the parts of a collective they would deadlock.
  static std::mutex& multi_gpu_launch_mutex();

  // The driver's number of the GPU, which several logical devices may share.
  int ordinal() const { return ordinal_; }
  // Whether work on this device may access the memory of `peer`.
  virtual bool reaches(const NativeGpu& peer) const = 0;
  // A second stream, ordered with stream() only by events, for work that overlaps with the
  // computation.
  virtual Stream& communication_stream() = 0;
  // Reports that the data of stream() is invalid: the current or next wait on it throws the error.
  // Thread-safe, also while the GPU hangs.
  virtual void fail_stream(std::shared_ptr<SharedFailure> failure) = 0;
  // Copies to host memory on a separate stream: after `written`, an event of this device, and
  // concurrently with later work. Complete on return; throws earlier errors.
  virtual void read(void* host, const void* device_memory, std::size_t bytes,
                    const StreamEvent& written) = 0;
  // Records the work that `enqueue` enqueues on the driver stream that it is passed; nothing runs.
  // `earlier`, if not null, is a recording of the same work with other parameters. It is updated if
  // possible, and consumed. Throws the exceptions of `enqueue`, and a driver error if the work
  // cannot be recorded, for instance because it waits for the GPU. The device is unchanged in that
  // case.
  virtual std::unique_ptr<RecordedWork> record_work(
      const std::function<void(void* native_stream)>& enqueue,
      std::unique_ptr<RecordedWork> earlier) = 0;

 protected:
  NativeGpu(DeviceName name, int intra_op_threads, int ordinal)
      : DeviceImpl(std::move(name), DeviceBackend::kCuda, intra_op_threads), ordinal_(ordinal) {}

 private:
  const int ordinal_;
};

// Null if host tasks can access the device's memory.
inline NativeGpu* as_native(DeviceImpl& device) {
  return device.backend() == DeviceBackend::kCuda ? static_cast<NativeGpu*>(&device) : nullptr;
}

}  // namespace tandem
