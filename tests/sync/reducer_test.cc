#include "sync/reducer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/device_memory.h"
#include "device/device_manager.h"
#include "tandem/errors.h"

namespace tandem {
namespace {

std::vector<GradientInfo> floats(std::initializer_list<std::int64_t> counts) {
  std::vector<GradientInfo> infos;
  for (std::int64_t count : counts) infos.push_back({count, float32});
  return infos;
}

using Buckets = std::vector<std::vector<std::size_t>>;

TEST(AssignBuckets, TakesGradientsLastToFirst) {
  EXPECT_EQ(assign_buckets(floats({1, 1, 1}), {}), (Buckets{{2, 1, 0}}));
}

TEST(AssignBuckets, ClosesABucketWhenItReachesTheLimit) {
  // 16 bytes close the first bucket, 24 the later ones; both may be exceeded by the last gradient.
  const BucketSizes sizes{16, 24};
  EXPECT_EQ(assign_buckets(floats({2, 5, 1, 3, 1}), sizes), (Buckets{{4, 3}, {2, 1}, {0}}));
  EXPECT_EQ(assign_buckets(floats({2, 6, 4}), sizes), (Buckets{{2}, {1}, {0}}));
}

TEST(AssignBuckets, KeepsTypesApart) {
  const std::vector<GradientInfo> mixed = {{1, float32}, {1, float16}, {1, float32}, {1, float16}};
  EXPECT_EQ(assign_buckets(mixed, {}), (Buckets{{2, 0}, {3, 1}}));
}

TEST(AssignBuckets, FollowsAnOrder) {
  const BucketSizes sizes{8, 8};
  const std::vector<std::size_t> order = {1, 3, 0, 2};
  EXPECT_EQ(assign_buckets(floats({1, 1, 1, 1}), sizes, order), (Buckets{{1, 3}, {0, 2}}));
}

// Counts what sets out and when. Of two ranks of which the other one gives the same as this one.
class CountingCommunicator final : public Communicator {
 public:
  explicit CountingCommunicator(bool packs) : packs_(packs) {}
  struct Done final : Work {
    void wait() override {}
    bool test() override { return true; }
  };
  int rank() const override { return 0; }
  int size() const override { return 2; }
  Device& device() const override {
    return *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
  }
  bool packs() const override { return packs_; }
  std::shared_ptr<Work> all_reduce(std::span<const Buffer> parts, ReduceOp) override {
    launched.push_back(parts.size());
    for (const Buffer& part : parts)
      for (std::int64_t i = 0; i < part.count; ++i) static_cast<float*>(part.data)[i] *= 2.0f;
    return std::make_shared<Done>();
  }
  std::shared_ptr<Work> reduce(std::span<const Buffer>, ReduceOp, int) override { std::abort(); }
  std::shared_ptr<Work> broadcast(std::span<const Buffer> parts, int) override {
    if (!order_of_rank_0.empty()) {
      EXPECT_EQ(parts[0].count, static_cast<std::int64_t>(order_of_rank_0.size()));
      std::copy(order_of_rank_0.begin(), order_of_rank_0.end(),
                static_cast<std::int64_t*>(parts[0].data));
    }
    return std::make_shared<Done>();
  }
  std::shared_ptr<Work> all_gather(const Buffer&, std::span<const Buffer>) override {
    std::abort();
  }
  std::shared_ptr<Work> reduce_scatter(std::span<const Buffer>, const Buffer&, ReduceOp) override {
    std::abort();
  }
  std::shared_ptr<Work> all_to_all(std::span<const Buffer>, std::span<const Buffer>) override {
    std::abort();
  }
  std::shared_ptr<Work> send(const Buffer&, int) override { std::abort(); }
  std::shared_ptr<Work> recv(const Buffer&, int) override { std::abort(); }
  std::shared_ptr<Work> barrier() override { std::abort(); }
  void exchange(const void*, std::size_t, void*) override {}
  std::shared_ptr<Work> start_exchange(const void*, std::size_t, void*) override { std::abort(); }
  void progress() override {}
  void label(std::string_view, std::int64_t) override {}
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    ++allocations;
    return allocate_on(device(), bytes, "test", "a bucket");
  }
  std::unique_ptr<Communicator> split(std::span<const int>) override { std::abort(); }
  void abort(GroupFailure, const std::string&) noexcept override { std::abort(); }
  std::vector<std::size_t> launched;  // parts a collective
  int allocations = 0;
  std::vector<std::int64_t> order_of_rank_0;  // empty: this rank's

