// Results of process groups' collectives, with one process per rank.
#include <fmt/format.h>

#include <numeric>

#include "support/errors.h"
#include "support/process_groups.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/config.h"
#include "tandem/device.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem::collectives_test {
namespace {

using testing::error_of;
using testing::expect_tensor;
using testing::GroupOfRanks;
using testing::values_of;

std::vector<double> filled(std::int64_t count, double value) {
  return std::vector<double>(static_cast<std::size_t>(count), value);
}

class Collectives : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  int size() const { return std::get<1>(GetParam()); }
  void SetUp() override {
    if (std::get<0>(GetParam()) == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
  }
  void run(const std::function<void(int rank)>& body) const {
    testing::expect_group({.size = size(), .backend = std::get<0>(GetParam())}, body);
  }
};

TEST_P(Collectives, AllReduceOfEveryTypeAndOperation) {
  run([&](int rank) {
    const double n = size(), own = rank + 1;
    double product = 1.0;
    for (int i = 1; i <= size(); ++i) product *= i;
    const std::pair<ReduceOp, double> cases[] = {{ReduceOp::kSum, n * (n + 1) / 2},
                                                 {ReduceOp::kMin, 1.0},
                                                 {ReduceOp::kMax, n},
                                                 {ReduceOp::kProduct, product}};
    for (const DType dtype : {float32, float64, float16, bfloat16, int32, int64, uint8}) {
      for (const auto& [op, expected] : cases) {
        const Tensor x = full({2, 3}, own, {.dtype = dtype});
        expect_tensor(comm::all_reduce(x, {.op = op}), dtype, {2, 3}, filled(6, expected));
        expect_tensor(x, dtype, {2, 3}, filled(6, own));  // unchanged
      }
    }
    expect_tensor(comm::all_reduce(constant(own), {.op = ReduceOp::kMean}), float32,
                  Shape::scalar(), {(n + 1) / 2});
    expect_tensor(comm::all_reduce(zeros({0, 4})), float32, {0, 4}, {});
    expect_tensor(comm::all_reduce(Variable(full({2}, own))), float32, {2},
                  filled(2, n * (n + 1) / 2));
  });
}

TEST_P(Collectives, ReduceAndBroadcast) {
  run([&](int rank) {
    for (int root = 0; root < size(); ++root) {
      const Tensor x = full({3}, rank + 1.0, {.dtype = float64});
      const double sum = size() * (size() + 1) / 2.0;
      expect_tensor(comm::reduce(x, root), float64, {3}, filled(3, rank == root ? sum : rank + 1));
      expect_tensor(comm::broadcast(x, root), float64, {3}, filled(3, root + 1));
      expect_tensor(x, float64, {3}, filled(3, rank + 1));
    }
    expect_tensor(comm::broadcast(full({2}, rank == 0 ? 1 : 0, {.dtype = bool_}), 0), bool_, {2},
                  filled(2, 1));
    for (const DType dtype : testing::kStorageTypes) {
      const Tensor x = full({5}, rank + 1, {.dtype = dtype});
      expect_tensor(comm::broadcast(x, 0), dtype, {5}, filled(5, 1));
      EXPECT_EQ(testing::error_of<InvalidArgumentError>([&] { comm::all_reduce(x); }),
                fmt::format("[all_reduce] {} elements cannot be reduced; cast them first",
                            name_of(dtype)));
    }
  });
}

TEST_P(Collectives, AllGatherGivesEveryRankAllTensors) {
  run([&](int rank) {
    const Tensor x = constant(std::vector<double>{1.0 * rank, 10.0 * rank}, {.shape = {1, 2}});
    const std::vector<Tensor> all = comm::all_gather(x);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
    std::vector<double> joined, ranks;
    for (int i = 0; i < size(); ++i) {
      expect_tensor(all[static_cast<std::size_t>(i)], x.dtype(), {1, 2}, {1.0 * i, 10.0 * i});
      joined.insert(joined.end(), {1.0 * i, 10.0 * i});
      ranks.push_back(i);
    }
    expect_tensor(comm::all_gather_into_tensor(x), x.dtype(), {size(), 2}, joined);
    expect_tensor(comm::all_gather_into_tensor(constant(rank)), int32, {size()}, ranks);
  });
}

TEST_P(Collectives, ReduceScatterGivesEachRankItsPart) {
  run([&](int rank) {
    std::vector<Tensor> parts;
    for (int to = 0; to < size(); ++to) parts.push_back(full({to + 1, 2}, 100.0 * to + rank));
    const double ranks = size() * (size() - 1) / 2.0;
    expect_tensor(comm::reduce_scatter(parts), float32, {rank + 1, 2},
                  filled(2 * (rank + 1), 100.0 * rank * size() + ranks));
    const Tensor whole = range(2.0 * size());
    expect_tensor(comm::reduce_scatter_tensor(cast(whole, float32), {.op = ReduceOp::kMean}),
                  float32, {2}, {2.0 * rank, 2.0 * rank + 1});
  });
}

TEST_P(Collectives, ExchangeNumbers) {
  run([&](int rank) {
    const std::int64_t large = (std::int64_t{1} << 60) + rank;
    EXPECT_EQ(comm::all_reduce(0.5 + rank), size() * size() / 2.0);
    EXPECT_EQ(comm::all_reduce(large, ReduceOp::kMin), std::int64_t{1} << 60);
    EXPECT_EQ(comm::broadcast(rank, size() - 1), size() - 1);
    const std::vector<float> all = comm::all_gather(static_cast<float>(rank));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], static_cast<float>(i));
    const std::vector<std::size_t> gathered = comm::gather(static_cast<std::size_t>(rank), 0);
    EXPECT_EQ(gathered.size(), rank == 0 ? static_cast<std::size_t>(size()) : 0u);
  });
}

