#include "tandem/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>

#include "support/errors.h"
#include "tandem/errors.h"

namespace tandem::dtype_test {
namespace {

TEST(DType, NamesAndSizes) {
  const std::pair<DType, std::pair<std::string, std::size_t>> table[] = {
      {float32, {"float32", 4}},
      {float64, {"float64", 8}},
      {float16, {"float16", 2}},
      {bfloat16, {"bfloat16", 2}},
      {int32, {"int32", 4}},
      {int64, {"int64", 8}},
      {uint8, {"uint8", 1}},
      {bool_, {"bool", 1}},
      {int8, {"int8", 1}},
      {int16, {"int16", 2}},
      {uint16, {"uint16", 2}},
      {uint32, {"uint32", 4}},
      {uint64, {"uint64", 8}},
      {float8_e4m3fn, {"float8_e4m3fn", 1}},
      {float8_e5m2, {"float8_e5m2", 1}}};
  EXPECT_EQ(std::size(table), static_cast<std::size_t>(last_value(DType())) + 1);
  for (const auto& [dtype, expected] : table) {
    EXPECT_EQ(name_of(dtype), expected.first);
    EXPECT_EQ(size_of(dtype), expected.second);
    EXPECT_EQ(is_storage(dtype), dtype > bool_);
    EXPECT_EQ(is_integer(dtype), expected.first.find("int") != std::string::npos);
    EXPECT_EQ(is_floating(dtype), dtype <= bfloat16);
    EXPECT_EQ(dtype_from_name(expected.first), dtype);
    std::ostringstream out;
    out << dtype;
    EXPECT_EQ(out.str(), expected.first);
  }
}

TEST(DType, UnknownNameListsTheTypesThereAre) {
  EXPECT_EQ(testing::error_of<InvalidArgumentError>([&] { dtype_from_name("float8"); }),
            "[DType] expected one of float32, float64, float16, bfloat16, int32, int64, uint8, "
            "bool, int8, int16, uint16, uint32, uint64, float8_e4m3fn, float8_e5m2, got 'float8'");
}

// Every code, and numbers between two codes, against the formats' definition in double.
template <class T>
void expect_format(int mantissa_bits, int bias, int largest, bool infinite) {
  const auto number = [&](int code) {
    const int exponent = code >> mantissa_bits, mantissa = code & ((1 << mantissa_bits) - 1);
    const int scale = (exponent == 0 ? 1 : exponent) - bias - mantissa_bits;
    return std::ldexp((exponent == 0 ? 0 : 1 << mantissa_bits) + mantissa, scale);
  };
  const auto of_bits = [](int bits) {
    T element;
    element.bits = static_cast<std::uint8_t>(bits);
    return element;
  };
  for (const int sign : {0, 0x80})
    for (int code = 0; code <= largest; ++code) {
      const double value = sign != 0 ? -number(code) : number(code);
      EXPECT_EQ(static_cast<double>(of_bits(sign | code)), value);
      EXPECT_EQ(T(static_cast<float>(value)).bits, sign | code);
      const double next = sign != 0 ? -number(code + 1) : number(code + 1);
      const auto middle = static_cast<float>((value + next) / 2);
      const int after = code < largest ? code + 1 : infinite ? 0x7c : 0x7f;
      EXPECT_EQ(T(middle).bits, sign | (code % 2 == 0 ? code : after)) << value;
      EXPECT_EQ(T(std::nextafter(middle, static_cast<float>(next))).bits, sign | after) << value;
      EXPECT_EQ(T(std::nextafter(middle, static_cast<float>(value))).bits, sign | code) << value;
    }
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(T(infinity).bits, infinite ? 0x7c : 0x7f);
  EXPECT_EQ(T(-1e30F).bits, infinite ? 0xfc : 0xff);
  EXPECT_TRUE(std::isnan(static_cast<float>(of_bits(0x7f))));
  EXPECT_TRUE(std::isnan(static_cast<float>(T(std::nanf("")))));
  if (infinite) {
    EXPECT_EQ(static_cast<float>(of_bits(0xfc)), -infinity);
    EXPECT_TRUE(std::isnan(static_cast<float>(of_bits(0x7d))));
  }
}

TEST(DType, FloatsOfEightBitsRoundToNearest) {
  expect_format<Float8E4M3FN>(3, 7, 0x7e, false);
  expect_format<Float8E5M2>(2, 15, 0x7b, true);
}

}  // namespace
}  // namespace tandem::dtype_test
