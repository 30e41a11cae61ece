// Giving the core away while waiting.
#pragma once

#include <chrono>
#include <thread>

namespace tandem {

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
