// How a thread that waits yields its core.
#pragma once

#include <chrono>
#include <thread>

namespace tandem {

// For a round of a loop that spins: leaves the core's units to its other thread, where it has one.
inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A thread that yields forfeits its share of the core: on a busy machine the next program has it
// for milliseconds. One that sleeps keeps its claim. So where a yield has taken long, this refuses
// for a tenth of a second, and the caller is to sleep.
class CoreYield {
 public:
  // Whether it has yielded. `now`: the time at the call.
  bool yield(std::chrono::steady_clock::time_point now) {
    if (now < next_) return false;
    std::this_thread::yield();
    const auto back = std::chrono::steady_clock::now();
    if (back - now > std::chrono::milliseconds(1)) next_ = back + std::chrono::milliseconds(100);
    return true;
  }

 private:
  std::chrono::steady_clock::time_point next_;
};

}  // namespace tandem
