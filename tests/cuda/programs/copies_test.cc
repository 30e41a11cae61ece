// Copies between the host and the fake GPUs: the streams that they use, and which threads wait.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/fake_cuda.h"
#include "device/device_manager.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

constexpr std::int64_t kBatches = 4, kBatch = 8;

// Batches of a row and its sum.
data::Dataset batches() {
  const DeviceScope host("/cpu:0");
  std::vector<float> rows(kBatches * kBatch * 3), sums(kBatches * kBatch);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = static_cast<float>(i);
    sums[i / 3] += rows[i];
  }
  return data::Dataset::from_tensor_slices(
             {reshape(constant(rows), {kBatches * kBatch, 3}), constant(sums)})
      .batch(kBatch);
}

// The number of host copies on the streams that the GPUs compute on.
int copied_in_order() {
  int copies = 0;
  for (DeviceImpl* device : DeviceManager::get().devices(DeviceType::kGpu, "test"))
    copies += fake_cuda::copied_on(static_cast<cudaStream_t>(device->stream().native_handle()));
  return copies;
}

struct Counts {
  int in_order = copied_in_order();
  fake_cuda::HostCounts host = fake_cuda::host_counts();
};

// The difference between the rows' sums and the expected ones.
Tensor miss(const data::Example& batch) {
  return reduce_max(abs(reduce_sum(batch[0], {.axis = {1}}) - batch[1]));
}

TEST(CopiesAhead, OfADatasetUseTheirOwnStreamAndDoNotBlock) {
  const data::Dataset data = batches();
  const Counts before;
  std::vector<Tensor> misses;
  for (const data::Example& batch : data.prefetch_to_device("/gpu:0")) {
    EXPECT_EQ(batch[0].device(), "/job:localhost/replica:0/task:0/device:GPU:0");
    misses.push_back(miss(batch));
  }
  const Counts after;
  EXPECT_EQ(after.host.copied - before.host.copied, 2 * kBatches);
  EXPECT_EQ(after.in_order - before.in_order, 0);
  EXPECT_EQ(after.host.waited - before.host.waited, 0);
  ASSERT_EQ(misses.size(), static_cast<std::size_t>(kBatches));
  for (const Tensor& each : misses) EXPECT_EQ(each.item<float>(), 0.0f);
  EXPECT_EQ(copied_in_order(), after.in_order) << "reading has a stream of its own, too";
}

TEST(CopiesAhead, OfALoopInATracedFunctionGoOnTheirOwnStreamAndStayOnTheDevice) {
  const DeviceScope gpu("/gpu:0");
  Variable most(zeros({}));
  const auto data = batches().prefetch_to_device("/gpu:0");
  const auto epoch = function([&] {
    for_each(data, [&](const data::Example& batch) { most.assign(maximum(most, miss(batch))); });
  });
  for (int i = 0; i < 2; ++i) {
    const Counts before;
    epoch();
    const Counts after;
    EXPECT_EQ(after.host.copied - before.host.copied, 2 * kBatches) << "run " << i;
    EXPECT_EQ(after.in_order - before.in_order, 0) << "run " << i;
    EXPECT_EQ(after.host.waited - before.host.waited, 0) << "run " << i;
  }
  EXPECT_EQ(most.value().item<float>(), 0.0f);
}

TEST(CopiesAhead, OfAStrategysDatasetGoOnTheirOwnStreams) {
  const distribute::MirroredStrategy strategy({.devices = {"/gpu:0", "/gpu:1"}});
  const auto data = strategy.experimental_distribute_dataset(batches());
  const Counts before;
  std::vector<distribute::PerReplica<Tensor>> misses;
  for (const auto& batch : data)
    misses.push_back(strategy.run([](const data::Example& part) { return miss(part); }, batch));
  const Counts after;
  EXPECT_EQ(after.host.copied - before.host.copied, 2 * 2 * kBatches);
  EXPECT_EQ(after.in_order - before.in_order, 0);
  ASSERT_EQ(misses.size(), static_cast<std::size_t>(kBatches));
  for (const auto& each : misses)
    for (std::size_t replica = 0; replica < 2; ++replica)
      EXPECT_EQ(each[replica].item<float>(), 0.0f);
}

}  // namespace
}  // namespace tandem
