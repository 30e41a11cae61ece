// Compares every operation with a plain computation, with one process per rank.
#include <algorithm>
#include <cmath>

#include "support/hvd_ranks.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/array.h"
#include "tandem/device.h"
#include "tandem/math.h"

namespace tandem::operations_test {
namespace {

using testing::expect_error;
using testing::expect_hvd;
using testing::random_values;
using testing::values_of;

std::vector<double> values_of_rank(int rank, std::int64_t count) {
  return random_values(count, static_cast<std::uint32_t>(rank + 1));
}
Tensor tensor_of_rank(int rank, const Shape& shape, DType dtype = float64) {
  return constant(values_of_rank(rank, shape.num_elements()), {.dtype = dtype, .shape = shape});
}

double combine(hvd::Op op, const std::vector<double>& values) {
  double result = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) switch (op) {
      case hvd::kMin: result = std::min(result, values[i]); break;
      case hvd::kMax: result = std::max(result, values[i]); break;
      case hvd::kProduct: result *= values[i]; break;
      default: result += values[i];
    }
  return op == hvd::kAverage ? result / static_cast<double>(values.size()) : result;
}

void expect_near(const Tensor& actual, const std::vector<double>& expected, double tolerance) {
  const std::vector<double> values = values_of(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], tolerance * std::fmax(1.0, std::fabs(expected[i]))) << i;
}

TEST(HvdOperations, RanksHaveLocalAndCrossRanks) {
  for (int ranks : {1, 2, 4})
    expect_hvd(ranks, [&](int rank) {
      EXPECT_EQ(hvd::rank(), rank);
      EXPECT_EQ(hvd::size(), ranks);
      EXPECT_EQ(hvd::local_rank(), rank);
      EXPECT_EQ(hvd::local_size(), ranks);
      EXPECT_EQ(hvd::cross_rank(), 0);
      EXPECT_EQ(hvd::cross_size(), 1);
      EXPECT_TRUE(hvd::is_homogeneous());
    });
}

TEST(HvdOperations, HostsAreDistinguishedByName) {
  const int port = testing::free_port();
  const ExitCodes codes = run_processes(3, [&](int rank) {
    testing::set_rank(rank, 3, port);
    setenv("HOROVOD_HOSTNAME", rank == 1 ? "b" : "a", 1);
    hvd::init();
    EXPECT_EQ(hvd::local_rank(), rank == 2 ? 1 : 0);
    EXPECT_EQ(hvd::local_size(), rank == 1 ? 1 : 2);
    EXPECT_EQ(hvd::cross_rank(), rank == 1 ? 1 : 0);
    EXPECT_EQ(hvd::cross_size(), rank == 2 ? 1 : 2);
    EXPECT_FALSE(hvd::is_homogeneous());
    hvd::shutdown();
  });
  for (int code : codes) EXPECT_EQ(code, 0);
}

TEST(HvdOperations, NothingWorksBeforeInit) {
  expect_error<FailedPreconditionError>([] { hvd::rank(); },
                                        "Horovod has not been initialized; use hvd.init().");
  expect_error<FailedPreconditionError>([] { hvd::allreduce(constant({1.0f})); },
                                        "Horovod has not been initialized; use hvd.init().");
  EXPECT_FALSE(hvd::is_initialized());
}

