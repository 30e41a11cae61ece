// Powers of whole numbers, on a CPU and on a GPU.
#pragma once

#include <cstdint>
#include <type_traits>

namespace tandem {

// base to the power of exponent, which wraps around. REQUIRES: exponent >= 0.
template <class C>
constexpr C whole_power(C base, C exponent) {
  using U = std::make_unsigned_t<C>;
  auto square = static_cast<std::uint64_t>(static_cast<U>(base));
  std::uint64_t result = 1;
  for (auto left = static_cast<U>(exponent); left != 0; left = static_cast<U>(left >> 1)) {
    if ((left & 1u) != 0) result *= square;
    square *= square;
  }
  return static_cast<C>(result);
}

}  // namespace tandem
