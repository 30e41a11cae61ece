// A small key/value store that the processes of a job share while they find each other.
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
  // Values are bytes. A key that is there is overwritten.
  virtual void set(const std::string& key, std::string_view value) = 0;
  // Waits until the key is there. Throws DeadlineExceededError, naming the key, at `deadline`.
  virtual std::string get(const std::string& key, TimePoint deadline) = 0;
  // Adds to a number, which is 0 when the key is not there, and returns the sum. The value is its
  // decimal text.
  virtual std::int64_t add(const std::string& key, std::int64_t delta) = 0;
  // Whether the key was there.
  virtual bool remove(const std::string& key) = 0;
};

}  // namespace tandem
