// A host that calls Tandem from many threads of its own at the same time: they share the cores, and
// compute what one thread computes.
#include <tandem/tandem.h>

#include <atomic>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <latch>
#include <thread>
#include <vector>

namespace td = tandem;

namespace {

constexpr int kThreads = 32, kProducts = 30;

int threads_of_process() {
  namespace fs = std::filesystem;
  std::error_code none;
  return static_cast<int>(std::distance(fs::directory_iterator("/proc/self/task", none), {}));
}

std::vector<float> product(const td::Tensor& x) {
  return td::reduce_sum(td::softmax(td::matmul(x, x)), 0).to_vector<float>();
}

}  // namespace

int main() {
  const td::DeviceScope host("/cpu:0");
  td::random::set_seed(1);
  const td::Tensor x = td::random::normal({384, 384});
  const std::vector<float> expected = product(x);
  const int cores = threads_of_process();  // the team of this thread

  std::latch start(kThreads + 1);
  std::atomic<int> wrong{0}, most{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      start.arrive_and_wait();
      for (int k = 0; k < kProducts; ++k) {
        if (product(x) != expected) ++wrong;
        const int now = threads_of_process();
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
      }
    });
  start.arrive_and_wait();
  for (std::thread& thread : threads) thread.join();

  // Without shares, each thread would have a team of all cores.
  const int limit = cores + kThreads + kThreads * (cores - 1) * 3 / 4;
  std::fprintf(stderr, "%d threads at most, of which the host made %d; cores: %d\n", most.load(),
               kThreads + 1, cores);
  if (wrong > 0) std::fprintf(stderr, "%d wrong results\n", wrong.load());
  return wrong == 0 && (cores == 1 || most < limit) ? 0 : 1;
}
