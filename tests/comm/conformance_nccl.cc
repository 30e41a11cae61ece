// The conformance suite between processes with one GPU each. Buffers are in host memory, which the
// suite reads; allocate() returns pinned memory.
#include <string>

#include "comm/conformance.h"
#include "comm/nccl/nccl_backend.h"
#include "comm/process/process_communicator.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "support/errors.h"
#include "support/forked_ranks.h"
#include "support/forked_store.h"
#include "support/gpus.h"
#include "tandem/errors.h"

namespace tandem::conformance_nccl {
namespace {

GroupOptions options_of(std::shared_ptr<Store> store, int rank, int size) {
  return {.store = std::move(store),
          .name = "group",
          .rank = rank,
          .size = size,
          .time_limit = std::chrono::minutes(5)};
}

DeviceImpl& cpu() { return *DeviceManager::get().devices(DeviceType::kCpu, "test").front(); }

TestBackend nccl() {
  return {.name = "gpu",
          .run =
              [](int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
                if (ranks > testing::nvidia_gpus()) GTEST_SKIP() << "NCCL needs one GPU per rank";
                auto store = std::make_shared<ForkedStore>();
                const ExitCodes codes = run_processes(ranks * groups, [&](int process) {
                  const ThreadBudget one(1);
                  const int number = process / ranks;
                  const int rank = process % ranks;
                  GroupOptions options = options_of(store, rank, ranks);
                  options.name = "group " + std::to_string(number);
                  const auto communicator = make_process_communicator(
                      make_nccl_backend(std::move(options), {&cpu(), rank}), cpu(),
                      {.time_limit = std::chrono::minutes(5)});
                  body(*communicator, number);
                });
                EXPECT_EQ(codes, ExitCodes(codes.size(), 0));
              },
          .available = [] { return has_nccl() && testing::nvidia_gpus() > 0; },
          .sums_in_order = false};
}

INSTANTIATE_TEST_SUITE_P(OnGpuNccl, Conformance,
                         ::testing::Combine(::testing::Values(nccl()),
                                            ::testing::Values(1, 2, 4, 8)),
                         name_of_ranks);

// Reduces buffers in the memory of a rank's GPU, ordered with its stream.
TEST(OnGpuNcclMemory, IsReducedInPlace) {
  if (testing::nvidia_gpus() < 2) GTEST_SKIP() << "NCCL needs one GPU per rank";
  auto store = std::make_shared<ForkedStore>();
  const ExitCodes codes = run_processes(2, [&](int rank) {
    DeviceImpl& gpu =
        *DeviceManager::get().devices(DeviceType::kGpu, "test")[static_cast<std::size_t>(rank)];
    const auto communicator =
        make_process_communicator(make_nccl_backend(options_of(store, rank, 2), {&gpu, rank}), gpu,
                                  {.time_limit = std::chrono::minutes(5)});
    constexpr std::size_t kCount = 100'000;
    std::vector<float> values(kCount, static_cast<float>(rank + 1));
    const auto memory = communicator->allocate(kCount * sizeof(float));
    const Buffer all = {memory.get(), kCount, float32};
    for (float expected : {3.0f, 6.0f}) {
      gpu.copy_from_host(all.data, values.data(), all.bytes());
      communicator->all_reduce({&all, 1}, ReduceOp::kSum)->wait();
      gpu.copy_to_host(values.data(), all.data, all.bytes());
      gpu.stream().synchronize();
      EXPECT_EQ(values, std::vector<float>(kCount, expected));
    }
    const Buffer half = {all.data, kCount / 2, float32};
    const auto work = rank == 0 ? communicator->send(half, 1) : communicator->recv(half, 0);
    work->wait();
  });
  EXPECT_EQ(codes, ExitCodes(2, 0));
}

// If there is the module but no GPU, the error says so.
TEST(Nccl, SaysWhatIsMissing) {
  if (testing::nvidia_gpus() > 0) GTEST_SKIP() << "there are GPUs here";
  const std::string text = testing::error_of<UnavailableError>([] {
    make_nccl_backend(options_of(std::make_shared<ForkedStore>(), 0, 1), {&cpu(), 0});
  });
  EXPECT_EQ(text.find(has_nccl() ? "[nccl] there is no GPU that CUDA can use: "
                                 : "[nccl] this build of Tandem has no nccl backend"),
            0u)
      << text;
}

TEST(Nccl, WantsADeviceThatItReaches) {
  EXPECT_THROW(make_nccl_backend(options_of(std::make_shared<ForkedStore>(), 0, 1), {nullptr, 0}),
               InvalidArgumentError);
}

}  // namespace
}  // namespace tandem::conformance_nccl
