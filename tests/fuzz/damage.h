// Damages good inputs, so that a fuzzer gets further than with any bytes alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tandem::fuzz {

// Triples of bytes: a position, in two bytes, and the value to write there. At the end, the string
// is cut off.
inline void damage(std::string& good, std::span<const std::uint8_t> edits) {
  for (; edits.size() >= 3 && !good.empty(); edits = edits.subspan(3)) {
    const std::size_t at = (edits[0] | std::size_t{edits[1]} << 8) % good.size();
    good[at] = static_cast<char>(edits[2]);
  }
  if (edits.size() == 2 && !good.empty())
    good.resize((edits[0] | std::size_t{edits[1]} << 8) % good.size());
}

}  // namespace tandem::fuzz
