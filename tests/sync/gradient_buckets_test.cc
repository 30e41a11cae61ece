// Which buckets gradients go to, and when these are launched, with a transport that only records.
#include "sync/gradient_buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/device_memory.h"
#include "device/device_manager.h"
#include "support/tensors.h"
#include "sync/eager_sync.h"
#include "tandem/creation.h"

namespace tandem::gradient_buckets_test {
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

TEST(AssignBuckets, CountsElementsInsteadOfBytesIfAsked) {
  const BucketSizes sizes{.first = 4, .others = 4, .in_elements = true};
  EXPECT_EQ(assign_buckets(floats({1, 3, 1, 3, 1}), sizes), (Buckets{{4, 3}, {2, 1}, {0}}));
  // Each dtype counts its own elements, whatever their size.
  const std::vector<GradientInfo> mixed = {{3, float64}, {2, float16}, {1, float64}, {2, float16}};
  EXPECT_EQ(assign_buckets(mixed, sizes), (Buckets{{3, 1}, {2, 0}}));
}

TEST(AssignBuckets, PutsDtypesIntoSeparateBuckets) {
  const std::vector<GradientInfo> mixed = {{1, float32}, {1, float16}, {1, float32}, {1, float16}};
  EXPECT_EQ(assign_buckets(mixed, {}), (Buckets{{2, 0}, {3, 1}}));
}

TEST(AssignBuckets, FollowsAnOrder) {
  const BucketSizes sizes{8, 8};
  const std::vector<std::size_t> order = {1, 3, 0, 2};
  EXPECT_EQ(assign_buckets(floats({1, 1, 1, 1}), sizes, order), (Buckets{{1, 3}, {0, 2}}));
}

// Counts launches. Acts as a group of two ranks that contribute the same gradients, so that the
// reduction doubles each value.
class CountingTransport final : public GradientTransport {
 public:
  explicit CountingTransport(bool packs) : packs_(packs) {}
  bool packs() const override { return packs_; }
  Bucket make_bucket(std::span<const std::int64_t> counts, DType dtype) override {
    DeviceImpl& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
    const auto allocate = [this, &device](std::size_t bytes) {
      ++allocations;
      return allocate_on(device, bytes, "test", "a bucket");
    };
    return Bucket(device, allocate, counts, dtype);
  }
  std::shared_ptr<CollectiveWork> start(const FullBucket& bucket) override {
    launched.push_back(bucket.buffers.size());
    members.emplace_back(bucket.gradients.begin(), bucket.gradients.end());
    if (bucket.is_last) last = bucket.index;
    zeros = bucket.zeros;
    if (bucket.memory) first_array = bucket.memory->array(0).data;
    struct Doubled final : CollectiveWork {
      void wait() override {
        finished.push_back(index);
        for (const Buffer& buffer : buffers)
          for (std::int64_t i = 0; i < buffer.count; ++i)
            static_cast<float*>(buffer.data)[i] *= 2.0f;
      }
      bool test() override { return false; }
      Doubled(std::vector<std::size_t>& order, const FullBucket& full)
          : finished(order), index(full.index), buffers(full.buffers.begin(), full.buffers.end()) {}
      std::vector<std::size_t>& finished;
      std::size_t index;
      std::vector<Buffer> buffers;
    };
    return std::make_shared<Doubled>(finished, bucket);
  }
  void broadcast_order(std::span<std::int64_t> order) override {
    EXPECT_EQ(order.size(), order_of_rank_0.size());
    std::copy(order_of_rank_0.begin(), order_of_rank_0.end(), order.begin());
  }
  std::function<std::vector<std::uint8_t>()> exchange_presence(
      std::span<const std::uint8_t> mine) override {
    return [all = std::vector<std::uint8_t>(mine.size(), 1)] { return all; };
  }

  std::vector<std::size_t> launched;  // buffers per bucket
  std::vector<std::size_t> finished;  // buckets, in the order of the waits
  Buckets members;
  std::size_t last = 0;               // the last bucket of the step
  std::vector<bool> zeros;            // at the last launch
  const void* first_array = nullptr;  // of the last bucket that was packed
  int allocations = 0;
  std::vector<std::int64_t> order_of_rank_0;

 private:
  bool packs_;
};

// An EagerSync of float32 variables over a transport.
struct Sync {
  Sync(bool packs, std::initializer_list<std::int64_t> counts, ReducerOptions options = {})
      : transport(std::make_shared<CountingTransport>(packs)) {
    for (std::int64_t count : counts) variables.emplace_back(zeros({count}));
    sync.emplace(transport, *DeviceManager::get().devices(DeviceType::kCpu, "test").front(),
                 variables, options);
  }
  std::vector<Tensor> finish() {
    return sync->finish(std::vector<std::uint8_t>(variables.size(), 1));
  }
  EagerSync* operator->() { return &*sync; }

