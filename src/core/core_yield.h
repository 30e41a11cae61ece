// How a waiting thread yields its core.
#pragma once

#include <chrono>
#include <thread>

namespace tandem {

// One iteration of a spin loop: leaves the execution units to the core's other hardware thread.
inline void pause_core() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// A thread that yields loses its turn: on a busy host another program may run for milliseconds. A
// sleeping thread keeps its priority. So if a yield took long, yield() refuses for a tenth of a
// second, and the caller should sleep.
class CoreYield {
 public:
  // Returns whether it has yielded. `now`: the current time.
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
