// Collectives between threads, for all plans, devices, ranks, sizes and dtypes.
#include "comm/local/local_group.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "comm/local_ranks.h"
#include "support/errors.h"
#include "support/log_file.h"
#include "tandem/errors.h"

namespace tandem::local_group_test {
namespace {

using namespace testing;

class LocalAllReduce : public ::testing::TestWithParam<std::tuple<Where, LocalPlan::Kind>> {};

TEST_P(LocalAllReduce, SumsOverRanksAndLengths) {
  const auto [where, kind] = GetParam();
  for (int ranks : {1, 2, 3, 4, 7}) {
    const auto devices = devices_for(where, ranks);
    for (std::size_t length :
         {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{1021}, std::size_t{100'003}})
      check_all_reduce<float>(devices, {.kind = kind}, length, ReduceOp::kSum);
  }
}

TEST_P(LocalAllReduce, EveryOperationAndType) {
  const auto [where, kind] = GetParam();
  const auto devices = devices_for(where, 3);
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
    check_all_reduce<float>(devices, {.kind = kind}, 257, op);
    check_all_reduce<double>(devices, {.kind = kind}, 257, op);
    check_all_reduce<Half>(devices, {.kind = kind}, 257, op);
    check_all_reduce<BFloat16>(devices, {.kind = kind}, 257, op);
    check_all_reduce<std::int32_t>(devices, {.kind = kind}, 257, op);
    check_all_reduce<std::int64_t>(devices, {.kind = kind}, 257, op);
    check_all_reduce<std::uint8_t>(devices, {.kind = kind}, 257, op);
  }
  check_all_reduce<float>(devices, {.kind = kind}, 257, ReduceOp::kMean);
  check_all_reduce<float>(devices, {.kind = kind}, 257, ReduceOp::kTreeSum);
}

INSTANTIATE_TEST_SUITE_P(
    Plans, LocalAllReduce,
    ::testing::Combine(::testing::Values(Where::kCpus, Where::kGpus, Where::kMixed),
                       ::testing::Values(LocalPlan::Kind::kSliced, LocalPlan::Kind::kToOneDevice,
                                         LocalPlan::Kind::kHierarchical)));

TEST(LocalGroup, AnyNumberOfPacksGivesTheSum) {
  const auto devices = devices_for(Where::kCpus, 4);
  for (int packs : {0, 1, 2, 3, 9})
    check_all_reduce<float>(devices, {.kind = LocalPlan::Kind::kHierarchical, .num_packs = packs},
                            1001, ReduceOp::kSum);
}

TEST(LocalGroup, TheSameBitsEveryRun) {
  const auto devices = devices_for(Where::kCpus, 5);
  const std::size_t length = 10'007;
  std::vector<float> first;
  for (int run = 0; run < 5; ++run) {
    auto group = std::make_shared<LocalGroup>(devices);
    std::vector<float> result;
    on_ranks(5, [&](int rank) {
      std::vector<float> values(length);
      for (std::size_t i = 0; i < length; ++i)
        values[i] = std::sin(static_cast<float>(i + 1) * static_cast<float>(rank + 1));
      DeviceArray<float> array(*devices[static_cast<std::size_t>(rank)], values);
      const Buffer parts[] = {array.part(0, length)};
      auto communicator = group->communicator(rank);
      communicator->all_reduce(parts, ReduceOp::kSum)->wait();
      if (rank == 3) result = array.read();
    });
    if (run == 0) first = result;
    EXPECT_EQ(result, first);
  }
}

TEST(LocalGroup, BroadcastGivesTheRootsElements) {
  const auto devices = devices_for(Where::kMixed, 4);
  auto group = std::make_shared<LocalGroup>(devices);
  on_ranks(4, [&](int rank) {
    DeviceArray<float> array(*devices[static_cast<std::size_t>(rank)],
                             std::vector<float>(100, static_cast<float>(rank)));
    const Buffer parts[] = {array.part(0, 100)};
    auto communicator = group->communicator(rank);
    communicator->broadcast(parts, 2)->wait();
    EXPECT_EQ(array.read(), std::vector<float>(100, 2.0f));
  });
}

class LocalCollectives : public ::testing::TestWithParam<Where> {};

TEST_P(LocalCollectives, OnEveryKindOfDevice) {
  const auto devices = devices_for(GetParam(), 3);
  auto group = std::make_shared<LocalGroup>(devices);
  on_ranks(3, [&](int rank) {
    DeviceImpl& device = *devices[static_cast<std::size_t>(rank)];
    auto communicator = group->communicator(rank);
    const float one = static_cast<float>(rank + 1);
    const auto parts_of = [](const DeviceArray<float>& array) {
      return std::vector<Buffer>{array.part(0, 2), array.part(2, 3), array.part(3, 3)};
    };
    using Values = std::vector<float>;

    DeviceArray<float> reduced(device, Values(4, one));
    const Buffer whole[] = {reduced.part(0, 4)};
    communicator->reduce(whole, ReduceOp::kSum, 1)->wait();
    EXPECT_EQ(reduced.read(), Values(4, rank == 1 ? 6.0f : one));

    // Slices of 2, 1 and 0 elements.
    DeviceArray<float> gathered(device, Values(3, 0.0f));
    const std::vector<Buffer> shares = parts_of(gathered);
    const std::size_t mine = rank == 0 ? 2 : rank == 1 ? 1 : 0;
    DeviceArray<float> own(device, Values(mine, one));
    communicator->all_gather(own.part(0, mine), shares)->wait();
    EXPECT_EQ(gathered.read(), (Values{1, 1, 2}));
    communicator->reduce_scatter(shares, own.part(0, mine), ReduceOp::kSum)->wait();
    EXPECT_EQ(own.read(), Values(mine, rank == 0 ? 3.0f : 6.0f));

    DeviceArray<float> sent(device, Values{one, 10 * one, 100 * one});
    DeviceArray<float> received(device, Values(3, 0.0f));
    const std::vector<Buffer> to = {sent.part(0, 1), sent.part(1, 2), sent.part(2, 3)};
    const std::vector<Buffer> from = {received.part(0, 1), received.part(1, 2),
                                      received.part(2, 3)};
    communicator->all_to_all(to, from)->wait();
    const float scale = rank == 0 ? 1.0f : rank == 1 ? 10.0f : 100.0f;
    EXPECT_EQ(received.read(), (Values{scale, 2 * scale, 3 * scale}));

    const auto sending = communicator->send(sent.part(0, 2), (rank + 1) % 3);
    communicator->recv(received.part(0, 2), (rank + 2) % 3)->wait();
    sending->wait();
    const float previous = static_cast<float>((rank + 2) % 3 + 1);
    EXPECT_EQ(received.read(), (Values{previous, 10 * previous, 3 * scale}));
  });
}

INSTANTIATE_TEST_SUITE_P(Devices, LocalCollectives,
                         ::testing::Values(Where::kCpus, Where::kGpus, Where::kMixed));

TEST(LocalGroup, AbortReachesTheGroupsThatWereSplitOff) {
  const auto devices = devices_for(Where::kCpus, 3);
  auto group = std::make_shared<LocalGroup>(devices);
  const int ranks[] = {0, 2};
  on_ranks(3, [&](int rank) {
    auto half = group->communicator(rank)->split(ranks);
    if (rank == 2) return group->abort(2, "no more tea");
    EXPECT_EQ(half == nullptr, rank == 1);
    if (!half) return;
    EXPECT_NE(error_of<AbortedError>([&] { half->barrier()->wait(); }).find("replica 2 failed"),
              std::string::npos);
  });
}

TEST(LocalGroup, ExchangeGathersByRank) {
  const auto devices = devices_for(Where::kCpus, 3);
  auto group = std::make_shared<LocalGroup>(devices);
  on_ranks(3, [&](int rank) {
    auto communicator = group->communicator(rank);
    const int mine = rank * 10;
    std::vector<int> all(3);
    communicator->exchange(&mine, sizeof(mine), all.data());
    EXPECT_EQ(all, (std::vector<int>{0, 10, 20}));
  });
}

TEST(LocalGroup, InactiveRanksAreSkipped) {
  const auto devices = devices_for(Where::kCpus, 3);
  auto group = std::make_shared<LocalGroup>(devices);
  group->begin_step({true, false, true});
  on_ranks(3, [&](int rank) {
    if (rank == 1) return;
    DeviceArray<float> array(*devices[static_cast<std::size_t>(rank)], {1.0f, 2.0f, 3.0f});
    const Buffer parts[] = {array.part(0, 3)};
    auto communicator = group->communicator(rank);
    communicator->all_reduce(parts, ReduceOp::kSum)->wait();
    EXPECT_EQ(array.read(), (std::vector<float>{2.0f, 4.0f, 6.0f}));
  });
}

TEST(LocalGroup, MismatchIsAnErrorOnEveryRank) {
  const auto devices = devices_for(Where::kCpus, 2);
  auto group = std::make_shared<LocalGroup>(devices);
  on_ranks(2, [&](int rank) {
    DeviceArray<float> array(*devices[static_cast<std::size_t>(rank)], {1.0f, 2.0f, 3.0f});
    const Buffer parts[] = {array.part(0, rank == 0 ? 3 : 2)};
    auto communicator = group->communicator(rank);
    EXPECT_NE(error_of<InvalidArgumentError>([&] {
                communicator->all_reduce(parts, ReduceOp::kSum)->wait();
              }).find("diverged at collective 0"),
              std::string::npos);
  });
}

TEST(LocalGroup, ARankThatFailsStopsTheOthers) {
  const auto devices = devices_for(Where::kCpus, 3);
  auto group = std::make_shared<LocalGroup>(devices);
  on_ranks(3, [&](int rank) {
    if (rank == 1) return group->abort(1, "no more tea");
    DeviceArray<float> array(*devices[static_cast<std::size_t>(rank)], {1.0f});
    const Buffer parts[] = {array.part(0, 1)};
    auto communicator = group->communicator(rank);
    EXPECT_NE(error_of<AbortedError>([&] {
                communicator->all_reduce(parts, ReduceOp::kSum)->wait();
              }).find("replica 1 failed, and this one stopped with it: no more tea"),
              std::string::npos);
  });
}

TEST(LocalGroup, ARankThatEndsItsStepIsNotWaitedFor) {
  const auto devices = devices_for(Where::kCpus, 2);
  auto group = std::make_shared<LocalGroup>(devices);
  on_ranks(2, [&](int rank) {
    if (rank == 1) return group->end_step(1);
    DeviceArray<float> array(*devices[0], {1.0f});
    const Buffer parts[] = {array.part(0, 1)};
    auto communicator = group->communicator(rank);
    EXPECT_NE(error_of<InvalidArgumentError>([&] {
                communicator->all_reduce(parts, ReduceOp::kSum)->wait();
              }).find("replica 1 ended its step without this collective"),
              std::string::npos);
  });
}

TEST(LocalGroup, WaitsHaveALimit) {
  const auto devices = devices_for(Where::kCpus, 2);
  auto group = std::make_shared<LocalGroup>(
      devices, LocalGroupOptions{.time_limit = std::chrono::milliseconds(20)});
  DeviceArray<float> array(*devices[0], {1.0f});
  const Buffer parts[] = {array.part(0, 1)};
  auto communicator = group->communicator(0);
  EXPECT_EQ(error_of<DeadlineExceededError>(
                [&] { communicator->all_reduce(parts, ReduceOp::kSum)->wait(); }),
            "[all_reduce] replica 1 did not reach collective 0 (all_reduce (sum) of 1 float32 in 1 "
            "part) within 20 ms");
}

TEST(LocalGroup, ALongWaitIsLogged) {
  setenv("TANDEM_STALL_WARNING", "1", 1);
  const testing::LogFile log;
  const auto devices = devices_for(Where::kCpus, 3);
  auto group = std::make_shared<LocalGroup>(devices);
  on_ranks(3, [&](int rank) {
    if (rank == 1) {
      EXPECT_TRUE(log.wait_for("[all_reduce] replica 1 did not reach collective 0 (all_reduce"));
    }
    DeviceArray<float> array(*devices[static_cast<std::size_t>(rank)], {1.0f});
    const Buffer parts[] = {array.part(0, 1)};
    group->communicator(rank)->all_reduce(parts, ReduceOp::kSum)->wait();
  });
}

TEST(LocalGroup, AStepAfterAFailedOneStartsClean) {
  const auto devices = devices_for(Where::kCpus, 2);
  auto group = std::make_shared<LocalGroup>(devices);
  std::vector<std::unique_ptr<Communicator>> communicators;
  for (int rank = 0; rank < 2; ++rank) communicators.push_back(group->communicator(rank));
  DeviceArray<float> lost(*devices[0], {1.0f});
  const Buffer lost_parts[] = {lost.part(0, 1)};
  group->abort(1, "gone");
  EXPECT_THROW(communicators[0]->all_reduce(lost_parts, ReduceOp::kSum), AbortedError);
  group->begin_step({true, true});
  on_ranks(2, [&](int rank) {
    DeviceArray<float> array(*devices[static_cast<std::size_t>(rank)], {1.0f});
    const Buffer parts[] = {array.part(0, 1)};
    communicators[static_cast<std::size_t>(rank)]->all_reduce(parts, ReduceOp::kSum)->wait();
    EXPECT_EQ(array.read(), (std::vector<float>{2.0f}));
  });
}

}  // namespace
}  // namespace tandem::local_group_test
