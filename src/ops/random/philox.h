// Philox 4x32-10, the counter-based generator of J. Salmon et al., "Parallel random numbers: as easy
// as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>

#include "runtime/generator.h"

namespace tandem {

// Four random words for a counter below 2^48, of streams below 2^16.
inline std::array<std::uint32_t, 4> philox(const Draw& draw, std::uint64_t counter) {
  std::uint32_t c0 = static_cast<std::uint32_t>(counter);
  std::uint32_t c1 = static_cast<std::uint32_t>(counter >> 32) ^ draw.stream << 16;
  std::uint32_t c2 = static_cast<std::uint32_t>(draw.number);
  std::uint32_t c3 = static_cast<std::uint32_t>(draw.number >> 32);
  std::uint32_t k0 = static_cast<std::uint32_t>(draw.seed);
  std::uint32_t k1 = static_cast<std::uint32_t>(draw.seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0;
    const std::uint64_t p1 = std::uint64_t{0xCD9E8D57u} * c2;
    const auto h0 = static_cast<std::uint32_t>(p0 >> 32), h1 = static_cast<std::uint32_t>(p1 >> 32);
    c0 = h1 ^ c1 ^ k0;
    c2 = h0 ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// An index below `count` from 64 random bits, biased by less than count / 2^64.
inline std::uint64_t random_below(std::uint64_t count, std::uint64_t bits) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bits) * count >> 64);
}

}  // namespace tandem
