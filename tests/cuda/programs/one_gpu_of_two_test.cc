// Processes that each use one of a host's GPUs, chosen by their launcher or the program.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/fake_cuda.h"
#include "support/processes.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

TEST(OneGpuOfTwo, IsTheOneThatNcclUses) {
  const auto gpus = config::list_physical_devices("GPU");
  ASSERT_EQ(gpus.size(), 2u);
  config::set_visible_devices({gpus[1]}, "GPU");
  comm::init_process_group({.backend = "nccl",
                            .init_method = fmt::format("tcp://127.0.0.1:{}", testing::free_port()),
                            .world_size = 1,
                            .rank = 0});
  const Tensor sum = comm::all_reduce(constant({1.0, 2.0}));
  EXPECT_EQ(sum.device(), "/job:localhost/replica:0/task:0/device:GPU:0");
  EXPECT_EQ(sum.to_vector<float>(), (std::vector<float>{1, 2}));
  comm::destroy_process_group();
  EXPECT_FALSE(fake_cuda::gpu(0).has_context);
}

}  // namespace
}  // namespace tandem
