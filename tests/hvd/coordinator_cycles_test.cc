// Cycles of a coordinator whose communicator is slow.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "core/status.h"
#include "device/device_manager.h"
#include "hvd/process_set_coordinator.h"
#include "support/waiting.h"

namespace tandem::hvd::coordinator_cycles_test {
namespace {

// The communicator of a single rank. Broadcasts complete when the test says so; other
// collectives at once.
class SlowNetwork final : public Communicator {
 public:
  struct State {
    int started = 0, complete = 0;  // broadcasts
  };
  explicit SlowNetwork(State& state) : state_(state) {}

  int rank() const override { return 0; }
  int size() const override { return 1; }
  DeviceImpl& device() const override { return DeviceManager::get().host(); }
  std::shared_ptr<CollectiveWork> broadcast(std::span<const Buffer>, int) override {
    return std::make_shared<Arrival>(state_, ++state_.started);
  }
  std::shared_ptr<CollectiveWork> all_gather(const Buffer& mine,
                                             std::span<const Buffer> all) override {
    std::copy_n(static_cast<std::byte*>(mine.data), mine.bytes(),
                static_cast<std::byte*>(all.front().data));
    return std::make_shared<Arrival>(state_, 0);
  }
  std::shared_ptr<CollectiveWork> all_reduce(std::span<const Buffer>, ReduceOp) override {
    refuse();
  }
  std::shared_ptr<CollectiveWork> reduce(std::span<const Buffer>, ReduceOp, int) override {
    refuse();
  }
  std::shared_ptr<CollectiveWork> reduce_scatter(std::span<const Buffer>, const Buffer&,
                                                 ReduceOp) override {
    refuse();
  }
  std::shared_ptr<CollectiveWork> all_to_all(std::span<const Buffer>,
                                             std::span<const Buffer>) override {
    refuse();
  }
  std::shared_ptr<CollectiveWork> send(const Buffer&, int) override { refuse(); }
  std::shared_ptr<CollectiveWork> recv(const Buffer&, int) override { refuse(); }
  std::shared_ptr<CollectiveWork> barrier() override { refuse(); }
  void exchange(const void*, std::size_t, void*) override { refuse(); }
  std::shared_ptr<CollectiveWork> start_exchange(const void*, std::size_t, void*) override {
    refuse();
  }
  void progress() override {}
  void label(std::string_view, std::int64_t) override {}
  std::shared_ptr<void> allocate(std::size_t) override { refuse(); }
  std::unique_ptr<Communicator> split(std::span<const int>) override { refuse(); }
  void abort(GroupFailure, const std::string&) noexcept override {}

 private:
  // The n-th broadcast; n = 0: complete from the start.
  class Arrival final : public CollectiveWork {
   public:
    Arrival(const State& state, int number) : state_(state), number_(number) {}
    void wait() override {
      if (!test()) throw InternalError("a thread waits for the network");
    }
    bool test() override { return state_.complete >= number_; }

   private:
    const State& state_;
    int number_;
  };

  [[noreturn]] static void refuse() { throw InternalError("not a call of this test"); }

  State& state_;
};

OperationRef broadcast_of(float& value, const std::string& name) {
  auto operation = std::make_shared<Handle::State>();
  operation->request = std::make_shared<const Request>(Request{
      .kind = RequestKind::kBroadcast, .name = name, .dtypes = {float32}, .shapes = {Dims{1}}});
  operation->in = operation->out = {{&value, float32}};
  return operation;
}

TEST(HvdCoordinatorCycles, TheNextCycleBeginsWhileCollectivesRun) {
  SlowNetwork::State network;
  Settings settings;
  settings.cycle_microseconds = 0;
  const auto coordinator = std::make_shared<ProcessSetCoordinator>(
      std::make_unique<SlowNetwork>(network),
      ProcessSetOptions{
          .ranks = {0}, .settings = settings, .wake = [] {}, .report = [](const auto&) {}},
      std::make_shared<Timeline>());
  float values[] = {1.0f, 2.0f};
  const OperationRef first = broadcast_of(values[0], "first");
  coordinator->submit(first);
  EXPECT_TRUE(testing::eventually([&] { return coordinator->tick(), network.started == 1; }));
  const OperationRef second = broadcast_of(values[1], "second");
  coordinator->submit(second);
  EXPECT_TRUE(testing::eventually([&] { return coordinator->tick(), network.started == 2; }));
  EXPECT_FALSE(first->done);

  network.complete = 1;
  EXPECT_TRUE(testing::eventually([&] { return coordinator->tick(), first->done.load(); }));
  EXPECT_FALSE(second->done);
  network.complete = 2;
  coordinator->wait(*second);
  EXPECT_EQ(second->error, nullptr);
}

}  // namespace
}  // namespace tandem::hvd::coordinator_cycles_test
