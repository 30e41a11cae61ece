#include "device/cuda/module/cuda_gpus.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string>

#include "core/log.h"
#include "core/status.h"
#include "device/cuda/module/check.h"
#include "device/cuda/module/cuda_device.h"
#include "device/gpu_memory.h"
#include "device/gpu_policy.h"

namespace tandem::cuda {
namespace {

constexpr int kOldestMajor = 8;  // matches the kernels that cmake/TandemCuda.cmake builds

int attribute(cudaDeviceAttr which, int ordinal) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, ordinal), "cudaDeviceGetAttribute");
  return value;
}

class PhysicalCudaGpu final : public PhysicalGpu {
 public:
  explicit PhysicalCudaGpu(int ordinal)
      : ordinal_(ordinal), integrated_(attribute(cudaDevAttrIntegrated, ordinal) != 0) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
    std::array<char, 32> bus{};
    check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), ordinal),
          "cudaDeviceGetPCIBusId");
    details_ = {.device_name = properties.name,
                .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
                .pci_bus_id = bus.data(),
                .compute_capability = {{properties.major, properties.minor}}};
  }

  config::DeviceDetails details() const override { return details_; }

  // The driver reports available memory only for a GPU with a context, so this creates one unless
  // there is a fraction.
  std::int64_t memory_limit(double fraction) const override {
    GpuMemory memory{.total = details_.memory_bytes,
                     .compute_major = details_.compute_capability->first,
                     .integrated = integrated_};
    if (fraction == 0.0) {
      require_own_process();
      make_current(ordinal_);
      std::size_t available = 0, total = 0;
      check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
      memory.available = static_cast<std::int64_t>(available);
    }
    return gpu_memory_limit(memory, fraction);
  }

  PriorityRange priority_range() const override { return kGpuPriorities; }

  std::unique_ptr<DeviceImpl> make_device(const LogicalGpuOptions& options) const override {
    require_own_process();
    return std::make_unique<CudaDevice>(ordinal_, options);
  }

 private:
  // CUDA does not survive a fork, and its own error for that is incomprehensible.
  void require_own_process() const {
    if (getpid() != process_)
      fail<FailedPreconditionError>(
          "[cuda] GPU {} cannot be used by a process that was forked after GPUs were listed. "
          "Fork before the first operation and before listing devices, or start a new process "
          "(`tandem run`)",
          ordinal_);
  }

  const int ordinal_;
  const bool integrated_;
  const pid_t process_ = getpid();
  config::DeviceDetails details_;
};

std::string version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

// Returns the number of GPUs, possibly 0. Throws if CUDA does not respond.
int count_gpus() {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess) return count;
  cudaGetLastError();
  if (result == cudaErrorNoDevice) return 0;
  if (result == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    fail<UnavailableError>(
        "[cuda] the NVIDIA driver supports CUDA {}, but Tandem was built with CUDA {}: "
        "install a newer driver",
        version(driver), version(CUDART_VERSION));
  }
  fail<UnavailableError>(
      "[cuda] the NVIDIA driver does not work: {} ({}). Run `nvidia-smi` for details",
      cudaGetErrorString(result), cudaGetErrorName(result));
}

}  // namespace

PhysicalGpus find_gpus() {
  PhysicalGpus gpus;
  const int count = count_gpus();
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    auto gpu = std::make_shared<PhysicalCudaGpu>(ordinal);
    const auto [major, minor] = *gpu->details().compute_capability;
    if (major >= kOldestMajor)
      gpus.push_back(std::move(gpu));
    else
      logging::warn(
          "[cuda] GPU {} ({}, compute capability {}.{}) is not used: Tandem's kernels need {}.0",
          ordinal, gpu->details().device_name, major, minor, kOldestMajor);
  }
  return gpus;
}

}  // namespace tandem::cuda
