// Launches and matrix products on the fake GPUs, which other tests rely on.
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cuda/fake_cuda.h"
#include "device/cuda/module/cuda_device.h"
#include "device/cuda/module/cuda_gpus.h"
#include "device/discovery.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

__global__ void add(int* x, int number) { x[blockIdx.x * blockDim.x + threadIdx.x] += number; }
__global__ void lonely_barrier() {
  if (threadIdx.x == 0) __syncthreads();
}

struct OneGpu {
  const std::unique_ptr<DeviceImpl> device = [] {
    fake_cuda::set_gpus({{.memory = std::size_t{1} << 30}});
    return cuda::find_gpus()[0]->make_device(
        {.name = local_device_name("GPU", 0), .memory_limit = 64 << 20});
  }();
  cudaLaunchConfig_t grid(unsigned blocks, unsigned threads) const {
    cudaLaunchConfig_t config{};
    config.gridDim = blocks;
    config.blockDim = threads;
    config.stream = static_cast<cudaStream_t>(device->stream().native_handle());
    return config;
  }
};

TEST(FakeLaunch, RunsInTheOrderOfTheStream) {
  const OneGpu gpu;
  int* const x = static_cast<int*>(gpu.device->allocator().allocate(64 * sizeof(int)));
  const auto grid = gpu.grid(2, 32);
  ASSERT_EQ(cudaMemsetAsync(x, 0, 64 * sizeof(int), grid.stream), cudaSuccess);
  for (int i = 1; i <= 10; ++i) ASSERT_EQ(cudaLaunchKernelEx(&grid, add, x, i), cudaSuccess);
  std::vector<int> seen(64);
  gpu.device->copy_to_host(seen.data(), x, 64 * sizeof(int));
  gpu.device->stream().synchronize();
  EXPECT_EQ(seen, std::vector<int>(64, 55));
  gpu.device->allocator().deallocate(x);
}

TEST(FakeLaunch, OfShapesThatNoGpuTakesIsRefused) {
  const OneGpu gpu;
  for (const auto& grid : {gpu.grid(0, 32), gpu.grid(1, 0), gpu.grid(1, 1025)})
    EXPECT_EQ(cudaLaunchKernelEx(&grid, lonely_barrier), cudaErrorInvalidConfiguration);
}

TEST(FakeLaunch, AKernelThatIsWrongBreaksTheGpu) {
  const OneGpu gpu;
  const auto grid = gpu.grid(1, 32);
  ASSERT_EQ(cudaLaunchKernelEx(&grid, lonely_barrier), cudaSuccess);
  try {
    gpu.device->stream().synchronize();
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("__syncthreads()"), std::string::npos) << error.what();
  }
  EXPECT_EQ(cudaLaunchKernelEx(&grid, lonely_barrier), cudaErrorLaunchFailure);
}

// c = a . b for column-major 2 by 2 matrices, with an algorithm for an alignment of `align` bytes.
cublasStatus_t multiply(const OneGpu& gpu, cublasComputeType_t compute, cudaDataType_t type,
                        std::uint32_t align, const void* a, const void* b, void* c,
                        const void* bias = nullptr) {
  cublasLtHandle_t handle = nullptr;
  cublasLtCreate(&handle);
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatrixLayoutCreate(&layout, type, 2, 2, 2);
  cublasLtMatmulDesc_t product = nullptr;
  cublasLtMatmulDescCreate(&product, compute, type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F);
  if (bias != nullptr) {
    const auto epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue,
                                   sizeof(epilogue));
    cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias));
  }
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulPreferenceCreate(&preference);
  for (const auto which :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    cublasLtMatmulPreferenceSetAttribute(preference, which, &align, sizeof(align));
  cublasLtMatmulHeuristicResult_t found{};
  int count = 0;
  cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, product, layout, layout, layout,
                                                         layout, preference, 1, &found, &count);
  const float one = 1, zero = 0;
  if (status == CUBLAS_STATUS_SUCCESS)
    status =
        cublasLtMatmul(handle, product, &one, a, layout, b, layout, &zero, c, layout, c, layout,
                       &found.algo, nullptr, found.workspaceSize, gpu.grid(1, 1).stream);
  gpu.device->stream().synchronize();
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatmulDescDestroy(product);
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtDestroy(handle);
  return status;
}

TEST(FakeCublas, MultipliesAndAddsABias) {
  const OneGpu gpu;
  alignas(256) const float a[] = {1, 2, 3, 4}, b[] = {5, 6, 7, 8}, bias[] = {100, 200};
  alignas(256) float c[4] = {};
  ASSERT_EQ(multiply(gpu, CUBLAS_COMPUTE_32F, CUDA_R_32F, 16, a, b, c, bias),
            CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(std::vector<float>(c, c + 4), (std::vector<float>{123, 234, 131, 246}));
}

TEST(FakeCublas, RefusesWhatTheRealOneRefuses) {
  const OneGpu gpu;
  alignas(256) float memory[64] = {};
  const float *a = memory, *b = memory + 16;
  float* c = memory + 32;
  EXPECT_EQ(multiply(gpu, CUBLAS_COMPUTE_32F, CUDA_R_32F, 16, a + 1, b, c),
            CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(multiply(gpu, CUBLAS_COMPUTE_32F, CUDA_R_32F, 4, a + 1, b, c), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(multiply(gpu, CUBLAS_COMPUTE_32F, CUDA_R_32F, 4, a, b, c, a + 1),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply(gpu, CUBLAS_COMPUTE_32F, CUDA_R_64F, 16, a, b, c),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply(gpu, CUBLAS_COMPUTE_64F, CUDA_R_64F, 16, a, b, c, a),
            CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(multiply(gpu, CUBLAS_COMPUTE_16F, CUDA_R_16F, 16, a, b, c),
            CUBLAS_STATUS_NOT_SUPPORTED);
}

}  // namespace
}  // namespace tandem
