// Random numbers that identify an object among those of all processes.
#pragma once

#include <cstdint>
#include <random>

namespace tandem {

// Never 0.
inline std::uint64_t random_number() {
  std::random_device device;
  return (std::uint64_t{device()} << 32 | device()) | 1;
}

}  // namespace tandem
