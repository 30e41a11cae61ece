// The serialised form of attribute fields: names with lists of numbers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/shape.h"

namespace tandem {

struct AttrField {
  std::string name;
  std::vector<std::int64_t> integers = {};  // also booleans, enumerations and shapes
  std::vector<double> reals = {};
  bool known_shape = true;  // false for a shape of unknown rank
  friend bool operator==(const AttrField&, const AttrField&) = default;
};
using AttrFields = std::vector<AttrField>;

namespace detail {

[[noreturn]] void unsuitable_field(const AttrField& field);
// Throws InvalidArgumentError if there is no such field.
const AttrField& field_named(const AttrFields& fields, std::string_view name);
void check_count(std::size_t expected, std::size_t got);

template <class T>
void save_field(AttrField& field, const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    field.reals.push_back(static_cast<double>(value));
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    field.integers.push_back(std::bit_cast<std::int64_t>(value));
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    field.integers.push_back(static_cast<std::int64_t>(value));
  } else {
    if constexpr (std::is_same_v<T, Shape>) field.known_shape = value.known();
    for (const auto& item : value) save_field(field, item);
  }
}

inline std::int64_t only_integer(const AttrField& field) {
  if (field.integers.size() != 1) unsuitable_field(field);
  return field.integers[0];
}

// Enumerations declare a function last_value(E) that returns their last value.
template <class T>
void load_field(const AttrField& field, T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    if (field.reals.size() != 1) unsuitable_field(field);
    value = static_cast<T>(field.reals[0]);
  } else if constexpr (std::is_enum_v<T>) {
    const std::int64_t number = only_integer(field);
    if (number < 0 || number > static_cast<std::int64_t>(last_value(T()))) unsuitable_field(field);
    value = static_cast<T>(number);
  } else if constexpr (std::is_same_v<T, bool>) {
    const std::int64_t number = only_integer(field);
    if (number != 0 && number != 1) unsuitable_field(field);
    value = number == 1;
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    value = std::bit_cast<std::uint64_t>(only_integer(field));
  } else if constexpr (std::is_integral_v<T>) {
    const std::int64_t number = only_integer(field);
    if (!std::in_range<T>(number)) unsuitable_field(field);
    value = static_cast<T>(number);
  } else if constexpr (std::is_same_v<T, Shape>) {
    if (field.integers.size() > kMaxRank) unsuitable_field(field);
    value = field.known_shape ? Shape(std::span<const std::int64_t>(field.integers)) : Shape();
  } else if constexpr (std::is_same_v<T, Dims>) {
    if (field.integers.size() > kMaxRank) unsuitable_field(field);
    value = Dims(std::span<const std::int64_t>(field.integers));
  } else {
    value.assign(field.integers.begin(), field.integers.end());
  }
}

}  // namespace detail
}  // namespace tandem
