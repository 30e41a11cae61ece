// Arrays in the messages of TPU systems, which are TensorFlow's.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/joined.h"

namespace tandem::distribute {

// As NumPy prints an array of one axis: "[ 2 10  1]".
template <class Numbers>
std::string numpy_text(const Numbers& numbers) {
  std::size_t width = 0;
  for (const auto& number : numbers) width = std::max(width, fmt::formatted_size("{}", number));
  std::vector<std::string> words;
  for (const auto& number : numbers) words.push_back(fmt::format("{:>{}}", number, width));
  return fmt::format("[{}]", joined(words, " "));
}

}  // namespace tandem::distribute
