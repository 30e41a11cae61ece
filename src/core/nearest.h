// The nearest of several names, for "did you mean" messages.
#pragma once

#include <algorithm>
#include <numeric>
#include <span>
#include <string_view>
#include <vector>

namespace tandem {

// The number of characters to insert, delete or replace to turn `a` into `b`.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t k = 0; k < b.size(); ++k) {
      const std::size_t replaced = diagonal + (a[i] == b[k] ? 0 : 1);
      diagonal = row[k + 1];
      row[k + 1] = std::min({replaced, row[k] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// The first of `names` that is nearest to `wanted`; empty if none is similar.
inline std::string_view nearest(std::string_view wanted, std::span<const std::string_view> names) {
  std::string_view best;
  std::size_t distance = wanted.size() / 2 + 1;
  for (std::string_view name : names) {
    const std::size_t other = edit_distance(wanted, name);
    if (other < distance) {
      best = name;
      distance = other;
    }
  }
  return best;
}

}  // namespace tandem