TEST_P(Collectives, AllToAllSendsEachRankItsTensor) {
  run([&](int rank) {
    std::vector<Tensor> sent;  // with shapes that the receivers do not know
    for (int to = 0; to < size(); ++to) sent.push_back(full({rank, to + 1}, 10.0 * rank + to));
    const std::vector<Tensor> received = comm::all_to_all(sent);
    ASSERT_EQ(received.size(), static_cast<std::size_t>(size()));
    for (int from = 0; from < size(); ++from)
      expect_tensor(received[static_cast<std::size_t>(from)], float32, {from, rank + 1},
                    filled(from * (rank + 1), 10.0 * from + rank));
  });
}

TEST_P(Collectives, MessagesArriveInTheOrderSent) {
  run([&](int rank) {
    if (size() == 1) return;
    const int next = (rank + 1) % size(), before = (rank + size() - 1) % size();
    comm::Work first = comm::send_async(full({4}, rank), next);
    comm::Work second = comm::send_async(constant(rank), next);
    expect_tensor(comm::recv({4}, before), float32, {4}, filled(4, before));
    expect_tensor(comm::recv(Shape::scalar(), before, {.dtype = int32}), int32, Shape::scalar(),
                  {1.0 * before});
    first.wait();
    second.wait();
  });
}

// Each has the same results as in eager mode, in every run, also if the results are unused.
TEST_P(Collectives, InTracedFunctions) {
  run([&](int rank) {
    const int next = (rank + 1) % size(), before = (rank + size() - 1) % size();
    const auto all_of_them = [&](const Tensor& x) {
      std::vector<Tensor> results = comm::all_gather(x);
      results.push_back(comm::all_gather_into_tensor(x * 2.0));
      results.push_back(comm::all_gather_into_tensor(reduce_sum(x)));
      std::vector<Tensor> parts;
      for (int to = 0; to < size(); ++to) parts.push_back(x + 100.0 * to);
      for (const Tensor& received : comm::all_to_all(parts)) results.push_back(received);
      results.push_back(comm::reduce_scatter(parts, {.op = ReduceOp::kMax}));
      results.push_back(comm::reduce_scatter_tensor(concat(parts, 0)));
      results.push_back(comm::reduce(x, size() - 1));
      comm::barrier();
      if (size() > 1) {
        comm::Work sent = comm::send_async(x + 0.5, next);
        results.push_back(comm::recv({2, 3}, before));
        sent.wait();
      }
      comm::all_gather(x + 1.0);
      results.push_back(comm::broadcast(results.back() + x, 0));
      return results;
    };
    const auto traced = function(all_of_them);
    for (int i = 0; i < 4; ++i) {
      const Tensor x = full({2, 3}, 10.0 * rank + i);
      const std::vector<Tensor> expected = all_of_them(x), results = traced(x);
      ASSERT_EQ(results.size(), expected.size());
      for (std::size_t k = 0; k < results.size(); ++k)
        expect_tensor(results[k], expected[k].dtype(), expected[k].shape(), values_of(expected[k]));
    }
  });
}

