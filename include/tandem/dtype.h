/// @file
/// Data types (dtypes) of tensor elements, and the 16-bit floating-point types that C++20 lacks.
#pragma once

#if __cplusplus <= 201703L
#error "Tandem needs C++20: compile with -std=c++20"
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>
#include <type_traits>

namespace tandem {

namespace detail {

template <class T>
concept Arithmetic = std::is_arithmetic_v<T>;

}  // namespace detail

/// Data type of a tensor's elements.
enum class DType : std::uint8_t {
  kFloat32,       ///< IEEE 754 binary32; C++ float
  kFloat64,       ///< IEEE 754 binary64; C++ double
  kFloat16,       ///< IEEE 754 binary16; tandem::Half
  kBFloat16,      ///< tandem::BFloat16
  kInt32,         ///< std::int32_t
  kInt64,         ///< std::int64_t
  kUInt8,         ///< std::uint8_t
  kBool,          ///< C++ bool
  kInt8,          ///< std::int8_t, for storage
  kInt16,         ///< std::int16_t, for storage
  kUInt16,        ///< std::uint16_t, for storage
  kUInt32,        ///< std::uint32_t, for storage
  kUInt64,        ///< std::uint64_t, for storage
  kFloat8E4M3FN,  ///< tandem::Float8E4M3FN, for storage
  kFloat8E5M2,    ///< tandem::Float8E5M2, for storage
};

/// The last enumerator, for range checks.
constexpr DType last_value(DType) { return DType::kFloat8E5M2; }

/// @{
/// Dtypes under their names in TensorFlow and PyTorch.
inline constexpr DType float32 = DType::kFloat32;
inline constexpr DType float64 = DType::kFloat64;
inline constexpr DType float16 = DType::kFloat16;
inline constexpr DType bfloat16 = DType::kBFloat16;
inline constexpr DType int32 = DType::kInt32;
inline constexpr DType int64 = DType::kInt64;
inline constexpr DType uint8 = DType::kUInt8;
inline constexpr DType int8 = DType::kInt8;
inline constexpr DType int16 = DType::kInt16;
inline constexpr DType uint16 = DType::kUInt16;
inline constexpr DType uint32 = DType::kUInt32;
inline constexpr DType uint64 = DType::kUInt64;
inline constexpr DType float8_e4m3fn = DType::kFloat8E4M3FN;
inline constexpr DType float8_e5m2 = DType::kFloat8E5M2;
/// @}
/// The boolean dtype, named as NumPy's scalar type because `bool` is a keyword.
inline constexpr DType bool_ = DType::kBool;

/// Size of one element in bytes.
constexpr std::size_t size_of(DType dtype) {
  constexpr std::size_t kSizes[] = {4, 8, 2, 2, 4, 8, 1, 1, 1, 2, 2, 4, 8, 1, 1};
  return kSizes[static_cast<int>(dtype)];
}
/// Whether the dtype is floating-point, and not for storage.
constexpr bool is_floating(DType dtype) { return dtype <= DType::kBFloat16; }
/// Whether the dtype is an integer; false for bool.
constexpr bool is_integer(DType dtype) {
  return dtype > DType::kBFloat16 && dtype != DType::kBool && dtype < DType::kFloat8E4M3FN;
}
/// Whether tensors of the dtype only store elements: they are made, read from files and written,
/// copied, rearranged, indexed, gathered, joined, printed and cast. Operations that compute refuse
/// them with an InvalidArgumentError, and want a cast to another dtype first.
constexpr bool is_storage(DType dtype) { return dtype > DType::kBool; }

/// Name of the dtype: "float32", "bfloat16", "bool", ...
std::string_view name_of(DType dtype);
/// The inverse of name_of(). Throws InvalidArgumentError that lists the dtypes.
DType dtype_from_name(std::string_view name);
/// Writes name_of(dtype).
std::ostream& operator<<(std::ostream& out, DType dtype);

/// bfloat16: the upper 16 bits of a float32. Conversion rounds to nearest, ties to even; NaN stays
/// NaN.
struct BFloat16 {
  std::uint16_t bits = 0;  ///< the representation