TEST(HvdOperations, AllreduceCombinesEveryDtypeAndOperation) {
  for (int ranks : {1, 2, 3})
    expect_hvd(ranks, [&](int rank) {
      for (DType dtype : {float32, float64, float16, bfloat16, int32, int64})
        for (hvd::Op op : {hvd::kAverage, hvd::kSum, hvd::kMin, hvd::kMax, hvd::kProduct})
          for (std::int64_t count : {0, 1, 37}) {
            const bool whole = is_integer(dtype);
            std::vector<std::vector<double>> inputs;
            for (int r = 0; r < ranks; ++r) {
              inputs.push_back(values_of_rank(r, count));
              for (double& value : inputs.back())
                value = whole ? std::round(4.0 * value)
                              : values_of(constant({value}, {.dtype = dtype}))[0];
            }
            const Tensor mine = constant(inputs[static_cast<std::size_t>(rank)],
                                         {.dtype = dtype, .shape = Shape{count}});
            const Tensor result = hvd::allreduce(mine, {.op = op});
            ASSERT_EQ(result.dtype(), dtype);
            std::vector<double> expected;
            for (std::int64_t i = 0; i < count; ++i) {
              std::vector<double> elements;
              for (const auto& input : inputs)
                elements.push_back(input[static_cast<std::size_t>(i)]);
              const double value = combine(op, elements);
              expected.push_back(whole ? std::trunc(value) : value);
            }
            expect_near(result, expected, 2.0 * testing::epsilon_of(dtype));
          }
    });
}

TEST(HvdOperations, FactorsScaleBeforeAndAfterTheReduction) {
  expect_hvd(2, [&](int rank) {
    const Tensor result =
        hvd::allreduce(constant({1.0f + static_cast<float>(rank)}),
                       {.op = hvd::kSum, .prescale_factor = 0.5, .postscale_factor = 3.0});
    EXPECT_FLOAT_EQ(result.item<float>(), 4.5f);
    const Tensor integers =
        hvd::allreduce(constant({3 + 2 * rank}), {.op = hvd::kSum, .prescale_factor = 0.5});
    EXPECT_EQ(integers.item<std::int32_t>(), 3);
  });
}

TEST(HvdOperations, CompressedElementsAreSentInSixteenBits) {
  expect_hvd(2, [&](int rank) {
    for (hvd::Compression compression : {hvd::Compression::kFP16, hvd::Compression::kBF16}) {
      const DType dtype = compression == hvd::Compression::kFP16 ? float16 : bfloat16;
      const Tensor result = hvd::allreduce(tensor_of_rank(rank, {100}, float32),
                                           {.compression = compression, .op = hvd::kSum});
      ASSERT_EQ(result.dtype(), float32);
      std::vector<double> expected(100);
      for (int r = 0; r < 2; ++r) {
        const auto rounded = values_of(cast(tensor_of_rank(r, {100}, float32), dtype));
        for (std::size_t i = 0; i < 100; ++i) expected[i] += rounded[i];
      }
      expect_near(result, values_of(constant(expected, {.dtype = dtype})), 0.0);
    }
  });
}

TEST(HvdOperations, AnOperationOrANameIsAnArgument) {
  expect_hvd(2, [](int rank) {
    const Tensor mine = constant({1.0f + static_cast<float>(rank), 2.0f});
    expect_near(hvd::allreduce(mine, hvd::kSum), {3.0, 4.0}, 0.0);
    expect_near(hvd::allreduce(mine, hvd::kMax), {2.0, 2.0}, 0.0);
    expect_near(hvd::allreduce(mine, "named"), {1.5, 2.0}, 0.0);
    expect_near(hvd::synchronize(hvd::allreduce_async(mine, hvd::kProduct)), {2.0, 4.0}, 0.0);
    expect_near(hvd::reducescatter(mine, hvd::kSum), {rank == 0 ? 3.0 : 4.0}, 0.0);
    expect_near(hvd::allgather(mine, std::string("gathered")), {1.0, 2.0, 2.0, 2.0}, 0.0);
    expect_near(hvd::broadcast(mine, 1, "sent"), {2.0, 2.0}, 0.0);
    expect_near(mine, {1.0 + rank, 2.0}, 0.0);
  });
}

TEST(HvdOperations, NamesWithAnUnderscoreChangeTheTensor) {
  expect_hvd(2, [](int rank) {
    Tensor x = constant({1.0f + static_cast<float>(rank)});
    const Tensor before = x;
    hvd::allreduce_(x);
    expect_near(x, {1.5}, 0.0);
    expect_near(before, {1.0 + rank}, 0.0);
    x = before;
    hvd::broadcast_(x, 1);
    expect_near(x, {2.0}, 0.0);
  });
}

