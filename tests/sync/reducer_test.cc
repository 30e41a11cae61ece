#include "sync/reducer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "comm/device_memory.h"
#include "device/device_manager.h"
#include "tandem/errors.h"

namespace tandem::reducer_test {
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
    Device& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
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
  void start_presence_exchange(std::span<const std::uint8_t>) override { std::abort(); }
  std::vector<std::uint8_t> wait_presence_exchange() override { std::abort(); }

  std::vector<std::size_t> launched;  // buffers per bucket
  std::vector<std::size_t> finished;  // buckets, in the order of the waits
  Buckets members;
  std::size_t last = 0;     // the last bucket of the step
  std::vector<bool> zeros;  // at the last launch
  int allocations = 0;
  std::vector<std::int64_t> order_of_rank_0;

 private:
  bool packs_;
};

TEST(Reducer, LaunchesABucketAsSoonAsItIsFullAndInOrder) {
  CountingTransport transport(false);
  Reducer reducer(transport, floats({4, 4, 4, 4}), {.sizes = {32, 32}});
  float memory[16] = {};
  reducer.ready(0, memory);
  reducer.ready(1, memory + 4);  // the second bucket is full, but the first is not launched
  EXPECT_TRUE(transport.launched.empty());
  reducer.ready(3, memory + 12);
  EXPECT_TRUE(transport.launched.empty());
  reducer.ready(2, memory + 8);
  EXPECT_EQ(transport.launched, (std::vector<std::size_t>{2, 2}));
  reducer.finish();
  EXPECT_EQ(transport.allocations, 0);
}

TEST(Reducer, FinishThrowsIfAGradientIsMissing) {
  CountingTransport transport(false);
  Reducer reducer(transport, floats({4}));
  EXPECT_THROW(reducer.finish(), InternalError);
}

std::vector<float> result(const Reducer& reducer, std::size_t index) {
  const Buffer buffer = reducer.result(index);
  const auto* data = static_cast<const float*>(buffer.data);
  return {data, data + buffer.count};
}

TEST(Reducer, PacksGradientsIntoOneBuffer) {
  CountingTransport transport(true);
  Reducer reducer(transport, floats({3, 2, 4}), {.sizes = {.first = 1 << 10}});
  const int allocated = transport.allocations;
  EXPECT_EQ(allocated, 1);
  for (float step = 1; step < 4; ++step) {
    {
      std::vector<float> first = {step, 2, 3}, last = {4, 5, 6, 7};
      reducer.ready(2, last.data(), 0.5);
      reducer.ready(0, first.data());  // both were copied, so that their memory may be freed
    }
    reducer.zeros(1);
    reducer.finish();
    EXPECT_EQ(result(reducer, 0), (std::vector<float>{2 * step, 4, 6}));
    EXPECT_EQ(result(reducer, 1), (std::vector<float>{0, 0}));
    EXPECT_EQ(result(reducer, 2), (std::vector<float>{4, 5, 6, 7}));
  }
  EXPECT_EQ(transport.launched, (std::vector<std::size_t>{1, 1, 1}));
  EXPECT_EQ(transport.allocations, allocated);
}

TEST(Reducer, FollowsTheFirstRanksOrderFromTheSecondStepOn) {
  CountingTransport transport(true);
  transport.order_of_rank_0 = {0, 2, 1, 3};
  Reducer reducer(transport, floats({4, 4, 4, 4}), {.sizes = {32, 32}, .rebuild = true});
  std::vector<float> gradient(4, 1.0f);
  for (std::size_t i : {3, 2, 1, 0}) reducer.ready(i, gradient.data());
  reducer.finish();
  EXPECT_EQ(reducer.generation(), 0u);
  transport.launched.clear();
  reducer.ready(0, gradient.data());
  EXPECT_EQ(reducer.generation(), 1u);
  EXPECT_EQ(reducer.bucket_members(0), (std::vector<std::size_t>{0, 2}));
  EXPECT_TRUE(transport.launched.empty());
  reducer.ready(2, gradient.data());
  EXPECT_EQ(transport.launched.size(), 1u);
  reducer.ready(3, gradient.data());
  reducer.ready(1, gradient.data());
  reducer.finish();
  EXPECT_EQ(transport.launched.size(), 2u);
  EXPECT_EQ(result(reducer, 1), std::vector<float>(4, 2.0f));
}

TEST(Reducer, DescribesEachBucketToTheTransport) {
  CountingTransport transport(true);
  Reducer reducer(transport, floats({4, 4, 4}), {.sizes = {16, 32}});
  std::vector<float> gradient(4, 2.0f);
  reducer.ready(0, gradient.data());
  reducer.zeros(1);
  reducer.ready(2, gradient.data());
  EXPECT_TRUE(transport.finished.empty());
  reducer.finish();
  EXPECT_EQ(transport.finished, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(transport.members, (Buckets{{2}, {1, 0}}));
  EXPECT_EQ(transport.last, 1u);
  EXPECT_EQ(transport.zeros, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(result(reducer, 0), std::vector<float>(4, 4.0f));
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
}  // namespace tandem::reducer_test
