// How tests wait: for what has to happen, not for a time in which it should.
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

// A wait that is in vain ends after this, which is short of ctest's limit for a test. What has to
// be noticed by itself gets a time limit of kFarAway, so that one that comes by the limit fails.
inline constexpr std::chrono::minutes kPatience{4}, kFarAway{5};

// Waits until done(); false when that is in vain.
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

// Where the processes of a test meet without a word of what is tested: those that come are counted.
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

// Kills this process in the midst of what it does next.
inline void die_soon() {
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    kill(getpid(), SIGKILL);
  }).detach();
}

}  // namespace tandem::testing
