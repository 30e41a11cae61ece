// The real cuDNN library with the properties of a GPU that this machine does not have.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "ops/cuda/module/cudnn_engines.h"
#include "ops/cuda/module/cudnn_graph.h"
#include "support/expects.h"

namespace tandem::cuda {

// An H200, in the format in which cuDNN 9.19 serialises device properties.
inline constexpr char kH200[] = R"({
  "cudaDeviceId": 0, "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000,
  "multiProcessorCount": 132, "warpSize": 32, "totalGlobalMem": 150000000000,
  "l2CacheSize": 62914560, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
  "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxSharedMemoryPerBlock": 49152,
  "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
  "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1})";

class DescribedGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(std::filesystem::exists(TANDEM_CUDNN_LIBRARY), "cudnn");
    library_ = load_cudnn(TANDEM_CUDNN_LIBRARY);
    cudnnBackendDescriptor_t probe = nullptr;
    if (library_.create_descriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &probe) !=
        CUDNN_STATUS_SUCCESS)
      GTEST_SKIP() << "a cuDNN that wants a GPU";
    library_.destroy_descriptor(probe);
    gpu_.emplace_back(library_, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    gpu_[0].set_all(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof(kH200),
                    kH200);
    gpu_[0].finalize("the properties of a GPU");
  }

  CudnnTarget target() const { return {.properties = &gpu_[0]}; }
  std::vector<CudnnEngine> engines(CudnnGraph graph, DType dtype, const EngineRules& rules) {
    if (!graph) return {};
    graphs_.push_back(std::move(graph));
    return find_engines(library_, target(), graphs_.back().operations(), dtype, rules);
  }

  static constexpr std::int64_t kWorkspace = std::int64_t{1} << 30;
  CudnnLibrary library_{};
  std::vector<Descriptor> gpu_;
  std::vector<CudnnGraph> graphs_;
};

}  // namespace tandem::cuda
