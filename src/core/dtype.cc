#include "tandem/dtype.h"
#include "core/joined.h"

#include <array>
#include <bit>
#include <limits>
#include <ostream>

#include "core/status.h"

namespace tandem {
namespace {

constexpr std::array<std::string_view, 15> kNames = {
    "float32", "float64", "float16", "bfloat16", "int32",  "int64",         "uint8",      "bool",
    "int8",    "int16",   "uint16",  "uint32",   "uint64", "float8_e4m3fn", "float8_e5m2"};

// Floats of 8 bits. The codes of numbers without their sign, in increasing order, are those up to
// kLargest.
template <int kMantissa, int kBias, std::uint32_t kLargest, std::uint32_t kTooLarge>
struct Float8Format {
  static constexpr int kShift = 23 - kMantissa;
  static constexpr float kLeastSubnormal = 1.0F / (1 << (kBias - 1 + kMantissa));

  static std::uint8_t round(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = word >> 31 << 7, magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint8_t>(sign | 0x7fu);
    std::uint32_t code = 0;
    if (magnitude < static_cast<std::uint32_t>(127 - kBias + 1) << 23) {
      constexpr float kUnits = kLeastSubnormal * 0x1p23F;  // the float unit rounds to multiples
      code = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + kUnits) -
             std::bit_cast<std::uint32_t>(kUnits);
    } else {
      const std::uint32_t odd = magnitude >> kShift & 1u;
      code = ((magnitude + (1u << (kShift - 1)) - 1 + odd) >> kShift) -
             (static_cast<std::uint32_t>(127 - kBias) << kMantissa);
    }
    return static_cast<std::uint8_t>(sign | (code > kLargest ? kTooLarge : code));
  }

  static float widen(std::uint32_t bits) {
    const std::uint32_t sign = bits >> 7 << 31, code = bits & 0x7fu;
    const std::uint32_t mantissa = code & ((1u << kMantissa) - 1);
    float magnitude = static_cast<float>(mantissa) * kLeastSubnormal;
    if (code > kLargest)
      magnitude = code == 0x7cu && kTooLarge == 0x7cu ? std::numeric_limits<float>::infinity()
                                                      : std::numeric_limits<float>::quiet_NaN();
    else if (code >> kMantissa != 0)
      magnitude = std::bit_cast<float>(
          ((code >> kMantissa) + static_cast<std::uint32_t>(127 - kBias)) << 23 |
          (mantissa << kShift));
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
};
using E4M3FN = Float8Format<3, 7, 0x7eu, 0x7fu>;
using E5M2 = Float8Format<2, 15, 0x7bu, 0x7cu>;

}  // namespace

Float8E4M3FN::Float8E4M3FN(float value) : bits(E4M3FN::round(value)) {}
Float8E4M3FN::operator float() const { return E4M3FN::widen(bits); }
Float8E5M2::Float8E5M2(float value) : bits(E5M2::round(value)) {}
Float8E5M2::operator float() const { return E5M2::widen(bits); }

std::string_view name_of(DType dtype) { return kNames.at(static_cast<std::size_t>(dtype)); }

DType dtype_from_name(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<DType>(i);
  fail<InvalidArgumentError>("[DType] expected one of {}, got '{}'", joined(kNames, ", "), name);
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name_of(dtype); }

}  // namespace tandem
