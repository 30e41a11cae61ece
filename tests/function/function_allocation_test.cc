// A replayed call does not allocate on the heap.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

#include "support/gpus.h"
#include "tandem/tandem.h"

namespace {
std::atomic<std::int64_t> allocations{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), bytes) != 0)
    throw std::bad_alloc();
  return memory;
}
}  // namespace

// Replacements of the global operators that count allocations. (GCC reports a mismatch if it
// inlines only one of a pair.)
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new[](std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tandem::function_allocation_test {
namespace {

TEST(FunctionAllocation, AReplayedCallAllocatesNothing) {
  testing::use_gpus(0);
  const NoGradScope no_grad;  // recording a call allocates
  Variable w(ones({64, 32}));
  const auto step = function([&](const Tensor& x) {
    w.assign_sub(w * multiply(reduce_mean(square(w)), 1e-3));
    return std::pair(tanh(add(x, 1.0)), reduce_sum(w));
  });
  const Tensor x = ones({64, 32});
  for (int i = 0; i < 3; ++i) step(x);
  const std::int64_t before = allocations.load();
  for (int i = 0; i < 10; ++i) step(x);
  EXPECT_EQ(allocations.load() - before, 0);
}

// Without matrix products, because oneDNN allocates in each call.
TEST(FunctionAllocation, AReplayedTrainingStepAllocatesNothing) {
  testing::use_gpus(0);
  random::set_seed(3);
  const Variable scale(random::normal({8})), shift(zeros({8}));
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
  const auto step = function([&](const Tensor& x, const Tensor& y) {
    const Tensor logits = nn::dropout(nn::relu(x * scale + shift), 0.1);
    const Tensor loss = reduce_mean(nn::sparse_softmax_cross_entropy(y, logits));
    optimizer.minimize(loss, {scale, shift});
    return loss;
  });
  const Tensor x = random::normal({64, 8}), y = random::uniform_int({64}, 0, 8);
  for (int i = 0; i < 3; ++i) step(x, y);
  const std::int64_t before = allocations.load();
  for (int i = 0; i < 10; ++i) step(x, y);
  EXPECT_EQ(allocations.load() - before, 0);
}

// Branches and loops with their gradients. Memory that a loop keeps for its gradient is reused.
TEST(FunctionAllocation, AReplayedLoopAllocatesNothing) {
  testing::use_gpus(0);
  random::set_seed(3);
  Variable scale(random::normal({32})), count(zeros({}));
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
  using Tensors = std::vector<Tensor>;
  const auto step = function([&](const Tensor& x, const Tensor& n) {
    const Tensors last =
        while_loop([&](const Tensors& v) { return less(v[0], n); },
                   [&](const Tensors& v) {
                     count.assign_add(ones({}));
                     const Tensor next = cond(
                         greater(v[0], 1.0), [&] { return nn::dropout(v[1] * scale, 0.1); },
                         [&] { return tanh(v[1]); });
                     return Tensors{v[0] + 1.0, next + x};
                   },
                   {zeros({}), x});
    const Tensor loss = reduce_mean(square(last[1]));
    optimizer.minimize(loss, {scale});
    return loss;
  });
  const Tensor x = random::normal({64, 32}), n = constant(4.0f), less_often = constant(2.0f);
  for (int i = 0; i < 3; ++i) step(x, n);
  const std::int64_t before = allocations.load();
  for (int i = 0; i < 10; ++i) step(x, i % 2 == 0 ? n : less_often);
  EXPECT_EQ(allocations.load() - before, 0);
}

}  // namespace
}  // namespace tandem::function_allocation_test
