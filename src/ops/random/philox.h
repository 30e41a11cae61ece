// Philox 4x32-10, the counter-based generator of J. Salmon et al., "Parallel random numbers: as
// easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>

#include "op/op.h"

namespace tandem {

inline constexpr std::uint32_t kPhiloxM0 = 0xD2511F53u, kPhiloxM1 = 0xCD9E8D57u;  // multipliers
inline constexpr std::uint32_t kPhiloxW0 = 0x9E3779B9u,
                               kPhiloxW1 = 0xBB67AE85u;  // added to the key

// The initial state of the rounds, for a counter below 2^48 and a stream below 2^16.
struct PhiloxState {
  std::uint32_t c0, c1, c2, c3;  // counter
  std::uint32_t k0, k1;          // key

  constexpr PhiloxState(const RandomKey& random_key, std::uint64_t counter)
      : c0(static_cast<std::uint32_t>(counter)),
        c1(static_cast<std::uint32_t>(counter >> 32) ^ random_key.stream << 16),
        c2(static_cast<std::uint32_t>(random_key.number)),
        c3(static_cast<std::uint32_t>(random_key.number >> 32)),
        k0(static_cast<std::uint32_t>(random_key.seed)),
        k1(static_cast<std::uint32_t>(random_key.seed >> 32)) {}
};

// Four random words.
constexpr std::array<std::uint32_t, 4> philox(const RandomKey& random_key, std::uint64_t counter) {
  PhiloxState s(random_key, counter);
  for (int round = 0; round < 10; ++round, s.k0 += kPhiloxW0, s.k1 += kPhiloxW1) {
    const std::uint64_t p0 = std::uint64_t{kPhiloxM0} * s.c0;
    const std::uint64_t p1 = std::uint64_t{kPhiloxM1} * s.c2;
    s.c0 = static_cast<std::uint32_t>(p1 >> 32) ^ s.c1 ^ s.k0;
    s.c2 = static_cast<std::uint32_t>(p0 >> 32) ^ s.c3 ^ s.k1;
    s.c1 = static_cast<std::uint32_t>(p1);
    s.c3 = static_cast<std::uint32_t>(p0);
  }
  return {s.c0, s.c1, s.c2, s.c3};
}

// An index below `count` from 64 random bits, biased by less than count / 2^64.
constexpr std::uint64_t random_below(std::uint64_t count, std::uint64_t bits) {
  return static_cast<std::uint64_t>(static_cast<unsigned __int128>(bits) * count >> 64);
}

}  // namespace tandem
