// Runs the suite on emulated GPUs and on the machine's.
#include "device/gpu_conformance.h"

namespace tandem::gpu_conformance_test {
namespace {

INSTANTIATE_TEST_SUITE_P(Emulated, GpuConformance,
                         ::testing::Values(TestGpus{.name = "two",
                                                    .find = [] { return emulated_gpus(2, 64); }}),
                         name_of_gpus);
INSTANTIATE_TEST_SUITE_P(OnGpuCuda, GpuConformance,
                         ::testing::Values(TestGpus{.name = "all", .find = discover_cuda}),
                         name_of_gpus);

}  // namespace
}  // namespace tandem::gpu_conformance_test
