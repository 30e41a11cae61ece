// Strategy::distribute_datasets_from_function().
#include <gtest/gtest.h>

#include "support/strategies.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::datasets_from_function_test {
namespace {

using testing::expect_error;
using testing::values_of;

TEST(DistributeDatasetsFromFunction, GivesEachReplicaTheNextBatch) {
  const distribute::MirroredStrategy strategy = testing::cpus(2);
  int calls = 0;
  const auto batches =
      strategy.distribute_datasets_from_function([&calls](const distribute::InputContext& context) {
        ++calls;
        EXPECT_EQ(context.num_input_pipelines, 1);
        EXPECT_EQ(context.input_pipeline_id, 0);
        EXPECT_EQ(context.num_replicas_in_sync, 2);
        return data::Dataset::range(12)
            .map([](const Tensor& i) { return std::pair(i, i * 10); })
            .batch(context.get_per_replica_batch_size(6));
      });
  EXPECT_EQ(calls, 1);
  for (int epoch = 0; epoch < 2; ++epoch) {
    std::vector<std::vector<double>> seen;
    for (const auto& batch : batches)
      for (const data::Example& part : batch.values()) {
        seen.push_back(values_of(part[0]));
        EXPECT_EQ(values_of(part[1])[1], 10 * seen.back()[1]);
      }
    EXPECT_EQ(seen,
              (std::vector<std::vector<double>>{{0, 1, 2}, {3, 4, 5}, {6, 7, 8}, {9, 10, 11}}));
  }
}

TEST(DistributeDatasetsFromFunction, PassesBatchesOnToASingleReplica) {
  const distribute::MirroredStrategy strategy = testing::cpus(1);
  const auto batches = strategy.distribute_datasets_from_function(
      [](const distribute::InputContext&) { return data::Dataset::range(5).batch(2); });
  std::vector<std::int64_t> sizes;
  for (const auto& batch : batches) sizes.push_back(batch[0][0].dim(0));
  EXPECT_EQ(sizes, (std::vector<std::int64_t>{2, 2, 1}));
  expect_error<InvalidArgumentError>(
      [] { distribute::InputContext{.num_replicas_in_sync = 4}.get_per_replica_batch_size(6); },
      "that 4 replicas divide, got 6");
}

}  // namespace
}  // namespace tandem::datasets_from_function_test
