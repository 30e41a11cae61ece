// The host executor of kernels behaves as CUDA, and reports invalid kernels.
#include "cuda/executor.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace tandem::executor {
namespace {

std::string failure(unsigned threads, const std::function<void()>& thread) {
  try {
    run_grid(1, threads, thread);
  } catch (const KernelError& error) {
    return error.what();
  }
  return "none";
}

TEST(Executor, RunsEveryThreadOnce) {
  std::vector<int> seen(2 * 3 * 4 * 5 * 6 * 7);
  run_grid(dim3(2, 3, 4), dim3(5, 6, 7), [&] {
    EXPECT_EQ(gridDim.y, 3u);
    EXPECT_EQ(blockDim.z, 7u);
    const unsigned block = (blockIdx.z * 3 + blockIdx.y) * 2 + blockIdx.x;
    const unsigned thread = (threadIdx.z * 6 + threadIdx.y) * 5 + threadIdx.x;
    ++seen[block * 5 * 6 * 7 + thread];
  });
  EXPECT_EQ(seen, std::vector<int>(seen.size(), 1));
}

__global__ void reverse(const int* x, int* y) {
  __shared__ int kept[96];
  const int i = static_cast<int>(threadIdx.x), at = static_cast<int>(blockIdx.x * blockDim.x) + i;
  kept[i] = x[at];
  __syncthreads();
  y[at] = kept[95 - i];
}

TEST(Executor, SharedMemoryIsWholeAfterTheBarrier) {
  std::vector<int> x(3 * 96), y(3 * 96);
  std::iota(x.begin(), x.end(), 0);
  run_grid(3, 96, [&] { reverse(x.data(), y.data()); });
  for (int i = 0; i < 3 * 96; ++i)
    EXPECT_EQ(y[static_cast<std::size_t>(i)], i / 96 * 96 + 95 - i % 96);
}

template <class T>
__global__ void give_what_is_there(T* found) {
  __shared__ T memory[40], single;
  found[2 * blockIdx.x] = memory[39];
  found[2 * blockIdx.x + 1] = single;
  memory[39] = single = T(1);
}

// Reading uninitialised shared memory would otherwise find the previous block's values.
template <class T>
void expect_spoilt(const std::function<bool(T)>& spoilt) {
  for (int launch = 0; launch < 2; ++launch) {
    std::vector<T> found(6, T(0));
    run_grid(3, 1, [&] { give_what_is_there(found.data()); });
    for (const T each : found) EXPECT_TRUE(spoilt(each)) << each;
  }
}

TEST(Executor, SharedMemoryStartsUninitialised) {
  expect_spoilt<float>([](float x) { return std::isnan(x); });
  expect_spoilt<double>([](double x) { return std::isnan(x); });
  expect_spoilt<int>([](int x) { return x == -1; });
}

// As `reverse`, without the barrier: the thread order exposes the error.
TEST(Executor, AMissingBarrierIsSeen) {
  std::vector<int> kept(96, -1), y(96);
  run_grid(1, 96, [&] {
    kept[threadIdx.x] = static_cast<int>(threadIdx.x);
    y[threadIdx.x] = kept[95 - threadIdx.x];
  });
  const auto missed = std::count(y.begin(), y.end(), -1);
  EXPECT_GT(missed, 20);
  EXPECT_LT(missed, 76);
}

TEST(Executor, ThreadsKeepTheirStateAcrossBarriers) {
  std::vector<int> sums(1024);
  run_grid(1, 1024, [&] {
    const int mine = static_cast<int>(threadIdx.x);
    int sum = 0;
    for (int i = 0; i < 5; ++i) {
      sum += mine * i;
      __syncthreads();
    }
    sums[threadIdx.x] = sum;
  });
  for (int i = 0; i < 1024; ++i) EXPECT_EQ(sums[static_cast<std::size_t>(i)], 10 * i);
}

TEST(Executor, ShufflesReadTheLanesThatCudaReads) {
  constexpr unsigned kAll = 0xffffffffu;
  run_grid(1, 64, [&] {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const double value = threadIdx.x + 0.5;
    const double first = threadIdx.x / 32 * 32 + 0.5;
    EXPECT_EQ(__shfl_xor_sync(kAll, value, 5), first + (lane ^ 5));
    EXPECT_EQ(__shfl_sync(kAll, value, 7), first + 7);
    EXPECT_EQ(__shfl_sync(kAll, value, 33), first + 1);
    EXPECT_EQ(__shfl_sync(kAll, value, 3, 8), first + lane / 8 * 8 + 3);
    EXPECT_EQ(__shfl_up_sync(kAll, value, 2), first + (lane < 2 ? lane : lane - 2));
    EXPECT_EQ(__shfl_down_sync(kAll, value, 2), first + (lane > 29 ? lane : lane + 2));
    EXPECT_EQ(__shfl_down_sync(kAll, value, 3, 16), first + (lane % 16 > 12 ? lane : lane + 3));
    EXPECT_EQ(__shfl_xor_sync(kAll, static_cast<short>(lane), 1), lane ^ 1);
  });
}

TEST(Executor, VotesCountTheLanesOfTheMask) {
  run_grid(1, 32, [] {
    const int lane = static_cast<int>(threadIdx.x);
    EXPECT_EQ(__ballot_sync(0xffffffffu, lane % 2), 0xaaaaaaaau);
    EXPECT_EQ(__any_sync(0xffffffffu, lane == 31), 1);
    EXPECT_EQ(__all_sync(0xffffffffu, lane != 31), 0);
    if (lane < 4) {
      EXPECT_EQ(__all_sync(0xfu, 1), 1);
      EXPECT_EQ(__ballot_sync(0xfu, lane == 2), 4u);
    }
    __syncwarp();
  });
}

// Parts of a warp diverge and reconverge.
TEST(Executor, LanesMayDiverge) {
  run_grid(1, 32, [] {
    const int lane = static_cast<int>(threadIdx.x);
    const unsigned mask = lane < 16 ? 0x0000ffffu : 0xffff0000u;
    for (int i = 0; i < (lane < 16 ? 1 : 3); ++i)
      EXPECT_EQ(__shfl_xor_sync(mask, lane, 1), lane ^ 1);
    EXPECT_EQ(__shfl_xor_sync(0xffffffffu, lane, 31), 31 - lane);
  });
}

TEST(Executor, AtomicsGiveWhatWasThere) {
  int sum = 0, most = -1, claimed = 0, first = 0;
  run_grid(4, 32, [&] {
    atomicAdd(&sum, 2);
    atomicMax(&most, static_cast<int>(threadIdx.x));
    if (atomicCAS(&claimed, 0, 1) == 0) ++first;
  });
  EXPECT_EQ(sum, 256);
  EXPECT_EQ(most, 31);
  EXPECT_EQ(first, 1);
}

TEST(Executor, ABarrierThatNotAllReachFails) {
  EXPECT_NE(failure(64,
                    [] {
                      if (threadIdx.x != 5) __syncthreads();
                    })
                .find("thread 5"),
            std::string::npos);
  const std::string apart = failure(64, [] {
    if (threadIdx.x <= 40)
      __syncthreads();
    else
      __syncwarp();
  });
  EXPECT_NE(apart.find("no thread can go on"), std::string::npos) << apart;
}

TEST(Executor, AShuffleWithoutALaneOfItsMaskFails) {
  const std::string returned = failure(32, [] {
    if (threadIdx.x == 9) return;
    __shfl_xor_sync(0xffffffffu, 1, 1);
  });
  EXPECT_NE(returned.find("lane 9"), std::string::npos) << returned;
  const std::string few = failure(20, [] { __syncwarp(); });
  EXPECT_NE(few.find("lane 20 does not exist"), std::string::npos) << few;
  const std::string outside = failure(32, [] { __ballot_sync(0xffu, 1); });
  EXPECT_NE(outside.find("which it is not in"), std::string::npos) << outside;
  const std::string unread = failure(32, [] {
    if (threadIdx.x < 8) __shfl_sync(0xffu, 1, 12);
  });
  EXPECT_NE(unread.find("reads lane 12, which is not in its mask"), std::string::npos) << unread;
  const std::string mixed = failure(32, [] {
    if (threadIdx.x < 16)
      __syncwarp();
    else
      __any_sync(0xffffffffu, 1);
  });
  EXPECT_NE(mixed.find("no thread can go on"), std::string::npos) << mixed;
}

TEST(Executor, ExceptionsLeaveTheGrid) {
  int ended = 0;
  struct End {
    int& count;
    ~End() { ++count; }
  };
  EXPECT_THROW(run_grid(2, 64,
                        [&] {
                          const End end{ended};
                          __syncthreads();
                          if (threadIdx.x == 3) throw std::runtime_error("here");
                          __syncthreads();
                        }),
               std::runtime_error);
  EXPECT_EQ(ended, 64) << "what the other threads hold is given back";
  run_grid(2, 64, [&] { __syncthreads(); });
}

}  // namespace
}  // namespace tandem::executor