TEST(HvdOperations, GroupsAreOneOperation) {
  expect_hvd(2, [&](int rank) {
    const std::vector<Tensor> results = hvd::grouped_allreduce(
        {constant({1.0f, 2.0f}), constant({std::int64_t{7}}), constant({static_cast<float>(rank)})},
        {.name = "group", .op = hvd::kSum});
    ASSERT_EQ(results.size(), 3u);
    expect_near(results[0], {2.0, 4.0}, 0.0);
    expect_near(results[1], {14.0}, 0.0);
    expect_near(results[2], {1.0}, 0.0);
  });
}

TEST(HvdOperations, AllgatherJoinsUnevenRows) {
  for (int ranks : {1, 2, 4})
    expect_hvd(ranks, [&](int rank) {
      for (int again = 0; again < 3; ++again) {  // later rounds use the cache
        const Tensor result =
            hvd::allgather(tensor_of_rank(rank, Shape{2 * rank, 3}), {.name = "rows"});
        std::vector<double> expected;
        for (int r = 0; r < ranks; ++r)
          for (double value : values_of_rank(r, 6 * r)) expected.push_back(value);
        expect_near(result, expected, 0.0);
        EXPECT_EQ(result.shape(), (Shape{ranks * (ranks - 1), 3}));
      }
    });
}

TEST(HvdOperations, BroadcastGivesTheRootsTensor) {
  expect_hvd(3, [&](int rank) {
    for (int root = 0; root < 3; ++root) {
      const Tensor result = hvd::broadcast(tensor_of_rank(rank, {5, 2}), root);
      expect_near(result, values_of_rank(root, 10), 0.0);
    }
    expect_error<InvalidArgumentError>([] { hvd::broadcast(constant({1.0f}), 3); },
                                       "expected a root among the ranks [0, 1, 2], got 3");
  });
}

TEST(HvdOperations, AlltoallSendsRowsToEachRank) {
  expect_hvd(3, [&](int rank) {
    // Rank r sends r + to rows to rank `to`; each row holds its source and its destination.
    std::vector<std::int64_t> splits;
    std::vector<float> rows;
    for (int to = 0; to < 3; ++to) {
      splits.push_back(rank + to);
      for (int i = 0; i < rank + to; ++i) rows.push_back(static_cast<float>(10 * rank + to));
    }
    const auto count = static_cast<std::int64_t>(rows.size());
    const hvd::AlltoallResult result =
        hvd::alltoall(constant(rows, {.shape = Shape{count, 1}}), splits);
    std::vector<double> expected;
    std::vector<std::int64_t> received;
    for (int from = 0; from < 3; ++from) {
      received.push_back(from + rank);
      for (int i = 0; i < from + rank; ++i) expected.push_back(10 * from + rank);
    }
    expect_near(result.output, expected, 0.0);
    EXPECT_EQ(result.received_splits, received);
    // With the splits as a tensor, those that are received are one, too.
    const auto [output, received_splits] =
        hvd::alltoall(constant(rows, {.shape = Shape{count, 1}}), constant(splits));
    expect_near(output, expected, 0.0);
    EXPECT_EQ(received_splits.dtype(), int32);
    expect_near(received_splits, std::vector<double>(received.begin(), received.end()), 0.0);
    // Without splits, all parts are equal.
    const Tensor even =
        hvd::alltoall(constant({1.0f, 2.0f, 3.0f}) + static_cast<double>(10 * rank)).output;
    expect_near(even, {1.0 + rank, 11.0 + rank, 21.0 + rank}, 0.0);
  });
}

TEST(HvdOperations, WrongSplitsAreAnErrorOnEveryRank) {
  expect_hvd(2, [&](int rank) {
    expect_error<InvalidArgumentError>(
        [&] {
          hvd::alltoall(constant({1.0f, 2.0f}), {1, rank == 1 ? 2 : 1}, {.name = "wrong"});
        },
        "expected 2 splits that add up to 2 rows, got [1, 2]");
    EXPECT_EQ(hvd::alltoall(constant({1.0f, 2.0f}), {1, 1}).output.size(), 2);
  });
}