  std::shared_ptr<CountingTransport> transport;
  std::vector<Variable> variables;
  std::optional<EagerSync> sync;
};

using testing::values_of;
using Values = std::vector<double>;

TEST(EagerSync, LaunchesABucketAsSoonAsItIsFullAndInOrder) {
  Sync sync(false, {4, 4, 4, 4}, {.sizes = {32, 32}});
  sync->ready(0, ones({4}));
  sync->ready(1, ones({4}));  // the second bucket is full, but the first is not launched
  EXPECT_TRUE(sync.transport->launched.empty());
  sync->ready(3, ones({4}));
  EXPECT_TRUE(sync.transport->launched.empty());
  sync->ready(2, ones({4}));
  EXPECT_EQ(sync.transport->launched, (std::vector<std::size_t>{2, 2}));
  sync.finish();
  EXPECT_EQ(sync.transport->allocations, 0);
}

TEST(EagerSync, PacksGradientsIntoOneBuffer) {
  Sync sync(true, {3, 2, 4}, {.sizes = {.first = 1 << 10}});
  const int allocated = sync.transport->allocations;
  EXPECT_EQ(allocated, 1);
  for (float step = 1; step < 4; ++step) {
    // Both are copied, so that their memory may be freed.
    sync->ready(2, constant(std::vector<float>{4, 5, 6, 7}), 0.5);
    sync->ready(0, constant(std::vector<float>{step, 2, 3}));
    sync->zeros(1);
    const std::vector<Tensor> reduced = sync.finish();
    EXPECT_EQ(values_of(reduced[0]), (Values{2 * step, 4, 6}));
    EXPECT_EQ(values_of(reduced[1]), (Values{0, 0}));
    EXPECT_EQ(values_of(reduced[2]), (Values{4, 5, 6, 7}));
    sync->begin();
    EXPECT_EQ(sync.transport->allocations,
              allocated + static_cast<int>(step));  // `reduced` is held
  }
  EXPECT_EQ(sync.transport->launched, (std::vector<std::size_t>{1, 1, 1}));
}

TEST(EagerSync, ReusesTheMemoryOfABucketThatNoResultHolds) {
  Sync sync(true, {3, 2}, {});
  const int allocated = sync.transport->allocations;
  for (int step = 0; step < 3; ++step) {
    sync->begin();
    sync->ready(1, ones({2}));
    sync.finish();
  }
  EXPECT_EQ(sync.transport->allocations, allocated);
}

TEST(EagerSync, FollowsTheFirstRanksOrderFromTheSecondStepOn) {
  Sync sync(true, {4, 4, 4, 4}, {.sizes = {32, 32}, .rebuild = true});
  CountingTransport& transport = *sync.transport;
  transport.order_of_rank_0 = {0, 2, 1, 3};
  for (std::size_t i : {3, 2, 1, 0}) sync->ready(i, ones({4}));
  EXPECT_EQ(transport.members, (Buckets{{3, 2}, {1, 0}}));
  sync.finish();
  sync->begin();
  transport.launched.clear();
  transport.members.clear();
  sync->ready(0, ones({4}));
  EXPECT_TRUE(transport.launched.empty());
  sync->ready(2, ones({4}));
  EXPECT_EQ(transport.launched.size(), 1u);
  sync->ready(3, ones({4}));
  sync->ready(1, ones({4}));
  EXPECT_EQ(transport.members, (Buckets{{0, 2}, {1, 3}}));
  const std::vector<Tensor> reduced = sync.finish();
  EXPECT_EQ(transport.launched.size(), 2u);
  EXPECT_EQ(values_of(reduced[1]), Values(4, 2.0));
}

TEST(EagerSync, DescribesEachBucketToTheTransport) {
  Sync sync(true, {4, 4, 4}, {.sizes = {16, 32}});
  CountingTransport& transport = *sync.transport;
  sync->ready(0, full({4}, 2.0));
  sync->zeros(1);
  sync->ready(2, full({4}, 2.0));
  EXPECT_TRUE(transport.finished.empty());
  const std::vector<Tensor> reduced = sync.finish();
  EXPECT_EQ(transport.finished, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(transport.members, (Buckets{{2}, {1, 0}}));
  EXPECT_EQ(transport.last, 1u);
  EXPECT_EQ(transport.zeros, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(values_of(reduced[0]), Values(4, 4.0));
}

// A transport's start() sees the memory that the result is a view of.
TEST(EagerSync, ResultsShareTheMemoryOfTheBucket) {
  Sync sync(true, {2, 3}, {});
  sync->ready(1, ones({3}));
  sync->ready(0, ones({2}));
  const Tensor reduced = sync.finish()[1];
  EXPECT_EQ(static_cast<const void*>(reduced.data<float>()), sync.transport->first_array);
}

TEST(Bucket, ArraysAreAlignedAndTheGapsAreZero) {
  CountingTransport transport(true);
  const std::vector<std::int64_t> counts = {3, 0, 17, 1};
  Bucket bucket = transport.make_bucket(counts, float32);
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
  CountingTransport transport(true);
  const std::vector<std::int64_t> counts = {2};
  Bucket bucket = transport.make_bucket(counts, float16);
  const Half values[] = {Half(3.0f), Half(-1.0f)};
  bucket.put(0, values, 1.0 / 3.0);
  const auto* scaled = static_cast<const Half*>(bucket.array(0).data);
  EXPECT_EQ(static_cast<float>(scaled[0]), 1.0f);
  EXPECT_EQ(static_cast<float>(scaled[1]), static_cast<float>(Half(-1.0f / 3.0f)));
}

TEST(Bucket, HeldMemoryIsUnchangedAfterItIsReplaced) {
  CountingTransport transport(true);
  const std::vector<std::int64_t> counts = {1};
  Bucket bucket = transport.make_bucket(counts, float32);
  const float one = 1.0f, two = 2.0f;
  bucket.put(0, &one);
  const std::shared_ptr<void> kept = bucket.memory();
  bucket.replace_memory();
  bucket.put(0, &two);
  EXPECT_EQ(*static_cast<const float*>(kept.get()), 1.0f);
}

}  // namespace
}  // namespace tandem::gradient_buckets_test
