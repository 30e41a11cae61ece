// The kernels of each backend, as docs/operations.md lists them. This test makes the page:
//   TANDEM_WRITE_OPERATIONS=1 build/release/tests/op_test --gtest_filter=Backends.*
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>

#include "core/env.h"
#include "core/module.h"
#include "device/physical_gpu.h"
#include "graph/stablehlo/lowering.h"
#include "op/cuda_kernels.h"
#include "op/find_kernel.h"
#include "support/built.h"
#include "support/expects.h"
#include "tandem/errors.h"

namespace tandem::backends_test {
namespace {

std::span<const CudaKernel> cuda_kernels() {
  std::span<const CudaKernel> kernels;
  load<void(std::span<const CudaKernel>*)>(kCudaModule, "tandem_cuda_kernels")(&kernels);
  return kernels;
}

std::set<std::string_view> on_cuda() {
  std::set<std::string_view> names;
  for (const CudaKernel& each : cuda_kernels()) names.insert(each.op);
  return names;
}

// EmulatedGpusHaveTheOperationsThatCudaHas: so builds without CUDA make and check the same page.
std::string page() {
  int count = 0, kernels = 0, lowerings = 0;
  std::string rows;
  for (const OpDef* op : all_ops()) {
    if ((op->traits & kView) != 0) continue;  // has no kernel
    const bool gpu = find_kernel(*op, DeviceBackend::kEmulatedGpu) != nullptr;
    const char* on_gpu = gpu ? "yes" : op->gpu ? "" : "host";
    ++count;
    kernels += gpu ? 1 : 0;
    const bool lowered = stablehlo::lowering_of(*op) != nullptr;
    lowerings += lowered ? 1 : 0;
    rows += fmt::format("| {} | {} | {} | {} | {} |\n", op->name,
                        find_kernel(*op, DeviceBackend::kCpu) ? "yes" : "", on_gpu, on_gpu,
                        lowered ? "yes" : "");
  }
  return fmt::format(
      "# Operations\n\n"
      "The table shows the backends that have a kernel for each operation. An operation without a "
      "kernel for GPUs runs on\nthe CPU ([devices.md](devices.md)). \"host\": the operation always "
      "runs on the host. StableHLO: the\noperation has a lowering, so that "
      "programs with it are compiled for TPUs and other devices of PJRT plug-ins. The test\n"
      "`tests/op/backends_test.cc` makes this page, and fails if it is out of date.\nOf "
      "{} operations, {} have CUDA kernels and {} have lowerings.\n\n"
      "| operation | CPU | emulated GPU | CUDA | StableHLO |\n| --- | --- | --- | --- | --- "
      "|\n{}",
      count, kernels, lowerings, rows);
}

TEST(Backends, TheOperationsPageIsUpToDate) {
  const std::string path = std::string(TANDEM_SOURCE_DIR) + "/docs/operations.md";
  if (env_bool("TANDEM_WRITE_OPERATIONS").value_or(false)) std::ofstream(path) << page();
  std::ifstream file(path);
  const std::string written((std::istreambuf_iterator<char>(file)), {});
  EXPECT_TRUE(written == page()) << "docs/operations.md is out of date: write it anew";
}

// Kernels are registered by name and looked up by operation.
TEST(Backends, EveryCudaKernelHasAnOperation) {
  TANDEM_REQUIRE(testing::built_module("cuda"), "cuda");
  for (const OpDef* op : all_ops()) EXPECT_EQ(find_kernel(*op, DeviceBackend::kCuda), nullptr);
  register_cuda_kernels(cuda_kernels());
  for (const CudaKernel& each : cuda_kernels()) {
    const OpDef* op = find_op(each.op);
    ASSERT_NE(op, nullptr) << each.op;
    EXPECT_EQ(find_kernel(*op, DeviceBackend::kCuda), each.kernel) << each.op;
  }
}

// Needs CUDA's headers: tests/cuda, and the operations with a fake of CUDA.
TEST(Backends, CudaKernelsAreTestedOnTheHost) {
  TANDEM_REQUIRE(testing::built_fake_cuda(), "cuda");
}

// Placement on emulated GPUs then equals placement on real GPUs.
TEST(Backends, EmulatedGpusHaveTheOperationsThatCudaHas) {
  TANDEM_REQUIRE(testing::built_module("cuda"), "cuda");
  const std::set<std::string_view> cuda = on_cuda();
  for (const OpDef* op : all_ops())
    if ((op->traits & kView) == 0) {
      EXPECT_EQ(find_kernel(*op, DeviceBackend::kEmulatedGpu) != nullptr, cuda.contains(op->name))
          << op->name;
    }
}

// Runs with tests/support/broken_driver.cc instead of NVIDIA's driver.
TEST(WithBrokenDriver, LogsAWarningAndHasNoGpu) {
  ::testing::internal::CaptureStderr();
  EXPECT_TRUE(discover_cuda().empty());
  const std::string said = ::testing::internal::GetCapturedStderr();
  const std::string why = testing::built_module("cuda")
                              ? "the NVIDIA driver does not work"
                              : "this build of Tandem has no cuda backend";
  EXPECT_NE(said.find("GPUs are not used: [cuda] " + why), std::string::npos) << said;
}

TEST(Backends, KernelsOfUnknownOperationsAreRejected) {
  const auto nothing = [](KernelContext&) {};
  const CudaKernel unknown[] = {{"NoSuchOperation", nothing}};
  EXPECT_THROW(register_cuda_kernels(unknown), InternalError);
  const CudaKernel twice[] = {{"Relu", nothing}, {"Relu", nothing}};
  EXPECT_THROW(register_cuda_kernels(twice), InternalError);
}

}  // namespace
}  // namespace tandem::backends_test
