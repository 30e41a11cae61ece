// GPUs whose kernels enqueue themselves (Stream::Execution::kNative): what they can do beside what
// every device can, and what cannot be done on them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "device/device.h"
#include "device/shared_failure.h"

namespace tandem {

// What was enqueued once, to be enqueued again and again as a whole.
class RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  // Enqueues it on the device's stream(). The memory that it was recorded with is still there.
  virtual void launch() = 0;
};

// No code of the host reaches its memory, nor does a task of its stream: what is to be computed
// there takes a kernel. (An emulated GPU's tasks do.)
class NativeGpu : public Device {
 public:
  // Held where work is given to several GPUs whose parts wait for each other (a collective of
  // NCCL's): in one order on all of them, and with no call between that would wait for a GPU which
  // has its part already, as those that take memory of the driver may.
  static std::mutex& giving_to_several();

  // The driver's number of the GPU, which several logical devices may share.
  int ordinal() const { return ordinal_; }
  // Whether work on this device may read and write the memory of `peer`.
  virtual bool reaches(const NativeGpu& peer) const = 0;
  // Beside stream(), with no order between the two but by events: for what is to go on while the
  // device computes.
  virtual Stream& communication_stream() = 0;
  // What stream() works on is not what it should be: whoever waits for it, now or next, gets the
  // error. Thread-safe, also while the GPU hangs.
  virtual void fail_stream(std::shared_ptr<SharedFailure> failure) = 0;
  // Copies to host memory on a stream of its own: behind `written`, an event of this device, and
  // beside what is enqueued later. Complete on return; throws what failed before.
  virtual void read(void* host, const void* device_memory, std::size_t bytes,
                    const Event& written) = 0;
  // Records what `enqueue` enqueues on the stream of the driver's that it is given, which runs
  // nothing. `earlier`: of the same work with other parameters, to be changed where that is
  // possible, or null; of no use to the caller any more. Throws what `enqueue` throws, and an error
  // of the driver's where it does what cannot be recorded, such as waiting for the GPU; the device
  // is as it was.
  virtual std::unique_ptr<RecordedWork> record_work(
      const std::function<void(void* native_stream)>& enqueue,
      std::unique_ptr<RecordedWork> earlier) = 0;

 protected:
  NativeGpu(DeviceName name, int intra_op_threads, int ordinal)
      : Device(std::move(name), DeviceBackend::kCuda, intra_op_threads), ordinal_(ordinal) {}

 private:
  const int ordinal_;
};

// Null where tasks of the device's stream reach its memory.
inline NativeGpu* as_native(Device& device) {
  return device.backend() == DeviceBackend::kCuda ? static_cast<NativeGpu*>(&device) : nullptr;
}

}  // namespace tandem
