// The collectives that change their first argument, as PyTorch's do.
#include "support/errors.h"
#include "support/process_groups.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem::in_place_test {
namespace {

using testing::error_of;
using testing::expect_group;
using testing::expect_tensor;

TEST(InPlace, AllReduceWithAnOperationChangesTheTensor) {
  expect_group({.size = 2}, [](int rank) {
    Tensor x = full({3}, rank + 1.0);
    const Tensor before = x;
    comm::all_reduce(x, ReduceOp::kSum);
    expect_tensor(x, float32, {3}, {3, 3, 3});
    expect_tensor(before, float32, {3}, {rank + 1.0, rank + 1.0, rank + 1.0});
    comm::Work work = comm::all_reduce(x, ReduceOp::kMax);
    EXPECT_TRUE(work->is_completed());
    expect_tensor(work->result(), float32, {3}, {3, 3, 3});
  });
}

TEST(InPlace, ATensorThatIsAlsoAGradientIsWarnedOf) {
  expect_group({.size = 2}, [](int rank) {
    Variable w(ones({1}));
    w.set_grad(full({1}, rank + 1.0));
    Tensor own = full({1}, 1.0), gradient = w.grad();
    ::testing::internal::CaptureStderr();
    comm::all_reduce(own, ReduceOp::kSum);
    EXPECT_EQ(::testing::internal::GetCapturedStderr().find("perhaps a gradient"),
              std::string::npos);
    ::testing::internal::CaptureStderr();
    comm::all_reduce(gradient, ReduceOp::kSum);
    EXPECT_NE(::testing::internal::GetCapturedStderr().find("perhaps a gradient of a variable"),
              std::string::npos);
    expect_tensor(gradient, float32, {1}, {3});
    expect_tensor(w.grad(), float32, {1}, {rank + 1.0});
    w.set_grad(comm::all_reduce(w.grad(), ReduceOp::kSum));
    expect_tensor(w.grad(), float32, {1}, {3});
  });
}

TEST(InPlace, AllReduceWithOptionsReturnsTheResult) {
  expect_group({.size = 2}, [](int rank) {
    Tensor x = full({1}, rank + 1.0);
    expect_tensor(comm::all_reduce(x), float32, {1}, {3});
    expect_tensor(comm::all_reduce(x, {.op = ReduceOp::kProduct}), float32, {1}, {2});
    expect_tensor(comm::all_reduce(x + 1.0, ReduceOp::kSum), float32, {1}, {5});
    const Tensor same = x;
    expect_tensor(comm::all_reduce(same, ReduceOp::kMean), float32, {1}, {1.5});
    expect_tensor(comm::all_reduce(Variable(x), ReduceOp::kMin), float32, {1}, {1});
    expect_tensor(x, float32, {1}, {rank + 1.0});
  });
}

TEST(InPlace, AnAsynchronousReductionIsThereAfterItsWait) {
  expect_group({.size = 2}, [](int rank) {
    std::vector<Tensor> tensors;
    std::vector<comm::Work> works;
    for (int i = 0; i < 8; ++i) tensors.push_back(full({1000 * i}, rank + i));
    for (Tensor& tensor : tensors)
      works.push_back(comm::all_reduce(tensor, {.op = ReduceOp::kSum, .async_op = true}));
    for (comm::Work& work : works) work->wait();
    for (int i = 0; i < 8; ++i)
      expect_tensor(tensors[static_cast<std::size_t>(i)], float32, {1000 * i},
                    std::vector<double>(static_cast<std::size_t>(1000 * i), 2.0 * i + 1.0));
  });
}

TEST(InPlace, AGroupMayFollow) {
  expect_group({.size = 3}, [](int rank) {
    const comm::ProcessGroup group = comm::new_group({0, 2});
    Tensor x = full({1}, rank + 1.0);
    if (rank != 1) {
      comm::all_reduce(x, ReduceOp::kSum, group);
      EXPECT_EQ(comm::all_gather(x, group).size(), 2u);
      expect_tensor(comm::broadcast(full({1}, rank), 2, group), float32, {1}, {2});
      comm::barrier(group);
    }
    expect_tensor(x, float32, {1}, {rank == 1 ? 2.0 : 4.0});
  });
}

TEST(InPlace, ReduceChangesTheTensorOfItsDestination) {
  expect_group({.size = 2}, [](int rank) {
    Tensor x = full({1}, rank + 1.0);
    comm::reduce(x, 1, ReduceOp::kSum);
    expect_tensor(x, float32, {1}, {rank == 1 ? 3.0 : 1.0});
  });
}

TEST(InPlace, BroadcastWithAsyncOpChangesTheTensor) {
  expect_group({.size = 2}, [](int rank) {
    Tensor x = full({1}, rank + 1.0);
    expect_tensor(comm::broadcast(x, 1), float32, {1}, {2});
    expect_tensor(x, float32, {1}, {rank + 1.0});
    comm::broadcast(x, 1, {.async_op = true})->wait();
    expect_tensor(x, float32, {1}, {2});
  });
}

TEST(InPlace, TakesTheArgumentsAsPyTorchNamesThem) {
  expect_group({.size = 2}, [](int rank) {
    Tensor x = full({1}, rank + 1.0), y = x;
    comm::broadcast(x, {.src = 1});
    expect_tensor(x, float32, {1}, {2});
    comm::reduce(y, {.dst = 1, .op = ReduceOp::kProduct});
    expect_tensor(y, float32, {1}, {rank == 1 ? 2.0 : 1.0});
    comm::broadcast(y, {.src = 0, .async_op = true})->wait();
    expect_tensor(y, float32, {1}, {1});
  });
}

TEST(InPlace, NumbersOfTheHostAreReduced) {
  expect_group({.size = 2}, [](int rank) {
    std::vector<double> sums = {rank + 0.5, 1.0};
    comm::all_reduce(sums);
    EXPECT_EQ(sums, (std::vector<double>{2.0, 2.0}));
    std::int64_t counts[] = {rank, 3 - rank};
    comm::all_reduce(std::span<std::int64_t>(counts), ReduceOp::kMax);
    EXPECT_EQ(counts[0], 1);
    EXPECT_EQ(counts[1], 3);
  });
}

TEST(InPlace, AllGatherFillsAList) {
  expect_group({.size = 2}, [](int rank) {
    std::vector<Tensor> all = {zeros({2}), Tensor()}, empty;
    for (std::vector<Tensor>* list : {&all, &empty}) {
      comm::all_gather(*list, full({2}, rank));
      ASSERT_EQ(list->size(), 2u);
      expect_tensor(list->at(0), float32, {2}, {0, 0});
      expect_tensor(list->at(1), float32, {2}, {1, 1});
    }
    std::vector<std::string> names(2);
    comm::all_gather_object(names, std::to_string(rank));
    EXPECT_EQ(names, (std::vector<std::string>{"0", "1"}));
    Tensor joined = zeros({4});
    comm::all_gather_into_tensor(joined, full({2}, rank));
    expect_tensor(joined, float32, {4}, {0, 0, 1, 1});
  });
}

TEST(InPlace, ReduceScatterAndAllToAllFillTheirOutputs) {
  expect_group({.size = 2}, [](int rank) {
    const std::vector<Tensor> parts = {full({1}, 10.0 + rank), full({1}, 20.0 + rank)};
    Tensor part = zeros({1});
    comm::reduce_scatter(part, parts);
    expect_tensor(part, float32, {1}, {rank == 0 ? 21.0 : 41.0});
    comm::reduce_scatter_tensor(part, concat(parts, 0), ReduceOp::kMax);
    expect_tensor(part, float32, {1}, {rank == 0 ? 11.0 : 21.0});
    std::vector<Tensor> received(2);
    comm::all_to_all(received, parts);
    expect_tensor(received[0], float32, {1}, {rank == 0 ? 10.0 : 20.0});
    expect_tensor(received[1], float32, {1}, {rank == 0 ? 11.0 : 21.0});
  });
}

TEST(InPlace, GatherAndScatter) {
  expect_group({.size = 3}, [](int rank) {
    const std::vector<Tensor> all = comm::gather(full({rank + 1}, rank), 1);
    ASSERT_EQ(all.size(), rank == 1 ? 3u : 0u);
    if (rank == 1) expect_tensor(all[2], float32, {3}, {2, 2, 2});
    std::vector<Tensor> parts;
    if (rank == 2) parts = {constant({1}), constant({2}), constant({3})};
    expect_tensor(comm::scatter(parts, 2, {.dtype = int32}), int32, {1}, {rank + 1.0});

    std::vector<Tensor> list;
    comm::gather(full({1}, rank), list);
    ASSERT_EQ(list.size(), rank == 0 ? 3u : 0u);
    if (rank == 0) expect_tensor(list[1], float32, {1}, {1});
    Tensor part = zeros({1});
    comm::scatter(part, list);
    expect_tensor(part, float32, {1}, {static_cast<double>(rank)});
  });
}

TEST(InPlace, RecvFillsATensor) {
  expect_group({.size = 2}, [](int rank) {
    if (rank == 0) {
      comm::send(constant({1, 2}), 1);
      comm::send(constant({3, 4}), 1);
    } else {
      Tensor x = zeros({2}, {.dtype = int32}), y = x;
      comm::recv(x, 0);
      comm::Work work = comm::irecv(y, 0);
      work->wait();
      expect_tensor(x, int32, {2}, {1, 2});
      expect_tensor(y, int32, {2}, {3, 4});
    }
  });
}

// Ranks whose tensors do not fit throw after they have taken part, so that the others go on.
TEST(InPlace, TensorsThatDoNotFitStay) {
  expect_group({.size = 2}, [](int rank) {
    std::vector<Tensor> three(3), wide = {zeros({3}), zeros({3})};
    EXPECT_EQ(error_of<InvalidArgumentError>([&] { comm::all_gather(three, full({2}, rank)); }),
              "[all_gather] expected 2 tensors to fill, one for each rank, or none, got 3");
    EXPECT_EQ(
        error_of<InvalidArgumentError>([&] { comm::all_gather(wide, full({2}, rank)); }),
        "[all_gather] expected a tensor of shape (2,) and dtype float32 to fill, got (3,) and "
        "float32");
    expect_tensor(wide[0], float32, {3}, {0, 0, 0});
    Tensor integers = zeros({1}, {.dtype = int32});
    EXPECT_EQ(
        error_of<InvalidArgumentError>([&] {
          comm::reduce_scatter(integers, {full({1}, 1.0), full({1}, 1.0)});
        }),
        "[reduce_scatter] expected a tensor of shape (1,) and dtype float32 to fill, got (1,) "
        "and int32");
    Tensor none;
    EXPECT_EQ(error_of<InvalidArgumentError>([&] { comm::recv(none, 1 - rank); }),
              "[recv] expected a tensor of the shape and dtype that are received, got an undefined "
              "one");
    expect_tensor(comm::all_reduce(ones({1})), float32, {1}, {2});
  });
}

TEST(InPlace, InTracedFunctions) {
  expect_group({.size = 2}, [](int rank) {
    const auto traced = function([](const Tensor& x) {
      Tensor y = x + 1.0;
      comm::all_reduce(y, ReduceOp::kSum);
      std::vector<Tensor> all;
      comm::all_gather(all, y * 2.0, {.async_op = true})->wait();
      return concat(all, 0);
    });
    for (int i = 0; i < 3; ++i)
      expect_tensor(traced(full({1}, rank + i)), float32, {2},
                    {2.0 * (2 * i + 3), 2.0 * (2 * i + 3)});
  });
}

TEST(InPlace, AGroupStartsByTheNameOfItsBackend) {
  const testing::TemporaryDirectory folder;
  const std::string url = "file://" + (folder / "job").string();
  const ExitCodes codes = run_processes(2, [&](int rank) {
    const ThreadBudget one(1);
    comm::init_process_group("shm", url, {.rank = rank, .world_size = 2});
    EXPECT_EQ(comm::get_backend(), "shm");
    EXPECT_EQ(comm::get_world_size(), 2);
    comm::barrier();
    comm::destroy_process_group();
    comm::init_process_group("shm", {.init_method = url + "2", .rank = rank, .world_size = 2});
    EXPECT_EQ(comm::get_rank(), rank);
    comm::barrier();
    comm::destroy_process_group();
  });
  EXPECT_EQ(codes, (ExitCodes{0, 0}));
}

}  // namespace
}  // namespace tandem::in_place_test
