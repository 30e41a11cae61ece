// Kernel arguments in device memory. A CUDA graph fixes the arguments of its launches, so arguments
// that depend on attributes which each run updates are read from device memory.
#pragma once

#include <cstddef>
#include <vector>

namespace tandem {

// A kernel argument that is computed from the kernel's attributes: its offset in the device memory
// of a CUDA graph, and how to compute it.
struct DeviceArg {
  using Compute = void (*)(const void* attrs, void* value);
  const void* attrs;
  Compute compute;
  std::size_t offset;
};

// While it lives, kernels that this thread runs read arguments that change from `memory`. Without
// memory it only measures the required size, and the arguments are passed by value.
class DeviceArgsScope {
 public:
  DeviceArgsScope() : DeviceArgsScope(nullptr, 0, true) {}
  DeviceArgsScope(const void* memory, std::size_t bytes) : DeviceArgsScope(memory, bytes, false) {}
  ~DeviceArgsScope();
  DeviceArgsScope(const DeviceArgsScope&) = delete;
  DeviceArgsScope& operator=(const DeviceArgsScope&) = delete;

  // Starts the next kernel. `changing`: its attributes change from run to run.
  void begin_kernel(bool changing);
  // False if the attributes of the kernel change but it has not called place().
  bool complete() const { return !changing_ || placed_; }
  // The arguments that kernels have placed so far, and their size in bytes.
  const std::vector<DeviceArg>& values() const { return values_; }
  std::size_t needed() const { return needed_; }

  // The thread's innermost scope; null if there is none.
  static DeviceArgsScope* current();
  // The device address, 16-byte aligned, that the kernel reads an argument of that size from. Null
  // if the argument is passed by value. `attrs`: the kernel's. Throws ResourceExhaustedError if the
  // memory is too small.
  const void* place(const void* attrs, DeviceArg::Compute compute, std::size_t bytes);

 private:
  DeviceArgsScope(const void* memory, std::size_t bytes, bool measures);

  DeviceArgsScope* const previous_;
  const std::byte* const memory_;
  const std::size_t bytes_;
  const bool measures_;
  bool changing_ = false;  // of the current kernel
  bool placed_ = false;
  std::vector<DeviceArg> values_;
  std::size_t needed_ = 0;
};

}  // namespace tandem
