// The partitioners of variables, against the numbers of TensorFlow's documentation and source.
#include "tandem/partitioners.h"

#include <gtest/gtest.h>

#include "support/tensors.h"
#include "tandem/parameter_server.h"

namespace tandem::distribute::partitioners_test {
namespace {

using tandem::testing::expect_error;

TEST(Partitioners, FixedShards) {
  const FixedShardsPartitioner two({.num_shards = 2});
  EXPECT_EQ(two(Shape({10, 3}), float32), 2);
  EXPECT_EQ(two(Shape({1, 300}), float32), 1);
  EXPECT_EQ(two(Shape({0, 3}), float32), 1);
  EXPECT_EQ(two(Shape::scalar(), float32), 1);
  expect_error<InvalidArgumentError>([] { FixedShardsPartitioner({.num_shards = 0}); },
                                     "Argument `num_shards` must be positive. Received: 0");
}

TEST(Partitioners, MinSize) {
  const auto shards = [](std::int64_t bytes, std::int64_t most, const Shape& shape,
                         DType dtype = float32) {
    return MinSizePartitioner({.min_shard_bytes = bytes, .max_shards = most})(shape, dtype);
  };
  EXPECT_EQ(shards(4, 2, Shape({6, 1})), 2);
  EXPECT_EQ(shards(4, 10, Shape({6, 1})), 6);
  EXPECT_EQ(shards(4, 10, Shape({3, 8})), 3);
  // The size is rounded up: 300 KiB are two shards, 256 KiB are one.
  const MinSizePartitioner many({.max_shards = 100});
  EXPECT_EQ(many(Shape({300, 256}), float32), 2);
  EXPECT_EQ(many(Shape({256, 256}), float32), 1);
  EXPECT_EQ(many(Shape({257, 256}), float32), 2);
  EXPECT_EQ(many(Shape({300, 256}), float64), 3);
  EXPECT_EQ(many(Shape({0, 256}), float64), 1);
  EXPECT_EQ(many(Shape::scalar(), float64), 1);
  EXPECT_EQ(MinSizePartitioner()(Shape({1 << 20, 8}), float32), 1);
  expect_error<InvalidArgumentError>([] { MinSizePartitioner({.min_shard_bytes = 0}); },
                                     "Argument `min_shard_bytes` must be positive. Received: 0");
  expect_error<InvalidArgumentError>([] { MinSizePartitioner({.max_shards = -1}); },
                                     "Argument `max_shards` must be positive. Received: -1");
}

TEST(Partitioners, MaxSize) {
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 4})(Shape({6, 1}), float32), 6);
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 4, .max_shards = 2})(Shape({6, 1}), float32), 2);
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 1024})(Shape({6, 1}), float32), 1);
  // Two rows of 12 bytes fit into 30 bytes; no row fits into 5.
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 30})(Shape({7, 3}), float32), 4);
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 5})(Shape({7, 3}), float32), 7);
  EXPECT_EQ(MaxSizePartitioner({.max_shard_bytes = 5})(Shape({7, 0}), float32), 1);
  expect_error<InvalidArgumentError>([] { MaxSizePartitioner({.max_shard_bytes = 0}); },
                                     "Argument `max_shard_bytes` must be positive. Received 0");
  expect_error<InvalidArgumentError>(
      [] { MaxSizePartitioner({.max_shard_bytes = 1, .max_shards = 0}); },
      "Argument `max_shards` must be positive. Received 0");
}

TEST(Partitioners, AreOptionsOfTheStrategy) {
  const ParameterServerOptions options{
      .variable_partitioner = MinSizePartitioner({.min_shard_bytes = 256 << 10, .max_shards = 2})};
  EXPECT_EQ(options.variable_partitioner(Shape({1024, 1024}), float32), 2);
}

}  // namespace
}  // namespace tandem::distribute::partitioners_test
