// Numbers and strings as bytes, in little-endian order: of messages and files, and of the keys of
// caches.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/status.h"

namespace tandem {

static_assert(std::endian::native == std::endian::little);

// A number, or a struct of numbers. Keys have no structs with padding: its bytes are undefined.
template <class T>
concept Plain = std::is_arithmetic_v<T> || std::is_enum_v<T> ||
    (std::is_aggregate_v<T>&& std::is_trivially_copyable_v<T>);

template <Plain T>
std::string_view plain_bytes(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

// Appends to a std::string or a std::vector<std::byte>, which outlives it.
template <class Bytes>
class ByteWriter {
 public:
  explicit ByteWriter(Bytes& bytes) : bytes_(bytes) {}

  template <Plain... T>
  ByteWriter& add(T... values) {
    (append(plain_bytes(values)), ...);
    return *this;
  }
  // With its length before it.
  ByteWriter& add(std::string_view text) {
    add(static_cast<std::uint32_t>(text.size()));
    append(text);
    return *this;
  }

 private:
  void append(std::string_view more) {
    const auto* begin = reinterpret_cast<const typename Bytes::value_type*>(more.data());
    if constexpr (requires { bytes_.append(begin, more.size()); })
      bytes_.append(begin, more.size());
    else
      bytes_.insert(bytes_.end(), begin, begin + more.size());
  }

  Bytes& bytes_;
};

// Reads what a ByteWriter has written. Throws DataLossError where the bytes are too few.
class ByteReader {
 public:
  // `what`: the subject of the error's message, "[rendezvous] a message". Both outlive the reader.
  ByteReader(std::string_view what, std::string_view bytes) : what_(what), bytes_(bytes) {}
  ByteReader(std::string_view what, std::span<const std::byte> bytes)
      : ByteReader(what, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}) {}

  std::size_t left() const { return bytes_.size(); }

  std::string_view take(std::size_t count) {
    if (count > left()) refuse(fmt::format("expected {} more bytes, got {}", count, left()));
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  template <Plain T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  // REQUIRES: `last` is the largest value of the enumeration, whose values begin at 0.
  template <class E>
  E choice(E last) {
    const auto value = number<std::underlying_type_t<E>>();
    const auto largest = static_cast<std::underlying_type_t<E>>(last);
    if (value > largest)
      refuse(fmt::format("expected a value of at most {}, got {}", largest, value));
    return static_cast<E>(value);
  }
  std::string_view text() { return take(number<std::uint32_t>()); }

  [[noreturn]] void refuse(std::string_view why) const {
    fail<DataLossError>("{} is damaged: {}", what_, why);
  }

 private:
  std::string_view what_, bytes_;
};

}  // namespace tandem
