// Compares the outcomes of random programs and models, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/tensors.h"

namespace tandem::testing {

inline std::uint32_t number_of(const char* variable, std::uint32_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10)) : otherwise;
}

// Calls `body` with TANDEM_RANDOM_PROGRAMS seeds, or `count` unless it is set, beginning with
// TANDEM_RANDOM_PROGRAMS_FIRST. Returns their number.
template <class F>
std::uint32_t for_each_seed(std::uint32_t count, const F& body) {
  const std::uint32_t first = number_of("TANDEM_RANDOM_PROGRAMS_FIRST", 1);
  count = number_of("TANDEM_RANDOM_PROGRAMS", count);
  for (std::uint32_t seed = first; seed < first + count; ++seed) body(seed);
  return count;
}

// Dtype, shape and the bits of the elements. All NaNs are equal, because the sign of a computed NaN
// depends on the order of operands in the instruction; and both zeros, because a branch that was
// not taken adds a gradient of 0.
inline std::string bits_of(const Tensor& tensor) {
  std::string bits(name_of(tensor.dtype()));
  bits += tensor.shape().to_string();
  for (const double value : values_of(tensor)) {
    const double canonical = std::isnan(value) ? std::nan("") : value + 0.0;
    bits.append(reinterpret_cast<const char*>(&canonical), sizeof(canonical));
  }
  return bits;
}

inline std::vector<std::string> bits_of(const std::vector<Tensor>& tensors) {
  std::vector<std::string> bits;
  for (const Tensor& tensor : tensors) bits.push_back(bits_of(tensor));
  return bits;
}

inline std::string printable(const std::string& bits) {
  std::string text;
  for (const char c : bits.substr(0, 200))
    text += std::isprint(static_cast<unsigned char>(c)) ? c : '.';
  return text + " (" + std::to_string(bits.size()) + " bytes)\n";
}

// Expects that all ways have the expected outcomes; prints the first that differs of each.
inline void expect_equal(std::uint32_t seed, const std::vector<std::vector<std::string>>& ways,
                         const std::vector<std::string>& expected) {
  for (std::size_t way = 0; way < ways.size(); ++way) {
    const std::vector<std::string>& actual = ways[way];
    if (actual == expected) continue;
    std::size_t i = 0;
    while (i < std::min(actual.size(), expected.size()) && actual[i] == expected[i]) ++i;
    const auto text = [i](const std::vector<std::string>& outcomes) {
      return i < outcomes.size() ? printable(outcomes[i]) : "nothing\n";
    };
    ADD_FAILURE() << "TANDEM_RANDOM_PROGRAMS_FIRST=" << seed << ", way " << way << ", outcome " << i
                  << ":\n"
                  << text(actual) << "instead of\n"
                  << text(expected);
  }
}

}  // namespace tandem::testing
