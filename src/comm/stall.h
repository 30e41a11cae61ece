// Warnings of waits for other ranks that have become long.
#pragma once

#include <chrono>
#include <functional>
#include <span>
#include <string>
#include <utility>

#include "comm/store.h"
#include "core/log.h"

namespace tandem {

// Whether a wait that began at `begin` has lasted another TANDEM_STALL_WARNING seconds (60; 0:
// never) since it was last looked at. Throws InvalidArgumentError if the variable is invalid.
bool is_stalled(Store::TimePoint begin, Store::TimePoint last, Store::TimePoint now);

// A wait that logs that it has become long.
class LongWait {
 public:
  // Called several times per second. Logs describe(time) each time that is_stalled().
  template <class Describe>
  void look(const Describe& describe) {
    const auto now = std::chrono::steady_clock::now();
    if (is_stalled(begin_, std::exchange(last_, now), now))
      logging::warn("{}",
                    describe(std::chrono::duration_cast<std::chrono::milliseconds>(now - begin_)));
  }

 private:
  const Store::TimePoint begin_ = std::chrono::steady_clock::now();
  Store::TimePoint last_ = begin_;
};

// Whether a rank is the first of those that wait, which warns for all of them. `missing`: the ranks
// that it waits for, in ascending order.
bool is_first_waiting(int rank, std::span<const int> missing);

// Store::get(). Calls `warn` with the time that has passed, each time that is_stalled().
std::string get_or_warn(Store& store, const std::string& key, Store::TimePoint deadline,
                        const std::function<void(std::chrono::milliseconds waited)>& warn);

}  // namespace tandem
