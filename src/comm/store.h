// A small key/value store through which the processes of a job find each other.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem {

// Thread-safe. Every function throws UnavailableError when the store cannot be reached.
class Store {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  virtual ~Store() = default;
  // Values are arbitrary bytes. Overwrites an existing value.
  virtual void set(const std::string& key, std::string_view value) = 0;
  // Waits until the key is set. Throws DeadlineExceededError, which names the key, at `deadline`.
  virtual std::string get(const std::string& key, TimePoint deadline) = 0;
  // Adds to a number and returns the sum. A missing key counts as 0. The value is stored as decimal
  // digits.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;
  // May return before the key is removed. Ignores a key that does not exist.
  virtual void remove(const std::string& key) = 0;
};

}  // namespace tandem
