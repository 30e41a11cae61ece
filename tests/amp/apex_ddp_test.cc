// Apex's options of DistributedDataParallel.
#include <gtest/gtest.h>

#include "parallel/ddp_models.h"
#include "parallel/ddp_state.h"
#include "support/errors.h"
#include "support/process_groups.h"
#include "tandem/apex.h"

namespace tandem::apex_ddp_test {
namespace {

using apex::parallel::DistributedDataParallel;
using apex::parallel::DistributedDataParallelOptions;
using namespace testing;

constexpr int kRanks = 3;

// Rank `rank` has rank + 1 of the examples.
Examples of_rank(const Examples& data, int rank) {
  const std::int64_t begin = rank * (rank + 1) / 2;
  return data.rows(begin, begin + rank + 1);
}

// The gradients of each rank's mean loss, summed over the ranks and multiplied by `factor`.
Weights expected_gradients(const Examples& data, double factor) {
  const Model alone = perceptron(5);
  for (int rank = 0; rank < kRanks; ++rank) {
    const Examples part = of_rank(data, rank);
    (loss_of(alone(part.x), part.y) * factor).backward();
  }
  Weights gradients;
  for (const Variable& parameter : alone.parameters())
    gradients.push_back(parameter.grad().to_vector<float>());
  return gradients;
}

Weights gradients_with(const DistributedDataParallelOptions& options, const Examples& mine,
                       bool traced) {
  const DistributedDataParallel model(perceptron(5), options);
  const auto step = [&](const Tensor& x, const Tensor& y) {
    for (Variable parameter : model.parameters()) parameter.zero_grad();
    loss_of(model(x, {.training = true}), y).backward();
    std::vector<Tensor> gradients;
    for (const Variable& parameter : model.parameters()) gradients.push_back(parameter.grad());
    return gradients;
  };
  const auto replayed = function(step);
  Weights gradients;
  for (int repeat = 0; repeat < 3; ++repeat) {  // buckets are assigned anew after the first step
    gradients.clear();
    for (const Tensor& gradient : traced ? replayed(mine.x, mine.y) : step(mine.x, mine.y))
      gradients.push_back(gradient.to_vector<float>());
  }
  return gradients;
}

void expect_factor(const DistributedDataParallelOptions& options, double factor) {
  expect_group({.size = kRanks}, [&](int rank) {
    const Examples data = examples(6);
    const Weights expected = expected_gradients(data, factor);
    for (const bool traced : {false, true}) {
      SCOPED_TRACE(traced ? "traced" : "eager");
      expect_near(gradients_with(options, of_rank(data, rank), traced), expected, 1e-5);
    }
  });
}

TEST(ApexDistributedDataParallel, AveragesWithTheSameWeightForEveryRank) {
  expect_factor({}, 1.0 / kRanks);
}

TEST(ApexDistributedDataParallel, SumsWithoutAverage) {
  expect_factor({.gradient_average = false}, 1.0);
}

TEST(ApexDistributedDataParallel, DividesBeforeTheSumAndMultipliesOnlyForAnAverage) {
  expect_factor({.gradient_predivide_factor = 4.0}, 1.0 / kRanks);
  expect_factor({.gradient_average = false, .gradient_predivide_factor = 4.0}, 1.0 / 4.0);
}

TEST(ApexDistributedDataParallel, MessagesOfAnySizeAndDelayedOnesGiveTheSame) {
  expect_factor({.message_size = 1}, 1.0 / kRanks);
  expect_factor({.message_size = 50, .gradient_average = false}, 1.0);
  expect_factor({.delay_allreduce = true}, 1.0 / kRanks);
  expect_factor({.message_size = 1, .delay_allreduce = true, .gradient_predivide_factor = 2.0},
                1.0 / kRanks);
}

TEST(ApexDistributedDataParallel, ReducesInFloat32) {
  expect_factor({.allreduce_always_fp32 = true}, 1.0 / kRanks);
}

// A message is launched when its elements reach message_size; delayed ones are one per dtype.
TEST(ApexDistributedDataParallel, HasBucketsOfElements) {
  expect_group({.size = 2}, [](int) {
    using State = tandem::parallel::DistributedDataParallel::State;
    const auto buckets_of = [](const BucketSizes& sizes, bool delayed) {
      std::vector<std::size_t> parameters;
      const auto hook = [&](const tandem::parallel::GradBucket& bucket) {
        parameters.push_back(bucket.parameters.size());
        const Tensor sum = comm::all_reduce(bucket.buffer, {.group = bucket.group});
        return [bucket, sum] { return bucket.split(sum); };
      };
      State state(perceptron(5), {.broadcast_buffers = false, .average_by_examples = false},
                  {.sizes = sizes, .delayed = delayed, .hook = hook});
      const Examples data = examples(4);
      const Tensor outputs[] = {data.x};
      loss_of(state.forward(outputs, {.training = true}), data.y).backward();
      return parameters;
    };
    // From last to first: 3, 24, 8, 128, 16 and 96 elements.
    EXPECT_EQ(buckets_of({.first = 27, .others = 27, .in_elements = true}, false),
              (std::vector<std::size_t>{2, 2, 2}));
    const std::size_t most = std::numeric_limits<std::size_t>::max();
    EXPECT_EQ(buckets_of({.first = most, .others = most, .in_elements = true}, true),
              (std::vector<std::size_t>{6}));
  });
}

TEST(ApexDistributedDataParallel, HasApexsDefaults) {
  const DistributedDataParallelOptions options;
  EXPECT_EQ(options.message_size, 10'000'000);
  EXPECT_FALSE(options.delay_allreduce);
  EXPECT_FALSE(options.allreduce_always_fp32);
  EXPECT_TRUE(options.gradient_average);
  EXPECT_EQ(options.gradient_predivide_factor, 1.0);
}

TEST(ApexDistributedDataParallel, RefusesOptionsOutsideOfTheirRange) {
  expect_group({.size = 1}, [](int) {
    EXPECT_EQ(error_of<InvalidArgumentError>(
                  [] { DistributedDataParallel(perceptron(5), {.message_size = 0}); }),
              "[DistributedDataParallel] expected a message_size of at least 1, got 0");
    EXPECT_EQ(error_of<InvalidArgumentError>([] {
                DistributedDataParallel(perceptron(5), {.gradient_predivide_factor = 0.0});
              }),
              "[DistributedDataParallel] expected a positive gradient_predivide_factor, got 0");
    const DistributedDataParallel model(perceptron(5), {.gradient_average = false});
    testing::expect_parts(error_of<FailedPreconditionError>([&] {
                            model.register_comm_hook(tandem::parallel::hooks::fp16_compress());
                          }),
                          {"register_comm_hook can only be called once"});
  });
}

}  // namespace
}  // namespace tandem::apex_ddp_test
