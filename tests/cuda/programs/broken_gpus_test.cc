// Waiting for a GPU that a kernel has broken throws an error; the process continues.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <string>

#include "cuda/fake_cuda.h"
#include "device/device_manager.h"
#include "device/stream_span.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/processes.h"
#include "support/waiting.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using testing::any_error_of;

const std::string kWhy = "an illegal memory access was encountered";

void expect_reported(const std::string& error) {
  EXPECT_NE(error.find(kWhy), std::string::npos) << error;
}

DeviceImpl& first_gpu() { return *DeviceManager::get().devices(DeviceType::kGpu, "test").front(); }

TEST(BrokenGpus, FailACollectiveBetweenProcesses) {
  comm::init_process_group({.backend = "shm",
                            .init_method = fmt::format("tcp://127.0.0.1:{}", testing::free_port()),
                            .world_size = 1,
                            .rank = 0});
  const Tensor x = ones({4});
  {
    std::promise<void> reached;  // before that, the GPU's part of the collective is missing
    first_gpu().stream().enqueue([done = reached.get_future().share()] { done.wait(); });
    comm::Work work = comm::all_reduce_async(x);
    fake_cuda::break_gpus(kWhy);
    reached.set_value();
    expect_reported(any_error_of([&] { work.wait(); }));
  }
  comm::destroy_process_group();
  expect_reported(any_error_of([&] { x.to_vector<float>(); }));
}

TEST(BrokenGpus, LeaveAProfileWithAHole) {
  const testing::TemporaryDirectory folder;
  profiler::start({.file = folder.path() / "trace.json"});
  {
    const StreamSpan span(first_gpu(), [] { return profile::Event{.name = "under way"}; });
    fake_cuda::break_gpus(kWhy);
  }
  expect_reported(any_error_of([] { constant({1.0, 2.0}).to_vector<float>(); }));
}

// One GPU is in NCCL's kernel, which waits for the other. Waiting for that one's event would hang,
// so it is polled.
TEST(BrokenGpus, FailACollectiveThatIsUnderWay) {
  setenv("FAKE_NCCL_HANGS", "1", 1);
  const distribute::MirroredStrategy strategy(
      {.devices = {"/gpu:0", "/gpu:1"}, .cross_device_ops = distribute::NcclAllReduce()});
  Variable weights;
  optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    weights = Variable(ones({4}));
    optimizer = optimizers::SGD({.learning_rate = 0.1});
  }
  strategy.run([&] {
    optimizer.apply_gradients({ones({4})}, {weights});  // on all replicas
    return ones({1});
  });
  fake_cuda::break_gpus(kWhy);
  EXPECT_TRUE(testing::eventually(
      [] { return any_error_of([] { first_gpu().stream().synchronize(); }) != "no error"; }));
}

}  // namespace
}  // namespace tandem
