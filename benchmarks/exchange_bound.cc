// A lower bound for reducing the gradients of two processes and updating their parameters (SGD with
// momentum): the memory traffic alone, in shared memory, in four variants. Between the rounds each
// process writes its gradients and reads its parameters, as a training step does. Prints a JSON
// line: medians in microseconds, until both have read their parameters again.
//
//     exchange_bound [--parameters 669706] [--rounds 2000]
//
// The variants: "apart": each updates from its own gradients. "sum": each sums half of them for
// both, as the shm backend does, then both update. "fused": no sum, each reads both gradients as it
// updates. "shared": each updates half of the parameters, in both processes' memory.
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/multiversion.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kOthers = std::size_t{4} << 20;  // other floats that a step reads

// The buffers of one process, in shared memory.
struct ProcessBuffers {
  float *gradients, *parameters, *momentum;
  std::atomic<std::int64_t>* meetings;
};

struct ElementRange {
  std::int64_t begin, end;
};

TANDEM_MULTIVERSION void sum(const float* a, const float* b, float* to, float* too,
                             ElementRange range) {
#pragma GCC ivdep
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const float mean = (a[i] + b[i]) * 0.5f;
    to[i] = mean;
    too[i] = mean;
  }
}

TANDEM_MULTIVERSION void update(const ProcessBuffers& side, ElementRange range) {
  const float* gradients = side.gradients;
  float *parameters = side.parameters, *momentum = side.momentum;
#pragma GCC ivdep
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    momentum[i] = 0.9f * momentum[i] - 0.01f * gradients[i];
    parameters[i] += momentum[i];
  }
}

TANDEM_MULTIVERSION void update_from_both(const ProcessBuffers& side, const float* others,
                                          ElementRange range) {
  const float* gradients = side.gradients;
  float *parameters = side.parameters, *momentum = side.momentum;
#pragma GCC ivdep
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    momentum[i] = 0.9f * momentum[i] - 0.01f * ((gradients[i] + others[i]) * 0.5f);
    parameters[i] += momentum[i];
  }
}

TANDEM_MULTIVERSION void update_both(const ProcessBuffers& side, const ProcessBuffers& other,
                                     ElementRange range) {
  const float *gradients = side.gradients, *others = other.gradients;
  float *parameters = side.parameters, *momentum = side.momentum;
  float *its_parameters = other.parameters, *its_momentum = other.momentum;
#pragma GCC ivdep
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    const float step = 0.9f * momentum[i] - 0.01f * ((gradients[i] + others[i]) * 0.5f);
    const float value = parameters[i] + step;
    momentum[i] = its_momentum[i] = step;
    parameters[i] = its_parameters[i] = value;
  }
}

TANDEM_MULTIVERSION void write_gradients(const ProcessBuffers& side, const float* others,
                                         std::int64_t count) {
  float* gradients = side.gradients;
  const float* parameters = side.parameters;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) gradients[i] = parameters[i] * 1e-3f + others[i];
}

void* allocate(std::size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::array<ProcessBuffers, 2> make_sides(std::int64_t count) {
  std::array<ProcessBuffers, 2> sides;
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  for (ProcessBuffers& side : sides)
    side = {static_cast<float*>(allocate(bytes)), static_cast<float*>(allocate(bytes)),
            static_cast<float*>(allocate(bytes)),
            new (allocate(4096)) std::atomic<std::int64_t>(0)};
  return sides;
}

void stay_on_core(int number) {
  cpu_set_t core;
  CPU_ZERO(&core);
  CPU_SET(number, &core);
  sched_setaffinity(0, sizeof(core), &core);
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t count = 669'706;  // of the MLP 784-512-512-10
  int rounds = 2000;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::string(argv[i]) == "--parameters") count = std::atol(argv[i + 1]);
    if (std::string(argv[i]) == "--rounds") rounds = std::atoi(argv[i + 1]);
  }
  const std::array<ProcessBuffers, 2> sides = make_sides(count);
  const pid_t child = fork();
  const int rank = child == 0 ? 1 : 0;
  const ProcessBuffers &mine = sides[static_cast<std::size_t>(rank)],
                       &other = sides[static_cast<std::size_t>(1 - rank)];
  stay_on_core(rank);
  const auto meet = [&] {
    const std::int64_t now = mine.meetings->fetch_add(1) + 1;
    while (other.meetings->load(std::memory_order_acquire) < now) __builtin_ia32_pause();
  };
  std::vector<float> others(std::max(kOthers, static_cast<std::size_t>(count)), 1e-3f);
  const ElementRange all = {0, count};
  const ElementRange half =
      rank == 0 ? ElementRange{0, count / 32 * 16} : ElementRange{count / 32 * 16, count};
  constexpr std::array<const char*, 4> kWays = {"apart", "sum", "fused", "shared"};
  std::array<std::vector<double>, kWays.size()> times;
  volatile float seen = 0;
  for (int round = -rounds / 10; round < rounds; ++round)
    for (std::size_t way = 0; way < kWays.size(); ++way) {
      write_gradients(mine, others.data(), count);
      for (std::size_t i = 0; i < others.size(); i += 64) seen = seen + others[i];
      meet();
      const auto begin = Clock::now();
      if (way == 0) {
        update(mine, all);
      } else if (way == 1) {
        sum(sides[0].gradients, sides[1].gradients, sides[0].gradients, sides[1].gradients, half);
        meet();
        update(mine, all);
      } else if (way == 2) {
        update_from_both(mine, other.gradients, all);
      } else {
        update_both(mine, other, half);
      }
      meet();
      write_gradients(mine, others.data(), count);
      const std::chrono::duration<double, std::micro> taken = Clock::now() - begin;
      if (round >= 0) times[way].push_back(taken.count());
      meet();
    }
  if (rank == 1) return 0;
  wait(nullptr);
  std::printf("{\"program\": \"exchange_bound\", \"parameters\": %ld", static_cast<long>(count));
  for (std::size_t way = 0; way < kWays.size(); ++way)
    std::printf(", \"%s_us\": %.1f", kWays[way], median(times[way]));
  std::printf("}\n");
}
