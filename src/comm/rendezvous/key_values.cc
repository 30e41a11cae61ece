#include "comm/rendezvous/key_values.h"

#include <charconv>

#include "core/status.h"

namespace tandem {
namespace {

// The approximate memory of an entry besides its bytes.
constexpr std::size_t kEntryBytes = 128;

}  // namespace

void KeyValues::set(const std::string& key, std::string_view value) {
  const auto found = values_.find(key);
  const std::size_t before =
      found == values_.end() ? 0 : kEntryBytes + key.size() + found->second.size();
  const std::size_t after = kEntryBytes + key.size() + value.size();
  if (bytes_ - before + after > limit_bytes_)
    fail<ResourceExhaustedError>("[Store] '{}' with {} bytes: a store holds {} bytes at most", key,
                                 value.size(), limit_bytes_);
  bytes_ += after - before;
  values_.insert_or_assign(key, std::string(value));
}

const std::string* KeyValues::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::int64_t KeyValues::add(const std::string& key, std::int64_t delta) {
  std::int64_t number = 0;
  if (const std::string* text = find(key)) {
    const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), number);
    if (error != std::errc() || stop != text->data() + text->size())
      fail<InvalidArgumentError>("[Store] add: '{}' holds no number", key);
  }
  if (__builtin_add_overflow(number, delta, &number))
    fail<InvalidArgumentError>("[Store] add: the sum at '{}' is too large", key);
  set(key, std::to_string(number));
  return number;
}

bool KeyValues::remove(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= kEntryBytes + key.size() + found->second.size();
  values_.erase(found);
  return true;
}

std::string not_set_in_time(const std::string& key) {
  return fmt::format("[Store] '{}' was not set within the time limit", key);
}

}  // namespace tandem
