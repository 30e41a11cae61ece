// Creates and inspects tensors in tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tandem/creation.h"
#include "tandem/errors.h"
#include "tandem/tensor.h"

namespace tandem::testing {

// The elements of a tensor of any dtype as double, converted on the host.
inline std::vector<double> values_of(const Tensor& tensor) {
  const auto widened = []<class T>(const std::vector<T>& elements) {
    std::vector<double> values;
    for (const T element : elements) values.push_back(static_cast<double>(element));
    return values;
  };
  switch (tensor.dtype()) {
    case DType::kFloat32: return widened(tensor.to_vector<float>());
    case DType::kFloat64: return widened(tensor.to_vector<double>());
    case DType::kFloat16: return widened(tensor.to_vector<Half>());
    case DType::kBFloat16: return widened(tensor.to_vector<BFloat16>());
    case DType::kInt32: return widened(tensor.to_vector<std::int32_t>());
    case DType::kInt64: return widened(tensor.to_vector<std::int64_t>());
    case DType::kUInt8: return widened(tensor.to_vector<std::uint8_t>());
    case DType::kBool: return widened(tensor.to_vector<bool>());
    case DType::kInt8: return widened(tensor.to_vector<std::int8_t>());
    case DType::kInt16: return widened(tensor.to_vector<std::int16_t>());
    case DType::kUInt16: return widened(tensor.to_vector<std::uint16_t>());
    case DType::kUInt32: return widened(tensor.to_vector<std::uint32_t>());
    case DType::kUInt64: return widened(tensor.to_vector<std::uint64_t>());
    case DType::kFloat8E4M3FN: return widened(tensor.to_vector<Float8E4M3FN>());
    case DType::kFloat8E5M2: return widened(tensor.to_vector<Float8E5M2>());
  }
  return {};
}

// `count` random numbers in [low, high); the same seed gives the same numbers.
inline std::vector<double> random_values(std::int64_t count, std::uint32_t seed = 1,
                                         double low = -2.0, double high = 2.0) {
  std::mt19937 generator(seed);
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(low + (high - low) * static_cast<double>(generator()) * 0x1p-32);
  return values;
}

inline Tensor random_tensor(const Shape& shape, std::uint32_t seed = 1, double low = -2.0,
                            double high = 2.0, DType dtype = float64) {
  return constant(random_values(shape.num_elements(), seed, low, high),
                  {.dtype = dtype, .shape = shape});
}

// One unit of the dtype's precision relative to 1; 0 for integers and bool.
inline double epsilon_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 0x1p-23;
    case DType::kFloat64: return 0x1p-52;
    case DType::kFloat16: return 0x1p-10;
    case DType::kBFloat16: return 0x1p-7;
    default: return 0.0;
  }
}

// Expects shape, dtype and elements, each within `tolerance` * max(1, |expected|).
inline void expect_tensor(const Tensor& actual, DType dtype, const Shape& shape,
                          const std::vector<double>& expected, double tolerance = 0.0) {
  ASSERT_EQ(actual.dtype(), dtype);
  ASSERT_EQ(actual.shape(), shape);
  const std::vector<double> values = values_of(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i]))
      EXPECT_TRUE(std::isnan(values[i])) << "element " << i << " is " << values[i];
    else if (std::isinf(expected[i]) || tolerance == 0.0)
      EXPECT_EQ(values[i], expected[i]) << "element " << i;
    else
      EXPECT_NEAR(values[i], expected[i], tolerance * std::fmax(1.0, std::fabs(expected[i])))
          << "element " << i;
  }
}

// Expects `call` to throw an E whose message contains `text`.
template <class E, class F>
void expect_error(const F& call, const std::string& text) {
  try {
    call();
    ADD_FAILURE() << "expected an error with \"" << text << '"';
  } catch (const E& error) {
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected an error of another type, got " << error.what();
  }
}

inline constexpr DType kStorageTypes[] = {int8,   int16,         uint16,     uint32,
                                          uint64, float8_e4m3fn, float8_e5m2};
inline constexpr DType kFloatingTypes[] = {float32, float64, float16, bfloat16};

}  // namespace tandem::testing
