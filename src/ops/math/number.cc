#include "ops/math/number.h"

#include <cmath>

#include "core/status.h"

namespace tandem {

bool holds(DType dtype, double value) {
  const auto integer_within = [value](double low, double limit) {
    return value >= low && value < limit && value == std::trunc(value);
  };
  const auto rounds_below = [value](double limit) {
    return !(std::fabs(value) >= limit) || std::isinf(value);
  };
  switch (dtype) {
    case DType::kFloat64: return true;
    // Values from halfway between the largest element and the next power of two round to infinity.
    case DType::kFloat32: return rounds_below(0x1.ffffffp127);
    case DType::kFloat16: return rounds_below(65520.0);
    case DType::kBFloat16: return rounds_below(0x1.ffp127);
    case DType::kInt32: return integer_within(-0x1p31, 0x1p31);
    case DType::kInt64: return integer_within(-0x1p63, 0x1p63);
    case DType::kUInt8: return integer_within(0.0, 256.0);
    case DType::kBool: return value == 0.0 || value == 1.0;
    case DType::kInt8: return integer_within(-128.0, 128.0);
    case DType::kInt16: return integer_within(-0x1p15, 0x1p15);
    case DType::kUInt16: return integer_within(0.0, 0x1p16);
    case DType::kUInt32: return integer_within(0.0, 0x1p32);
    case DType::kUInt64: return integer_within(0.0, 0x1p64);
    case DType::kFloat8E4M3FN: return !(std::fabs(value) > 464.0);  // has no infinity
    case DType::kFloat8E5M2: return rounds_below(61440.0);
  }
  return false;
}

void check_number(std::string_view op, DType dtype, double value) {
  if (!holds(dtype, value))
    fail<InvalidArgumentError>("[{}] expected a number that {} holds, got {}", op, name_of(dtype),
                               value);
}

}  // namespace tandem
