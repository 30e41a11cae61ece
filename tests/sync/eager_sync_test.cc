// Gradients of a few ranks, reduced in place (threads) and packed into buckets (processes).
#include "sync/eager_sync.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <thread>

#include "comm/local/local_group.h"
#include "comm/process/process_communicator.h"
#include "comm/shm/shm_backend.h"
#include "device/device_manager.h"
#include "support/errors.h"
#include "support/forked_store.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/tandem.h"

namespace tandem::eager_sync_test {
namespace {

using testing::values_of;
using Values = std::vector<double>;

class EagerSyncTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr int kRanks = 2;

  EagerSyncTest() {
    config::set_logical_cpus(kRanks);
    for (DeviceImpl* device : DeviceManager::get().devices(DeviceType::kCpu, "test"))
      devices_.push_back(device);
    devices_.resize(kRanks);
    for (int i = 0; i < 3; ++i) variables_.emplace_back(zeros({2}));
  }

  // Runs a rank on each of two threads.
  void on_ranks(const std::function<void(int rank, EagerSync& sync,
                                         CommunicatorTransport& transport)>& body) {
    const auto local = std::make_shared<LocalGroup>(devices_);
    const auto store = std::make_shared<ForkedStore>();
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] {
        DeviceImpl& device = *devices_[static_cast<std::size_t>(rank)];
        std::shared_ptr<Communicator> communicator;
        if (GetParam())
          communicator =
              make_process_communicator(make_shm_backend({.store = store,
                                                          .name = "test",
                                                          .rank = rank,
                                                          .size = kRanks,
                                                          .time_limit = testing::kFarAway}),
                                        device, {.time_limit = testing::kFarAway});
        else
          communicator = local->communicator(rank);
        const auto transport = std::make_shared<CommunicatorTransport>(communicator);
        EagerSync sync(transport, device, variables_);
        body(rank, sync, *transport);
      });
    for (std::thread& thread : threads) thread.join();
  }

  std::vector<DeviceImpl*> devices_;
  std::vector<Variable> variables_;
};

// Variable 0 has a gradient on both ranks, 1 on the second alone, 2 on none.
TEST_P(EagerSyncTest, MissingGradientsCountAsZeros) {
  on_ranks([](int rank, EagerSync& sync, CommunicatorTransport& transport) {
    for (int step = 1; step < 4; ++step) {
      const auto pass = sync.start(false);
      if (rank == 1) pass->ready(1, full({2}, 10.0 * step));
      pass->ready(0, full({2}, 1.0 + rank));
      const std::vector<Tensor> reduced = *pass->finish();
      EXPECT_EQ(values_of(reduced[0]), (Values{3, 3}));
      EXPECT_EQ(values_of(reduced[1]), (Values{10.0 * step, 10.0 * step}));
      EXPECT_FALSE(reduced[2].defined());
      EXPECT_FALSE(transport.was_present(0, 1));
      EXPECT_TRUE(transport.was_present(1, 1));
    }
  });
}

TEST_P(EagerSyncTest, AnInactiveRankContributesZeros) {
  on_ranks([](int rank, EagerSync& sync, CommunicatorTransport&) {
    const auto pass = sync.start(rank == 1);
    for (std::size_t i : {2, 1, 0}) pass->ready(i, full({2}, 5.0));
    const std::vector<Tensor> reduced = *pass->finish();
    for (const Tensor& gradient : reduced) EXPECT_EQ(values_of(gradient), (Values{5, 5}));
  });
}

TEST_P(EagerSyncTest, GradientsAreMultipliedByTheirWeights) {
  on_ranks([](int rank, EagerSync& sync, CommunicatorTransport&) {
    sync.begin();
    sync.ready(0, full({2}, 8.0), rank == 0 ? 0.25 : 0.75);
    const std::vector<Tensor> reduced = sync.finish({1, 0, 0});
    EXPECT_EQ(values_of(reduced[0]), (Values{8, 8}));
  });
}

TEST_P(EagerSyncTest, LaterStepsDoNotChangeHeldResults) {
  on_ranks([](int, EagerSync& sync, CommunicatorTransport&) {
    std::vector<std::vector<Tensor>> kept;
    for (int step = 1; step < 4; ++step) {
      const auto pass = sync.start(false);
      for (std::size_t i : {2, 1, 0}) pass->ready(i, full({2}, 1.0 * step));
      kept.push_back(*pass->finish());
    }
    for (int step = 1; step < 4; ++step)
      for (const Tensor& gradient : kept[static_cast<std::size_t>(step - 1)])
        EXPECT_EQ(values_of(gradient), (Values{2.0 * step, 2.0 * step}));
  });
}

TEST_P(EagerSyncTest, NamesAGradientOfTheWrongShape) {
  on_ranks([](int, EagerSync& sync, CommunicatorTransport&) {
    const auto pass = sync.start(false);
    testing::expect_error<InvalidArgumentError>(
        [&] { pass->ready(0, ones({3})); },
        "has shape (3,) and dtype float32, expected (2,) and float32");
  });
}

// The views of a single rank's buckets.
class EagerSyncViews : public ::testing::Test {
 protected:
  EagerSyncViews() {
    for (const Shape& shape : {Shape{2}, Shape{3, 1}}) variables_.emplace_back(zeros(shape));
    communicator_ = make_process_communicator(
        make_shm_backend({.store = std::make_shared<ForkedStore>(), .rank = 0, .size = 1}), device_,
        {});
    sync_.emplace(std::make_shared<CommunicatorTransport>(communicator_), device_, variables_);
  }

  std::vector<Tensor> step(double value) {
    sync_->begin();
    sync_->ready(1, full({3, 1}, value));
    sync_->ready(0, full({2}, value));
    return sync_->finish({1, 1});
  }

  DeviceImpl& device_ = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
  std::vector<Variable> variables_;
  std::shared_ptr<Communicator> communicator_;
  std::optional<EagerSync> sync_;
};

TEST_F(EagerSyncViews, HaveTheShapesOfTheVariables) {
  const Tensor view = step(1.0)[1];
  EXPECT_EQ(view.shape(), (Shape{3, 1}));
  EXPECT_EQ(values_of(view), Values(3, 1.0));
}

TEST_F(EagerSyncViews, TheNextStepUsesTheSameMemory) {
  const void* const memory = step(1.0)[0].data<float>();
  const std::vector<Tensor> next = step(2.0);
  EXPECT_EQ(static_cast<const void*>(next[0].data<float>()), memory);
  EXPECT_EQ(values_of(next[0]), Values(2, 2.0));
}

TEST_F(EagerSyncViews, LaterStepsDoNotChangeAHeldView) {
  const Tensor kept = step(1.0)[0];
  const Tensor next = step(2.0)[0];
  EXPECT_EQ(values_of(kept), Values(2, 1.0));
  EXPECT_EQ(values_of(next), Values(2, 2.0));
}

TEST_F(EagerSyncViews, MayOutliveTheCommunicator) {
  const Tensor kept = step(1.0)[0];
  sync_.reset();
  communicator_.reset();
  EXPECT_EQ(values_of(kept), Values(2, 1.0));
}

INSTANTIATE_TEST_SUITE_P(Communicators, EagerSyncTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "packing" : "inPlace"; });

}  // namespace
}  // namespace tandem::eager_sync_test
