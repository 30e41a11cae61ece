#pragma once

#include <cstdint>

#include "tandem/dtype.h"

// X(T) for the C++ type of the elements of each dtype, in namespace tandem.
// clang-format off
#define TANDEM_EACH_ELEMENT_TYPE(X)                                                        \
  X(float) X(double) X(Half) X(BFloat16) X(std::int32_t) X(std::int64_t) X(std::uint8_t)   \
  X(bool) X(std::int8_t) X(std::int16_t) X(std::uint16_t) X(std::uint32_t)                 \
  X(std::uint64_t) X(Float8E4M3FN) X(Float8E5M2)
// clang-format on