TEST(HvdOperations, ReducescatterGivesEachRankItsRows) {
  expect_hvd(3, [&](int rank) {
    for (hvd::Op op : {hvd::kAverage, hvd::kSum, hvd::kMax}) {
      const Tensor result = hvd::reducescatter(tensor_of_rank(rank, {7, 2}), {.op = op});
      const std::int64_t begin[] = {0, 3, 5, 7};
      std::vector<double> expected;
      for (std::int64_t i = 2 * begin[rank]; i < 2 * begin[rank + 1]; ++i) {
        std::vector<double> elements;
        for (int r = 0; r < 3; ++r)
          elements.push_back(values_of_rank(r, 14)[static_cast<std::size_t>(i)]);
        expected.push_back(combine(op, elements));
      }
      EXPECT_EQ(result.shape(), (Shape{begin[rank + 1] - begin[rank], 2}));
      expect_near(result, expected, 1e-14);
    }
  });
}

TEST(HvdOperations, ObjectsOfAnySizeAreSent) {
  expect_hvd(3, [&](int rank) {
    const std::string mine(static_cast<std::size_t>(5 * rank), static_cast<char>('a' + rank));
    EXPECT_EQ(hvd::broadcast_object(mine, 2), std::string(10, 'c'));
    const std::vector<std::string> all = hvd::allgather_object(mine);
    EXPECT_EQ(all, (std::vector<std::string>{"", "bbbbb", std::string(10, 'c')}));
    EXPECT_EQ(hvd::broadcast_object(0.5 + rank, 1), 1.5);
    EXPECT_EQ(hvd::allgather_object(10 * rank), (std::vector<int>{0, 10, 20}));
    const char* const text = rank == 1 ? "one" : "other";
    EXPECT_EQ(hvd::broadcast_object(text, 1), "one");
  });
}

TEST(HvdOperations, BarrierWaitsForEveryRank) {
  auto arrived = testing::shared_with_forks<std::atomic<int>>();
  expect_hvd(3, [&](int rank) {
    if (rank == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    ++*arrived;
    hvd::barrier();
    EXPECT_EQ(arrived->load(), 3);
  });
}

TEST(HvdOperations, ScalarsCannotBeGathered) {
  expect_hvd(2, [&](int) {
    expect_error<InvalidArgumentError>([&] { hvd::allgather(constant(1.0f)); },
                                       "Rank zero tried to ALLGATHER a rank-zero tensor.");
  });
}

TEST(HvdOperations, WorksOnGpusToo) {
  expect_hvd(2,
             [&](int rank) {
               const DeviceScope gpu("/gpu:0");
               const Tensor mine = constant({1.0f, 2.0f}) + static_cast<double>(rank);
               ASSERT_NE(mine.device().find("GPU"), std::string::npos);
               const Tensor sum = hvd::allreduce(mine, {.op = hvd::kSum});
               EXPECT_EQ(sum.device(), mine.device());
               expect_near(sum, {3.0, 5.0}, 0.0);
               expect_near(hvd::allgather(mine), {1.0, 2.0, 2.0, 3.0}, 0.0);
             },
             {{"TANDEM_EMULATED_GPUS", "1"}});
}

TEST(HvdOperations, RunsOverGlooAndSharedMemory) {
  for (const char* backend : {"gloo", "shm"})
    expect_hvd(2,
               [&](int rank) {
                 const Tensor sum = hvd::allreduce(tensor_of_rank(rank, {1000}), {.op = hvd::kSum});
                 std::vector<double> expected = values_of_rank(0, 1000);
                 const std::vector<double> other = values_of_rank(1, 1000);
                 for (std::size_t i = 0; i < 1000; ++i) expected[i] += other[i];
                 expect_near(sum, expected, 1e-15);
               },
               {{"HOROVOD_CPU_OPERATIONS", backend}});
}

}  // namespace
}  // namespace tandem::operations_test
