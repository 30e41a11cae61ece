// Collectives between NVIDIA GPUs in one process.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "comm/local_ranks.h"
#include "support/errors.h"
#include "tandem/errors.h"

namespace tandem::local_group_gpus_test {
namespace {

using namespace testing;

class OnGpuLocalAllReduce : public ::testing::TestWithParam<std::tuple<Where, LocalPlan::Kind>> {};

TEST_P(OnGpuLocalAllReduce, SumsOverRanksAndLengths) {
  const auto [where, kind] = GetParam();
  if (devices_for(where, 2).empty()) GTEST_SKIP() << "there are not two such GPUs here";
  for (int ranks : {1, 2, 3, 4}) {
    const auto devices = devices_for(where, ranks);
    if (devices.empty()) break;
    for (std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{1021}})
      check_all_reduce<float>(devices, {.kind = kind}, length, ReduceOp::kSum);
  }
}

TEST_P(OnGpuLocalAllReduce, EveryOperationAndType) {
  const auto [where, kind] = GetParam();
  const auto devices = devices_for(where, 2);
  if (devices.empty()) GTEST_SKIP() << "there are not two such GPUs here";
  for (ReduceOp op :
       {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    check_all_reduce<float>(devices, {.kind = kind}, 257, op);
    check_all_reduce<double>(devices, {.kind = kind}, 257, op);
    check_all_reduce<Half>(devices, {.kind = kind}, 257, op);
    check_all_reduce<BFloat16>(devices, {.kind = kind}, 257, op);
    if (op == ReduceOp::kMean) continue;
    check_all_reduce<std::int32_t>(devices, {.kind = kind}, 257, op);
    check_all_reduce<std::int64_t>(devices, {.kind = kind}, 257, op);
    check_all_reduce<std::uint8_t>(devices, {.kind = kind}, 257, op);
  }
}

// The kernel's sums equal the host's.
TEST_P(OnGpuLocalAllReduce, TreeSumsAreTheHosts) {
  const auto [where, kind] = GetParam();
  constexpr std::size_t kLength = 1021;
  for (int ranks : {2, 3, 4}) {
    const auto devices = devices_for(where, ranks);
    if (devices.empty() && ranks == 2) GTEST_SKIP() << "there are not two such GPUs here";
    if (devices.empty()) break;
    std::vector<std::vector<Half>> values(devices.size());
    for (std::size_t rank = 0; rank < values.size(); ++rank)
      for (std::size_t i = 0; i < kLength; ++i)
        values[rank].push_back(
            static_cast<Half>(static_cast<float>((i * 31 + rank * 17) % 97) * 0.37f - 9.0f));
    std::vector<Half> expected(kLength);
    std::vector<const void*> from;
    for (const auto& value : values) from.push_back(value.data());
    void* to = expected.data();
    combine(from, {&to, 1}, kLength, float16, ReduceOp::kTreeSum, CombineOrder::kInOrder);
    auto group = std::make_shared<LocalGroup>(devices, LocalGroupOptions{.plan = {.kind = kind}});
    on_ranks(ranks, [&](int rank) {
      const auto me = static_cast<std::size_t>(rank);
      const DeviceArray<Half> array(*devices[me], values[me]);
      const Buffer whole = array.part(0, kLength);
      group->communicator(rank)->all_reduce({&whole, 1}, ReduceOp::kTreeSum)->wait();
      const std::vector<Half> result = array.read();
      EXPECT_EQ(std::memcmp(result.data(), expected.data(), kLength * sizeof(Half)), 0)
          << "rank " << rank << " of " << ranks;
    });
  }
}

INSTANTIATE_TEST_SUITE_P(OnGpuNvidia, OnGpuLocalAllReduce,
                         ::testing::Combine(::testing::Values(Where::kNvidia, Where::kShared),
                                            ::testing::Values(LocalPlan::Kind::kNccl,
                                                              LocalPlan::Kind::kSliced,
                                                              LocalPlan::Kind::kToOneDevice,
                                                              LocalPlan::Kind::kHierarchical)));

TEST(OnGpuLocalGroup, PacksOfNccl) {
  const auto devices = devices_for(Where::kNvidia, 2);
  if (devices.empty()) GTEST_SKIP() << "there are not two GPUs here";
  for (int packs : {0, 1, 3, 9})
    check_all_reduce<float>(devices, {.kind = LocalPlan::Kind::kNccl, .num_packs = packs}, 1001,
                            ReduceOp::kSum);
}

TEST(OnGpuLocalGroup, EveryCollectiveOfNccl) {
  using Values = std::vector<float>;
  const auto devices = devices_for(Where::kNvidia, 2);
  if (devices.empty()) GTEST_SKIP() << "there are not two GPUs here";
  auto group = std::make_shared<LocalGroup>(
      devices, LocalGroupOptions{.plan = {.kind = LocalPlan::Kind::kNccl}});
  on_ranks(2, [&](int rank) {
    DeviceImpl& device = *devices[static_cast<std::size_t>(rank)];
    auto communicator = group->communicator(rank);
    EXPECT_EQ(communicator->packs(), why_no_nccl(devices).empty());
    const float one = static_cast<float>(rank + 1);
    const auto parts_of = [](const DeviceArray<float>& array) {
      return std::vector<Buffer>{array.part(0, 2), array.part(2, 3)};
    };
    DeviceArray<float> reduced(device, Values(4, one)), sent(device, Values{one, 10 * one, one}),
        received(device, Values(3, 0.0f)), gathered(device, Values(3, 0.0f));
    const Buffer whole[] = {reduced.part(0, 4)};
    communicator->reduce(whole, ReduceOp::kSum, 1)->wait();
    EXPECT_EQ(reduced.read(), Values(4, rank == 1 ? 3.0f : one));
    communicator->broadcast(whole, 1)->wait();
    EXPECT_EQ(reduced.read(), Values(4, 3.0f));

    const std::size_t mine = rank == 0 ? 2 : 1;  // elements
    DeviceArray<float> own(device, Values(mine, one));
    communicator->all_gather(own.part(0, mine), parts_of(gathered))->wait();
    EXPECT_EQ(gathered.read(), (Values{1, 1, 2}));
    communicator->reduce_scatter(parts_of(gathered), own.part(0, mine), ReduceOp::kSum)->wait();
    EXPECT_EQ(own.read(), Values(mine, rank == 0 ? 2.0f : 4.0f));

    const std::vector<Buffer> to = {sent.part(0, 1), sent.part(1, 2)};
    const std::vector<Buffer> from = {received.part(0, 1), received.part(1, 2)};
    communicator->all_to_all(to, from)->wait();
    EXPECT_EQ(received.read(), rank == 0 ? (Values{1, 2, 0}) : (Values{10, 20, 0}));
    const auto sending = communicator->send(sent.part(0, 2), 1 - rank);
    communicator->recv(received.part(0, 2), 1 - rank)->wait();
    sending->wait();
    EXPECT_EQ(received.read(), (Values{3 - one, 10 * (3 - one), 0}));
  });
}

// Requires the fake of NCCL, which fails on request.
TEST(OnGpuLocalGroup, AConnectionThatFailsIsAnErrorAndMadeAnew) {
  const auto devices = devices_for(Where::kNvidia, 2);
  if (devices.empty() || !why_no_nccl(devices).empty()) GTEST_SKIP() << "there is no NCCL here";
  const auto gpu = config::list_physical_devices("GPU").front();
  if (config::get_device_details(gpu).device_name != "Fake GPU")
    GTEST_SKIP() << "a real NCCL does not fail on request";
  setenv("FAKE_NCCL_FAILS", "2", 1);
  auto group = std::make_shared<LocalGroup>(
      devices, LocalGroupOptions{.plan = {.kind = LocalPlan::Kind::kNccl}});
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < 2; ++rank) communicators.push_back(group->communicator(rank));
  for (int step = 0; step < 3; ++step) {
    group->begin_step({true, true});
    on_ranks(2, [&](int rank) {
      const auto me = static_cast<std::size_t>(rank);
      DeviceArray<float> array(*devices[me], {1.0f});
      const Buffer parts[] = {array.part(0, 1)};
      const auto reduce = [&] { communicators[me]->all_reduce(parts, ReduceOp::kSum)->wait(); };
      if (step != 1) {
        reduce();
        EXPECT_EQ(array.read(), (std::vector<float>{2.0f}));
        return;
      }
      const std::string text = error_of<AbortedError>([&] {
        try {
          reduce();
        } catch (const std::exception& error) {
          group->abort(rank, error.what());  // as a strategy does
          throw;
        }
      });
      EXPECT_NE(text.find("a cable was pulled"), std::string::npos) << text;
    });
  }
}

}  // namespace
}  // namespace tandem::local_group_gpus_test
