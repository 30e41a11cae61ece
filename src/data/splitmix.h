// Random numbers for data pipelines: one stream per key.
#pragma once

#include <cstdint>

namespace tandem::data {

// The SplitMix64 generator (Steele et al. 2014).
class SplitMix {
 public:
  explicit SplitMix(std::uint64_t state) : state_(state) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  // [0, bound); the bias is below bound / 2^64.
  std::uint64_t below(std::uint64_t bound) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }
  // [0, 1)
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  return SplitMix(SplitMix(a).next() ^ (b * 0xd1342543de82ef95u)).next();
}

}  // namespace tandem::data
