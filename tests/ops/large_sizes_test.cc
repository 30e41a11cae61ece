// Operations reject sizes whose products overflow.
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "support/errors.h"
#include "tandem/tandem.h"

namespace tandem::large_sizes_test {
namespace {

using testing::error_of;
using testing::expect_parts;

constexpr std::int64_t k2To30 = std::int64_t{1} << 30, k2To32 = std::int64_t{1} << 32,
                       k2To59 = std::int64_t{1} << 59, k2To62 = std::int64_t{1} << 62;

void expect_refused(const char* op, const std::function<void()>& body) {
  const std::string message = error_of<InvalidArgumentError>(body);
  EXPECT_EQ(message.rfind(std::string("[") + op + "] ", 0), 0u) << op << ": " << message;
}

// Overflowing products: 2^62 elements (2^64 bytes), 2^64 elements (0 in 64 bits), 2^62 + 1 times 4.
const std::vector<Shape> kTooLarge = {{k2To62},        {k2To32, k2To32},    {k2To32, k2To30},
                                      {k2To62 + 1, 4}, {k2To32, k2To32, 0}, {0, k2To32, k2To32},
                                      {k2To59, 2}};

TEST(LargeSizes, AreRefusedWhereTensorsAreMade) {
  for (const Shape& shape : kTooLarge) {
    expect_refused("Fill", [&] { zeros(shape); });
    expect_refused("Fill", [&] { full(shape, 1.0, {.dtype = uint8}); });
    expect_refused("RandomStandardNormal", [&] { random::normal(shape); });
    expect_refused("RandomUniformInt", [&] { random::uniform_int(shape, 0, 2, {.dtype = int32}); });
    expect_refused("BroadcastTo", [&] { broadcast_to(ones({}), shape); });
    expect_refused("Const", [&] { constant(1.0, {.shape = shape}); });
    expect_refused("Const", [&] { constant(std::vector<float>{1.0f}, {.shape = shape}); });
  }
  expect_refused("Eye", [] { eye(k2To32, k2To32); });
  expect_refused("LinSpace", [] { linspace(0.0, 1.0, k2To62); });
  expect_refused("RandomPermutation", [] { random::permutation(k2To62); });
  EXPECT_EQ(error_of<InvalidArgumentError>([] {
              zeros({k2To32, k2To32});
            }),
            "[Fill] expected a result of at most 1152921504606846975 elements, got shape "
            "(4294967296, 4294967296) (inputs: none)");
}

TEST(LargeSizes, AreRefusedWhereSizesAreComputed) {
  const Tensor four = ones({4}), rows = zeros({0, k2To32});
  expect_refused("Reshape", [&] { reshape(four, {k2To62 + 1, 4}); });
  expect_refused("Reshape", [&] { reshape(four, {k2To62 + 1, -1}); });
  expect_refused("Reshape", [&] { reshape(rows, {0, k2To32, k2To32}); });
  expect_refused("Reshape", [&] { reshape(four, {k2To32, k2To32, -1}); });
  expect_refused("Tile", [&] { tile(four, {k2To62}); });
  expect_refused("Tile", [&] { tile(four, {k2To62 + 1}); });
  expect_refused("Tile", [&] { tile(rows, {1, k2To32}); });
  expect_refused("Pad", [&] { pad(four, {{k2To62, k2To62}}); });
  expect_refused("Pad", [&] { pad(four, {{2 * (k2To62 - 1), 8}}); });
  expect_refused("Pad", [&] { pad(rows, {{0, 0}, {0, 2 * k2To59}}); });
  expect_refused("OneHot", [&] { one_hot(constant({1, 2}), k2To62); });
  expect_refused("OneHot", [&] { one_hot(zeros({0, k2To32}, {.dtype = int32}), k2To32); });
  expect_refused("SplitV", [&] { split(four, {k2To62, k2To62, k2To62, k2To62, 4}); });
  expect_refused("Unpack", [] { unstack(zeros({k2To32, 0})); });
  expect_refused("GatherV2", [&] { gather(rows, zeros({0, k2To32}, {.dtype = int32}), 0); });
  const Tensor wide = zeros({0, k2To59});
  expect_refused("ConcatV2", [&] { concat({wide, wide, wide}, 1); });
  expect_refused("AddV2", [] { add(zeros({0, k2To32, 1}), zeros({0, 1, k2To32})); });
  expect_refused("BatchMatMulV2", [] { matmul(zeros({0, k2To32, 1}), zeros({0, 1, k2To32})); });
  expect_parts(error_of<InvalidArgumentError>([&] { tile(four, {k2To62}); }),
               {"[Tile]", "4 * 4611686018427387904", "(inputs: (4,))"});
}

TEST(LargeSizes, AreRefusedByWindows) {
  const Tensor x = ones({1, 4, 4, 1}), kernel = ones({2, 2, 1, 1});
  expect_refused("Conv2D", [&] { nn::conv2d(x, kernel, {}, {.dilations = k2To62 + 1}); });
  expect_refused("Conv2D", [&] {
    nn::conv2d(x, kernel, {}, {.strides = 2 * (k2To62 - 1), .padding = nn::Padding::kSame});
  });
  expect_refused("MaxPool", [&] { nn::max_pool2d(x, {.window = k2To62}); });
}

TEST(LargeSizes, AreAllowedInEmptyTensors) {
  EXPECT_EQ(zeros({k2To59, 0}).shape(), Shape({k2To59, 0}));
  EXPECT_EQ(concat({zeros({0, k2To32}), zeros({0, k2To32})}, 1).shape(), Shape({0, 2 * k2To32}));
  // Below the limit, memory runs out.
  EXPECT_THROW(zeros({k2To59}), ResourceExhaustedError);
}

TEST(LargeSizes, ProgramsOfMoreThanCanBeAddressedAreRefused) {
  const auto f = function([](const Tensor& x) {
    std::vector<Tensor> parts;
    for (int i = 0; i < 9; ++i) parts.push_back(reduce_sum(random::normal({k2To59}) + x));
    return add_n(parts);
  });
  EXPECT_EQ(error_of<ResourceExhaustedError>([&] { f(ones({})); }),
            "[Graph] the values of a program have more bytes than can be addressed; one has shape "
            "(576460752303423488,) and dtype float32");
}

TEST(LargeSizes, AreRefusedIfNegative) {
  expect_refused("Fill", [] { zeros({-1}); });
  expect_refused("Shape",
                 [] { zeros({-k2To62}); });  // as a size that is computed from an unknown one
  expect_refused("RandomStandardNormal", [] { random::normal({2, -3}); });
  expect_refused("BroadcastTo", [] { broadcast_to(ones({}), {-2}); });
  expect_refused("Tile", [] { tile(ones({2}), {-1}); });
  expect_refused("Pad", [] { pad(ones({2}), {{-1, 0}}); });
  expect_refused("Reshape", [] { reshape(ones({4}), {-2, -2}); });
}

}  // namespace
}  // namespace tandem::large_sizes_test
