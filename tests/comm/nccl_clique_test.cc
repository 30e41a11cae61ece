// GPUs of one process that hang or fail in a collective after the thread that launched it has
// continued.
#include "comm/nccl/nccl_clique.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <chrono>
#include <future>
#include <thread>

#include "comm/local/local_group.h"
#include "device/device_manager.h"
#include "support/errors.h"
#include "support/gpus.h"
#include "support/waiting.h"

namespace tandem::nccl_clique_test {
namespace {

using std::chrono::milliseconds;
using testing::any_error_of;
using testing::expect_parts;

using Errors = std::array<std::string, 2>;

class OnGpuLocalFaults : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!testing::cuda_is_fake()) GTEST_SKIP() << "a real NCCL does not fail on request";
    const auto gpus = DeviceManager::get().devices(DeviceType::kGpu, "test");
    devices_.assign(gpus.begin(), gpus.begin() + 2);
    ASSERT_EQ(why_no_nccl(devices_), "");
    for (std::size_t rank = 0; rank < 2; ++rank)
      memory_[rank] = devices_[rank]->allocator().allocate(sizeof(float));
  }

  void make_group(milliseconds time_limit) {
    group_ = std::make_shared<LocalGroup>(
        devices_,
        LocalGroupOptions{.plan = {.kind = LocalPlan::Kind::kNccl}, .time_limit = time_limit});
    for (int rank = 0; rank < 2; ++rank)
      communicators_[static_cast<std::size_t>(rank)] = group_->communicator(rank);
    clique_ = nccl_clique(devices_, time_limit);
  }

  // Runs a step on both ranks, which adds 1 and 2. Returns the ranks' errors.
  Errors step() {
    group_->begin_step({true, true});
    Errors errors;
    std::array<std::thread, 2> threads;
    for (std::size_t rank = 0; rank < 2; ++rank)
      threads[rank] = std::thread([this, rank, &errors] {
        errors[rank] = any_error_of([&] {
          try {
            const float value = static_cast<float>(rank + 1);
            devices_[rank]->copy_from_host(memory_[rank], &value, sizeof(value));
            const Buffer buffer = {memory_[rank], 1, float32};
            communicators_[rank]->label("bucket 0", 7);
            communicators_[rank]->all_reduce({&buffer, 1}, ReduceOp::kSum)->wait();
          } catch (const std::exception& error) {
            group_->abort(static_cast<int>(rank), error.what());  // as a strategy does
            throw;
          }
        });
      });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }
  Errors wait_for_gpus() const {
    return {any_error_of([&] { devices_[0]->stream().synchronize(); }),
            any_error_of([&] { devices_[1]->stream().synchronize(); })};
  }
  void expect_sums() const {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      float value = 0;
      devices_[rank]->copy_to_host(&value, memory_[rank], sizeof(value));
      devices_[rank]->stream().synchronize();
      EXPECT_EQ(value, 3.0f);
    }
  }
  std::string names() const {
    return devices_[0]->full_name() + " and " + devices_[1]->full_name();
  }

  const Errors none_ = {"no error", "no error"};
  std::vector<DeviceImpl*> devices_;
  std::array<void*, 2> memory_{};
  std::shared_ptr<LocalGroup> group_;
  std::array<std::unique_ptr<Communicator>, 2> communicators_;
  std::shared_ptr<NcclClique> clique_;  // the group's
};

TEST_F(OnGpuLocalFaults, MemoryThatNcclLacksIsNamed) {
  setenv("FAKE_NCCL_HAS_NO_MEMORY", "1", 1);
  const std::string error = any_error_of([&] { nccl_clique(devices_, milliseconds(1000)); });
  EXPECT_TRUE(error.starts_with("ResourceExhaustedError: [nccl] ncclCommInitRankConfig: "))
      << error;
  expect_parts(error, {"'out of memory'", "config::set_memory_growth()"});
}

// Only once, because it is one failure. The next collective connects again.
TEST_F(OnGpuLocalFaults, AWaitForAHungGpuThrows) {
  setenv("FAKE_NCCL_HANGS", "2", 1);
  make_group(milliseconds(1000));
  EXPECT_EQ(step(), none_);
  expect_sums();
  EXPECT_EQ(step(), none_);  // only enqueues, and does not wait
  EXPECT_EQ(
      wait_for_gpus(),
      (Errors{"DeadlineExceededError: [nccl] all_reduce (sum) of 1 float32 in 1 part, 'bucket "
              "0', step 7 did not end within 1000 ms on " +
                  names() + "; it was stopped, and its results are undefined",
              "no error"}));
  EXPECT_TRUE(clique_->failed());
  EXPECT_EQ(step(), none_);
  expect_sums();
}

TEST_F(OnGpuLocalFaults, TheNextCollectiveThrowsIfNoCallWaited) {
  setenv("FAKE_NCCL_HANGS", "1", 1);
  make_group(milliseconds(1000));
  EXPECT_EQ(step(), none_);
  EXPECT_TRUE(testing::eventually([&] { return clique_->failed(); }));
  const Errors errors = step();
  EXPECT_TRUE(errors[0].starts_with("DeadlineExceededError: [nccl] all_reduce (sum)")) << errors[0];
  EXPECT_TRUE(errors[1].starts_with("AbortedError: replica 0 failed")) << errors[1];
  EXPECT_EQ(wait_for_gpus(), none_);
  EXPECT_EQ(step(), none_);
  expect_sums();
}

TEST_F(OnGpuLocalFaults, LaterErrorsOfNcclAreReported) {
  setenv("FAKE_NCCL_FAILS_LATER", "1", 1);
  make_group(testing::kFarAway);
  std::promise<void> computed;
  devices_[1]->stream().enqueue([done = computed.get_future().share()] { done.wait(); });
  EXPECT_EQ(step(), none_);
  computed.set_value();
  const Errors errors = wait_for_gpus();
  EXPECT_TRUE(errors[0].starts_with(
      "AbortedError: [nccl] remote process exited or there was a network error"))
      << errors[0];
  expect_parts(errors[0], {", in all_reduce (sum) of 1 float32 in 1 part, 'bucket 0', step 7 on "});
  EXPECT_EQ(errors[1], "no error");
  EXPECT_EQ(step(), none_);
  expect_sums();
}

// The time limit applies to NCCL's part, not to work that was enqueued before.
TEST_F(OnGpuLocalFaults, AGpuThatComputesDoesNotHang) {
  make_group(milliseconds(2000));
  std::promise<void> computed;
  devices_[1]->stream().enqueue([done = computed.get_future().share()] { done.wait(); });
  EXPECT_EQ(step(), none_);
  std::this_thread::sleep_for(milliseconds(3000));
  computed.set_value();
  EXPECT_EQ(wait_for_gpus(), none_);
  expect_sums();
}

}  // namespace
}  // namespace tandem::nccl_clique_test
