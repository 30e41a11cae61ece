// The contents of a store: what every kind of store does with a request.
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
  // Throws ResourceExhaustedError when all of it would take more than `limit_bytes`.
  explicit KeyValues(std::size_t limit_bytes = std::size_t{256} << 20)
      : limit_bytes_(limit_bytes) {}

  void set(const std::string& key, std::string_view value);
  // Null when it is not there. Valid until the next change.
  const std::string* find(const std::string& key) const;
  // Throws InvalidArgumentError when the value is no number or the sum too large.
  std::int64_t add(const std::string& key, std::int64_t delta);
  bool remove(const std::string& key);

 private:
  std::unordered_map<std::string, std::string> values_;
  std::size_t limit_bytes_, bytes_ = 0;
};

// The message of a get() that has reached its deadline.
std::string not_set_in_time(const std::string& key);

}  // namespace tandem
