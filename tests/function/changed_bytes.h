// Serialised graphs with changed bytes.
#pragma once

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "function/serialize.h"
#include "tandem/errors.h"

namespace tandem::testing {

// Changes up to three bytes of a graph's nodes, `times` times. Each result is a valid graph or
// gives a typed error; at least a third give an error.
inline void expect_read_or_refused(const std::string& bytes, int times) {
  std::mt19937 random(1);
  const auto below = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  int read = 0, refused = 0;
  for (int i = 0; i < times; ++i) {
    std::string changed = bytes;
    for (std::size_t k = 0; k <= below(3); ++k)
      changed[below(changed.size())] = static_cast<char>(below(256));
    try {
      serialize_nodes(*deserialize_nodes(changed));
      ++read;
    } catch (const InvalidArgumentError&) {
      ++refused;
    } catch (const DataLossError&) {
      ++refused;
    }
  }
  EXPECT_GT(read, 0);
  EXPECT_GT(refused, times / 3);
}

}  // namespace tandem::testing
