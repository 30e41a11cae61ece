// State of objects that traced functions depend on, besides their arguments.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tandem {

// While it lives, its value is part of the signature of every call. A change
// selects another trace. Thread-safe.
class TraceMark {
 public:
  explicit TraceMark(std::uint64_t value);
  ~TraceMark();
  TraceMark(const TraceMark&) = delete;
  TraceMark& operator=(const TraceMark&) = delete;
  void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }

  // Appends the number of marks and their values.
  static void add_to_key(std::string& key);

 private:
  std::atomic<std::uint64_t> value_;
};

}  // namespace tandem