 private:
  bool packs_;
};

TEST(Reducer, LaunchesABucketAsSoonAsItIsFullAndInOrder) {
  CountingCommunicator communicator(false);
  Reducer reducer(communicator, floats({4, 4, 4, 4}), {.sizes = {32, 32}});
  float memory[16] = {};
  reducer.ready(0, memory);
  reducer.ready(1, memory + 4);  // the second bucket is full, but the first has not set out
  EXPECT_TRUE(communicator.launched.empty());
  reducer.ready(3, memory + 12);
  EXPECT_TRUE(communicator.launched.empty());
  reducer.ready(2, memory + 8);
  EXPECT_EQ(communicator.launched, (std::vector<std::size_t>{2, 2}));
  reducer.finish();
  EXPECT_EQ(communicator.allocations, 0);
}

TEST(Reducer, RefusesToFinishBeforeAllIsThere) {
  CountingCommunicator communicator(false);
  Reducer reducer(communicator, floats({4}));
  EXPECT_THROW(reducer.finish(), InternalError);
}

std::vector<float> result(const Reducer& reducer, std::size_t index) {
  const Buffer buffer = reducer.result(index);
  const auto* data = static_cast<const float*>(buffer.data);
  return {data, data + buffer.count};
}

TEST(Reducer, PacksGradientsIntoOneBuffer) {
  CountingCommunicator communicator(true);
  Reducer reducer(communicator, floats({3, 2, 4}), {.sizes = {.first = 1 << 10}});
  const int allocated = communicator.allocations;
  EXPECT_EQ(allocated, 1);
  for (float step = 1; step < 4; ++step) {
    {
      std::vector<float> first = {step, 2, 3}, last = {4, 5, 6, 7};
      reducer.ready(2, last.data(), 0.5);
      reducer.ready(0, first.data());  // their memory is the caller's again
    }
    reducer.zeros(1);
    reducer.finish();
    EXPECT_EQ(result(reducer, 0), (std::vector<float>{2 * step, 4, 6}));
    EXPECT_EQ(result(reducer, 1), (std::vector<float>{0, 0}));
    EXPECT_EQ(result(reducer, 2), (std::vector<float>{4, 5, 6, 7}));
  }
  EXPECT_EQ(communicator.launched, (std::vector<std::size_t>{1, 1, 1}));
  EXPECT_EQ(communicator.allocations, allocated);
}

TEST(Reducer, FollowsTheFirstRanksOrderFromTheSecondStepOn) {
  CountingCommunicator communicator(true);
  communicator.order_of_rank_0 = {0, 2, 1, 3};
  Reducer reducer(communicator, floats({4, 4, 4, 4}), {.sizes = {32, 32}, .rebuild = true});
  std::vector<float> gradient(4, 1.0f);
  for (std::size_t i : {3, 2, 1, 0}) reducer.ready(i, gradient.data());
  reducer.finish();
  EXPECT_EQ(reducer.generation(), 0u);
  communicator.launched.clear();
  reducer.ready(0, gradient.data());
  EXPECT_EQ(reducer.generation(), 1u);
  EXPECT_EQ(reducer.fellows(0), (std::vector<std::size_t>{0, 2}));
  EXPECT_TRUE(communicator.launched.empty());
  reducer.ready(2, gradient.data());
  EXPECT_EQ(communicator.launched.size(), 1u);
  reducer.ready(3, gradient.data());
  reducer.ready(1, gradient.data());
  reducer.finish();
  EXPECT_EQ(communicator.launched.size(), 2u);
  EXPECT_EQ(result(reducer, 1), std::vector<float>(4, 2.0f));
}

// Notes what it is called with; triples what the bucket holds.
struct Tripling final : BucketHook {
  void start(const Place& place, Bucket&) override {
    started.push_back(place.index);
    members.emplace_back(place.gradients.begin(), place.gradients.end());
    EXPECT_EQ(place.is_last, place.index == 1);
  }
  void finish(const Place& place, Bucket& bucket) override {
    EXPECT_EQ(started.size(), 2u);
    finished.push_back(place.index);
    for (std::size_t i = 0; i < bucket.size(); ++i) bucket.put(i, bucket.array(i).data, 3.0);
  }
  std::vector<std::size_t> started, finished;
  Buckets members;
};

TEST(Reducer, AHookCombinesTheBuckets) {
  CountingCommunicator communicator(true);
  const auto hook = std::make_shared<Tripling>();
  Reducer reducer(communicator, floats({4, 4, 4}), {.sizes = {16, 32}, .hook = hook});
  std::vector<float> gradient(4, 2.0f);
  for (std::size_t i : {0, 1, 2}) reducer.ready(i, gradient.data());
  reducer.finish();
  EXPECT_EQ(hook->started, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(hook->finished, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(hook->members, (Buckets{{2}, {1, 0}}));
  EXPECT_TRUE(communicator.launched.empty());
  EXPECT_EQ(result(reducer, 0), std::vector<float>(4, 6.0f));
}

TEST(Bucket, ArraysAreAlignedAndTheGapsAreZero) {
  CountingCommunicator communicator(true);
  const std::vector<std::int64_t> counts = {3, 0, 17, 1};
  Bucket bucket(communicator, counts, float32);
  const std::vector<float> ones(17, 1.0f);
  for (std::size_t i = 0; i < bucket.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bucket.array(i).data) % 64, 0u);
    bucket.put(i, ones.data());
  }
  const Buffer whole = bucket.whole();
  float sum = 0;
  for (std::int64_t i = 0; i < whole.count; ++i) sum += static_cast<const float*>(whole.data)[i];
  EXPECT_EQ(sum, 21.0f);
}

TEST(Bucket, HalvesAreScaledInFloat32) {
  CountingCommunicator communicator(true);
  const std::vector<std::int64_t> counts = {2};
  Bucket bucket(communicator, counts, float16);
  const Half values[] = {Half(3.0f), Half(-1.0f)};
  bucket.put(0, values, 1.0 / 3.0);
  const auto* scaled = static_cast<const Half*>(bucket.array(0).data);
  EXPECT_EQ(static_cast<float>(scaled[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(scaled[1]), static_cast<float>(Half(-1.0f / 3.0f)));
}

TEST(Bucket, WhoKeepsTheMemoryMayReadItBehindRenew) {
  CountingCommunicator communicator(true);
  const std::vector<std::int64_t> counts = {1};
  Bucket bucket(communicator, counts, float32);
  const float one = 1.0f, two = 2.0f;
  bucket.put(0, &one);
  const std::shared_ptr<void> kept = bucket.memory();
  bucket.renew();
  bucket.put(0, &two);
  EXPECT_EQ(*static_cast<const float*>(kept.get()), 1.0f);
}

}  // namespace
}  // namespace tandem
