// Waits of tests: for a condition, never for a fixed time.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>
#include <thread>

namespace tandem::testing {

// kPatience ends waits that would never end, and is shorter than ctest's time limit. Tests that
// expect a failure to be detected pass kFarAway as the time limit, so that a mere timeout fails the
// test.
inline constexpr std::chrono::minutes kPatience{4}, kFarAway{5};

// Waits until done(). False after kPatience.
template <class F>
bool eventually(const F& done) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

// Memory that processes forked later share, zeroed.
template <class T>
std::shared_ptr<T> shared_with_forks() {
  void* memory =
      mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return {new (memory) T, [](T* object) { munmap(object, sizeof(T)); }};
}

// A meeting point of a test's processes that does not use the code under test: counts arrivals.
class Arrivals {
 public:
  void arrive() const { ++*count_; }
  void wait_for(int count) const {
    eventually([&] { return *count_ >= count; });
  }
  void meet(int count) const {
    arrive();
    wait_for(count);
  }

 private:
  std::shared_ptr<std::atomic<int>> count_ = shared_with_forks<std::atomic<int>>();
};

// Kills this process during its next operation.
inline void die_soon() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    kill(getpid(), SIGKILL);
  }).detach();
}

}  // namespace tandem::testing
