// Lists in messages.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace tandem {

// The strings or whole numbers of a range with `separator` between them. fmt::join() would
// instantiate a formatter per type of range.
template <class Range>
std::string joined(const Range& range, std::string_view separator) {
  std::string text;
  std::string_view before;
  for (const auto& item : range) {
    text += before;
    if constexpr (std::integral<std::remove_cvref_t<decltype(item)>>)
      text += std::to_string(item);
    else
      text += item;
    before = separator;
  }
  return text;
}

}  // namespace tandem
