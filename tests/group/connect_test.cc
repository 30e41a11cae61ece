// How the ranks of a job choose a backend.
#include "group/connect.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "comm/rendezvous/rendezvous.h"
#include "support/forked_store.h"
#include "support/waiting.h"

namespace tandem::connect_test {
namespace {

// A rank that shares only a store with the others.
class StoreJob final : public Job {
 public:
  StoreJob(int rank, int size, std::shared_ptr<Store> store)
      : rank_(rank), size_(size), store_(std::move(store)) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& master() const override { return master_; }
  const std::shared_ptr<Store>& store() const override { return store_; }
  const std::shared_ptr<Membership>& membership() const override { return membership_; }
  void shut_down(std::chrono::milliseconds) override {}

 private:
  int rank_, size_;
  std::string master_ = "127.0.0.1";
  std::shared_ptr<Store> store_;
  std::shared_ptr<Membership> membership_;
};

TEST(Connect, ManyChoicesOfABackendTakeNoMoreOfTheStoreThanOne) {
  constexpr int kRanks = 3;
  const auto store = std::make_shared<ForkedStore>();
  const auto choose = [&] {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < kRanks; ++rank)
      ranks.emplace_back([&, rank] {
        StoreJob job(rank, kRanks, store);
        const std::string backend =
            choose_backend(job, {.backend = "auto", .time_limit = testing::kFarAway});
        EXPECT_FALSE(backend.empty());
      });
    for (std::thread& rank : ranks) rank.join();
    return store->keys().size();
  };
  const std::size_t keys = choose();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(choose(), keys);
}

}  // namespace
}  // namespace tandem::connect_test
