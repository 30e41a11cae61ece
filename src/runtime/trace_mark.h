// State of objects that decides what a traced function becomes, beside its arguments.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace tandem {

// While it lives its value is part of every call's signature: where it changes, another trace is
// called. Thread-safe.
class TraceMark {
 public:
  explicit TraceMark(std::uint64_t value);
  ~TraceMark();
  TraceMark(const TraceMark&) = delete;
  TraceMark& operator=(const TraceMark&) = delete;
  void set(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }

  // How many there are, and their values, one behind the other.
  static void add_to_key(std::string& key);

 private:
  std::atomic<std::uint64_t> value_;
};

}  // namespace tandem