  BFloat16() = default;
  /// Rounds a float.
  explicit constexpr BFloat16(float value) : bits(round(value)) {}
  /// Widens to float; exact.
  constexpr operator float() const {  // NOLINT: widening is exact
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }

 private:
  static constexpr std::uint16_t round(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    if ((word & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((word >> 16) | 0x40u);
    return static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
};

/// IEEE 754 binary16. Conversion rounds to nearest, ties to even; overflow becomes infinity.
struct Half {
  std::uint16_t bits = 0;  ///< the representation

  Half() = default;
  /// Rounds a float.
  explicit Half(float value) : bits(from_float(value)) {}
  /// Widens to float; exact.
  operator float() const { return to_float(bits); }  // NOLINT: widening is exact

 private:
  static std::uint16_t from_float(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    const std::uint32_t magnitude = word & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x47800000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {  // subnormal half: let the float unit do the rounding
      const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
      return static_cast<std::uint16_t>(sign |
                                        (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
    }
    const std::uint32_t rounded = magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u);
    return static_cast<std::uint16_t>(sign | (rounded >> 13));
  }
  static float to_float(std::uint16_t half) {
    const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
    const std::uint32_t exponent = (half >> 10) & 0x1fu;
    const std::uint32_t mantissa = half & 0x3ffu;
    if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
    if (exponent != 0)
      return std::bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
};

/// Float of 8 bits with 4 of exponent and 3 of mantissa, as torch.float8_e4m3fn: the largest number
/// is 448, there is no infinity. Conversion rounds to nearest, ties to even; what would be larger
/// becomes NaN.
struct Float8E4M3FN {
  std::uint8_t bits = 0;  ///< the representation

  Float8E4M3FN() = default;
  /// Rounds a float.
  explicit Float8E4M3FN(float value);
  /// Widens to float; exact.
  operator float() const;  // NOLINT: widening is exact
};

/// Float of 8 bits with 5 of exponent and 2 of mantissa, as torch.float8_e5m2: the largest number
/// is 57344. Conversion rounds to nearest, ties to even; what would be larger becomes infinity.
struct Float8E5M2 {
  std::uint8_t bits = 0;  ///< the representation

  Float8E5M2() = default;
  /// Rounds a float.
  explicit Float8E5M2(float value);
  /// Widens to float; exact.
  operator float() const;  // NOLINT: widening is exact
};

/// The DType of a C++ element type: `dtype_of<float>` is float32.
template <class T>
inline constexpr DType dtype_of = [] {
  static_assert(sizeof(T) == 0, "not an element type of tensors");
  return DType::kFloat32;
}();
/// @cond
template <>
inline constexpr DType dtype_of<float> = DType::kFloat32;
template <>
inline constexpr DType dtype_of<double> = DType::kFloat64;
template <>
inline constexpr DType dtype_of<Half> = DType::kFloat16;
template <>
inline constexpr DType dtype_of<BFloat16> = DType::kBFloat16;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::kInt32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::kInt64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::kUInt8;
template <>
inline constexpr DType dtype_of<bool> = DType::kBool;
template <>
inline constexpr DType dtype_of<std::int8_t> = DType::kInt8;
template <>
inline constexpr DType dtype_of<std::int16_t> = DType::kInt16;
template <>
inline constexpr DType dtype_of<std::uint16_t> = DType::kUInt16;
template <>
inline constexpr DType dtype_of<std::uint32_t> = DType::kUInt32;
template <>
inline constexpr DType dtype_of<std::uint64_t> = DType::kUInt64;
template <>
inline constexpr DType dtype_of<Float8E4M3FN> = DType::kFloat8E4M3FN;
template <>
inline constexpr DType dtype_of<Float8E5M2> = DType::kFloat8E5M2;
/// @endcond

}  // namespace tandem
