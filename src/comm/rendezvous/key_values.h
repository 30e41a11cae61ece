// The key/value map that every kind of store contains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

namespace tandem {

// Not thread-safe.
class KeyValues {
 public:
  // Throws ResourceExhaustedError if the contents would exceed `limit_bytes`.
  explicit KeyValues(std::size_t limit_bytes = std::size_t{256} << 20)
      : limit_bytes_(limit_bytes) {}

  void set(const std::string& key, std::string_view value);
  // Null if the key does not exist. Valid until the next change.
  const std::string* find(const std::string& key) const;
  // Throws InvalidArgumentError if the value is not a number or the sum overflows.
  std::int64_t add(const std::string& key, std::int64_t delta);
  bool remove(const std::string& key);

 private:
  std::unordered_map<std::string, std::string> values_;
  std::size_t limit_bytes_, bytes_ = 0;
};

// The error message of a get() that has reached its deadline.
std::string not_set_in_time(const std::string& key);

}  // namespace tandem