// One trace serves every size.
TEST_P(Collectives, InFunctionsOfAnySize) {
  run([&](int rank) {
    int traces = 0;
    const auto traced = function(
        [&](const Tensor& x) {
          ++traces;
          return comm::all_gather_into_tensor(x);
        },
        {.input_signature = {{.shape = {-1, 2}}}});
    for (std::int64_t rows : {1, 3, 1, 2}) {
      const Tensor all = traced(full({rows, 2}, rank));
      ASSERT_EQ(all.shape(), Shape({rows * size(), 2}));
      EXPECT_EQ(values_of(all).back(), size() - 1.0);
    }
    EXPECT_EQ(traces, 1);
  });
}

TEST_P(Collectives, ManyUnderWayAtOnce) {
  run([&](int) {
    std::vector<comm::Work> works;
    for (int i = 0; i < 20; ++i) {
      works.push_back(comm::all_reduce_async(full({1000 * i}, i)));
      comm::all_reduce_async(full({5000}, i));  // its result is unused
      comm::barrier_async();
    }
    for (std::size_t i = works.size(); i-- > 0;) {
      const auto count = static_cast<std::int64_t>(1000 * i);
      expect_tensor(works[i].result(), float32, {count},
                    filled(count, static_cast<double>(i) * size()));
      EXPECT_TRUE(works[i].is_completed());
    }
    comm::barrier();
    comm::all_reduce_async(full({300'000}, 1.0));  // destroy_process_group waits for it
  });
}

TEST_P(Collectives, ObjectsOfAnySize) {
  run([&](int rank) {
    const std::string mine(static_cast<std::size_t>(rank * 1000), static_cast<char>('a' + rank));
    const std::vector<std::string> all = comm::all_gather_object(mine);
    ASSERT_EQ(all.size(), static_cast<std::size_t>(size()));
    for (int i = 0; i < size(); ++i)
      EXPECT_EQ(all[static_cast<std::size_t>(i)],
                std::string(static_cast<std::size_t>(i * 1000), static_cast<char>('a' + i)));
    EXPECT_EQ(comm::broadcast_object("from " + std::to_string(rank), size() - 1),
              "from " + std::to_string(size() - 1));
    EXPECT_EQ(comm::broadcast_object("", 0), "");
  });
}

TEST_P(Collectives, GroupsOfSomeRanks) {
  run([&](int rank) {
    const comm::ProcessGroup all = comm::new_group();
    EXPECT_EQ(all.size(), size());
    // The even ranks, last first; and the odd ones.
    std::vector<int> even, odd;
    for (int i = 0; i < size(); ++i) (i % 2 == 0 ? even : odd).push_back(i);
    std::reverse(even.begin(), even.end());
    const comm::ProcessGroup evens = comm::new_group(even);
    EXPECT_EQ(evens.ranks(), even);
    EXPECT_EQ(comm::get_world_size(evens), static_cast<int>(even.size()));
    if (rank % 2 == 1) {
      EXPECT_EQ(evens.rank(), -1);
      EXPECT_EQ(error_of<InvalidArgumentError>(
                    [&] { comm::all_reduce(constant(1.0), {.group = evens}); }),
                "[all_reduce] this process, global rank " + std::to_string(rank) +
                    ", is not part of group [" +
                    (size() == 4   ? "2, 0"
                     : size() == 3 ? "2, 0"
                                   : "0") +
                    "]");
    } else {
      EXPECT_EQ(evens.rank(), (even.front() - rank) / 2);
      const std::vector<Tensor> parts = comm::all_gather(constant(rank), {evens});
      for (std::size_t i = 0; i < even.size(); ++i)
        EXPECT_EQ(parts[i].item<std::int32_t>(), even[i]);
      // Roots are ranks of the job.
      EXPECT_EQ(comm::broadcast(constant(rank), even.front(), {evens}).item<std::int32_t>(),
                even.front());
      EXPECT_EQ(error_of<InvalidArgumentError>([&] {
                  comm::broadcast(constant(1.0), 9, {evens});
                }).find("[broadcast] Global rank 9 is not part of group ["),
                0u);
    }
    if (!odd.empty()) {
      const comm::ProcessGroup odds = comm::new_group(odd);
      if (rank % 2 == 1) {
        EXPECT_EQ(comm::all_reduce(constant(rank), {.group = odds}).item<std::int32_t>(),
                  std::accumulate(odd.begin(), odd.end(), 0));
      }
    }
    if (rank % 2 == 0) {
      comm::destroy_process_group(evens);
      EXPECT_EQ(error_of<FailedPreconditionError>([&] { comm::barrier({evens}); }),
                "[barrier] the process group was destroyed (destroy_process_group)");
    }
    EXPECT_EQ(comm::all_reduce(constant(1)).item<std::int32_t>(), size());
  });
}

TEST_P(Collectives, ResultsAreWhereTheArgumentsWere) {
  run([&](int) {
    // The group uses the default device; these are on the CPU.
    Tensor x;
    {
      const DeviceScope cpu("/cpu:0");
      x = full({3}, 2.0);
    }
    EXPECT_EQ(comm::all_reduce(x).device(), x.device());
    EXPECT_EQ(comm::all_gather(x).front().device(), x.device());
    EXPECT_EQ(
        comm::reduce_scatter(std::vector<Tensor>(static_cast<std::size_t>(size()), x)).device(),
        x.device());
    const Tensor y = full({3}, 2.0);
    EXPECT_EQ(comm::all_reduce(y).device(), y.device());
    expect_tensor(comm::all_reduce(y), float32, {3}, filled(3, 2.0 * size()));
  });
}

std::string name_of_case(const ::testing::TestParamInfo<std::tuple<std::string, int>>& info) {
  return std::get<0>(info.param) + "_" + std::to_string(std::get<1>(info.param)) + "_ranks";
}
INSTANTIATE_TEST_SUITE_P(Backends, Collectives,
                         ::testing::Combine(::testing::Values("shm", "gloo"),
                                            ::testing::Values(1, 2, 3, 4)),
                         name_of_case);

TEST(CollectiveArguments, InvalidOnesAreRefused) {
  testing::expect_group({.size = 2}, [](int) {
    const auto invalid = [](const std::function<void()>& call) {
      return error_of<InvalidArgumentError>(call);
    };
    EXPECT_EQ(invalid([] { comm::reduce(constant(1.0), 2); }),
              "[reduce] Global rank 2 is not part of group [0, 1]");
    EXPECT_EQ(invalid([] { comm::broadcast(constant(1.0), -1); }),
              "[broadcast] Global rank -1 is not part of group [0, 1]");
    EXPECT_EQ(invalid([] { comm::all_reduce(constant(true)); }),
              "[all_reduce] bool elements cannot be reduced; cast them first");
    EXPECT_EQ(invalid([] { comm::reduce_scatter({constant(1.0)}); }),
              "[reduce_scatter] expected a tensor for each of 2 ranks, got 1");
    EXPECT_EQ(invalid([] { comm::all_to_all({}); }),
              "[all_to_all] expected a tensor for each of 2 ranks, got 0");
    EXPECT_EQ(invalid([] { comm::reduce_scatter_tensor(zeros({3})); }),
              "[reduce_scatter_tensor] expected a first axis that 2 ranks can share evenly, got "
              "shape (3,)");
    EXPECT_EQ(invalid([] { comm::recv({-1}, 1); }).find("[recv] expected a shape of known sizes"),
              0u);
    EXPECT_EQ(invalid([] {
                comm::new_group({0, 2});
              }),
              "[new_group] the new group's rank should be within the world_size set by "
              "init_process_group: expected ranks of 0 to 1, got 2");
    EXPECT_EQ(invalid([] {
                comm::new_group({1, 1});
              }),
              "[new_group] expected each rank once, got 1 twice");
    EXPECT_EQ(error_of<FailedPreconditionError>([] { comm::all_reduce(Tensor()); }),
              "[Tensor] an undefined tensor was used; assign a value to it first");
    EXPECT_EQ(error_of<FailedPreconditionError>([] { comm::barrier_async().result(); }),
              "[Work] the collective has 0 results; ask for results()");
    EXPECT_EQ(comm::all_reduce(constant(1)).item<std::int32_t>(), 2);
  });
}

}  // namespace
}  // namespace tandem::collectives_test
