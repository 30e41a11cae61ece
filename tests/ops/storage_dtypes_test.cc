// Dtypes of storage: elements that are read, moved, printed and cast, but not computed with.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "support/errors.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/control_flow.h"
#include "tandem/creation.h"
#include "tandem/data.h"
#include "tandem/function.h"
#include "tandem/graph.h"
#include "tandem/host_memory.h"
#include "tandem/math.h"
#include "tandem/nn.h"
#include "tandem/random.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem::storage_dtypes_test {
namespace {

using testing::error_of;
using testing::expect_error;
using testing::expect_tensor;
using testing::kStorageTypes;

constexpr DType kAll[] = {float32, float64, float16, bfloat16,      int32,
                          int64,   uint8,   bool_,   int8,          int16,
                          uint16,  uint32,  uint64,  float8_e4m3fn, float8_e5m2};

std::string refused(const std::string& op, DType dtype) {
  return "[" + op + "] expected a dtype to compute with, got " + std::string(name_of(dtype)) +
         ", which is for storage; cast it first";
}

// The smallest and largest elements.
std::pair<double, double> range_of(DType dtype) {
  switch (dtype) {
    case DType::kInt8: return {-128, 127};
    case DType::kInt16: return {-32768, 32767};
    case DType::kUInt16: return {0, 65535};
    case DType::kUInt32: return {0, 4294967295.0};
    case DType::kUInt64: return {0, 0x1p53};  // those that a double holds
    case DType::kFloat8E4M3FN: return {-448, 448};
    default: return {-57344, 57344};
  }
}

TEST(StorageDtypes, AreCreatedAndRead) {
  for (const DType dtype : kStorageTypes) {
    const auto [least, most] = range_of(dtype);
    const Tensor x = constant(std::vector<double>{least, 1, most}, {.dtype = dtype});
    expect_tensor(x, dtype, {3}, {least, 1, most});
    EXPECT_EQ(x[2].item(), most);
    expect_tensor(constant({{1, 2}, {3, 4}}, {.dtype = dtype}), dtype, {2, 2}, {1, 2, 3, 4});
    expect_tensor(zeros({2}, {.dtype = dtype}), dtype, {2}, {0, 0});
    expect_tensor(full({2, 1}, 7, {.dtype = dtype}), dtype, {2, 1}, {7, 7});
    expect_tensor(ones_like(x), dtype, {3}, {1, 1, 1});
    for (const double number : {least * 1.5 - 1, is_integer(dtype) ? 0.5 : 1e9})
      EXPECT_EQ(error_of<InvalidArgumentError>([&, n = number] {
                  static_cast<void>(full({2}, n, {.dtype = dtype}));
                }).find(fmt::format("[Fill] expected a number that {} holds", name_of(dtype))),
                0U);
    expect_error<InvalidArgumentError>(
        [&] { static_cast<void>(constant(std::vector<int>{-99999}, {.dtype = dtype})); },
        fmt::format("[Const] expected a number that {} holds, got -99999", name_of(dtype)));
  }
  const std::vector<std::uint64_t> large = {std::numeric_limits<std::uint64_t>::max(), 0};
  EXPECT_EQ(constant(large, {.dtype = uint64}).to_vector<std::uint64_t>(), large);
  EXPECT_EQ(constant({9007199254740993}, {.dtype = uint64}).item<std::uint64_t>(),
            9007199254740993U);
  const std::vector<std::int16_t> samples = {-3, 2, 32767, 4};
  const Tensor view = from_blob(samples, {2, 2});
  expect_tensor(view, int16, {2, 2}, {-3, 2, 32767, 4});
  EXPECT_EQ(error_of<DTypeError>([&] { static_cast<void>(view.to_vector<std::uint16_t>()); }),
            "[to_vector] the tensor's dtype is int16, asked for as uint16; cast it first");
}

TEST(StorageDtypes, ArePrintedAsNumbers) {
  EXPECT_EQ(constant({-65, 66}, {.dtype = int8}).to_string(), "[-65  66]");
  EXPECT_EQ(constant({65535, 1}, {.dtype = uint16}).to_string(), "[65535     1]");
  EXPECT_EQ(
      constant(std::vector<std::uint64_t>{18446744073709551615U}, {.dtype = uint64}).to_string(),
      "[18446744073709551615]");
}

TEST(StorageDtypes, OfFloatsArePrintedAsFloat32) {
  EXPECT_EQ(constant({0.5, -3.0}, {.dtype = float8_e5m2}).to_string(), "[ 0.5 -3. ]");
}

TEST(StorageDtypes, AreCastFromAndToAllDtypes) {
  for (const DType from : kAll)
    for (const DType to : kAll) {
      if (!is_storage(from) && !is_storage(to)) continue;
      const std::vector<double> numbers =
          from == bool_ || to == bool_ ? std::vector<double>{0, 1} : std::vector<double>{0, 1, 96};
      const auto size = static_cast<std::int64_t>(numbers.size());
      const Tensor x = constant(numbers, {.dtype = from});
      expect_tensor(cast(x, to), to, {size}, numbers);
      const std::function<Tensor(const Tensor&)> traced = function(
          [to](const Tensor& each) { return cast(each, to); }, {.input_signature = {{{-1}, from}}});
      expect_tensor(traced(x), to, {size}, numbers);
    }
  // As C++ and the originals convert: integers keep their low bits, signs extend.
  expect_tensor(cast(constant({-1, 300}), int8), int8, {2}, {-1, 44});
  expect_tensor(cast(constant({-1, 300}, {.dtype = int64}), uint16), uint16, {2}, {65535, 300});
  expect_tensor(cast(constant({-1.9F, 3.9F}), int16), int16, {2}, {-1, 3});
  expect_tensor(cast(constant({-128, 127}, {.dtype = int8}), float32), float32, {2}, {-128, 127});
  expect_tensor(cast(constant({-1}, {.dtype = int8}), uint64), uint64, {1},
                {static_cast<double>(std::numeric_limits<std::uint64_t>::max())});
  expect_tensor(cast(full({1}, 0x1p63, {.dtype = uint64}), float32), float32, {1}, {0x1p63});
  expect_tensor(cast(constant({0, 2}, {.dtype = uint32}), bool_), bool_, {2}, {0, 1});
  expect_tensor(cast(constant({1.06F, -0.3F, 1000.0F}), float8_e5m2), float8_e5m2, {3},
                {1, -0.3125, 1024});
  expect_tensor(cast(constant({1.06F, -0.3F, 1000.0F}), float8_e4m3fn), float8_e4m3fn, {3},
                {1, -0.3125, NAN});
  // More than one thread takes.
  const Tensor many = cast(range(200000), uint32);
  EXPECT_EQ(reduce_sum(cast(many, int64)).item<std::int64_t>(), 19999900000);
  expect_tensor(cast(zeros({0, 3}), int8), int8, {0, 3}, {});
}

TEST(StorageDtypes, AreMoved) {
  for (const DType dtype : kStorageTypes) {
    const Tensor x = constant({{1, 2, 3}, {4, 5, 6}}, {.dtype = dtype});
    const auto moved = [](const Tensor& a) {
      return std::vector<Tensor>{reshape(a, {3, 2}),
                                 transpose(a),
                                 slice(a, {0, 1}, {2, 2}),
                                 a[1],
                                 concat({a, a}, 1),
                                 stack({a, a}),
                                 gather(a, constant({1, 1, 0})),
                                 reverse(a, {1}),
                                 tile(a, {1, 2}),
                                 broadcast_to(expand_dims(a, 0), {2, 2, 3}),
                                 split(a, 3, {.axis = 1})[2],
                                 unstack(a, 1)[0],
                                 identity(a)};
    };
    const std::vector<Tensor> eager = moved(x), wide = moved(cast(x, int64));
    const auto traced = function([&](const Tensor& a) { return moved(a); },
                                 {.input_signature = {{{-1, 3}, dtype}}});
    const std::vector<Tensor> of_trace = traced(x);
    for (std::size_t i = 0; i < eager.size(); ++i) {
      const std::vector<double> expected = testing::values_of(wide[i]);
      expect_tensor(eager[i], dtype, wide[i].shape(), expected);
      expect_tensor(of_trace[i], dtype, wide[i].shape(), expected);
    }
    Variable kept(x, {.trainable = false});
    kept.assign(reverse(x, {0}));
    expect_tensor(kept.value(), dtype, {2, 3}, {4, 5, 6, 1, 2, 3});
    expect_tensor(cond(
                      constant(true), [&] { return x[0]; }, [&] { return x[1]; }),
                  dtype, {3}, {1, 2, 3});
  }
}

TEST(StorageDtypes, AreRefusedWhereElementsAreComputed) {
  for (const DType dtype : kStorageTypes) {
    const Tensor x = ones({2, 2}, {.dtype = dtype});
    const std::pair<const char*, std::function<Tensor()>> uses[] = {
        {"AddV2", [&] { return x + x; }},
        {"Equal", [&] { return equal(x, x); }},
        {"MatMul", [&] { return matmul(x, x); }},
        {"Sum", [&] { return reduce_sum(x); }},
        {"ArgMax", [&] { return argmax(x, 1); }},
        {"Relu", [&] { return nn::relu(x); }},
        {"Neg", [&] { return -x; }},
        {"Range", [&] { return range(0, 3, 1, {.dtype = dtype}); }},
        {"OneHot", [&] {
           return one_hot(constant({0, 1}), 2, {.dtype = dtype});
         }}};
    for (const auto& [op, use] : uses) {
      const std::string error = error_of<InvalidArgumentError>([&, u = use] { u(); });
      EXPECT_NE(error.find(name_of(dtype)), std::string::npos) << op << ": " << error;
      const auto traced = function([u = use](const Tensor&) { return u(); });
      EXPECT_NE(error_of<InvalidArgumentError>([&] { traced(zeros({})); }).find(name_of(dtype)),
                std::string::npos)
          << op;
    }
    EXPECT_EQ(error_of<DTypeError>([&] { static_cast<void>(matmul(x, x)); }),
              refused("MatMul", dtype));
  }
}

TEST(StorageDtypes, FeedSessionsAndDatasets) {
  Graph graph;
  Tensor x, y;
  {
    const GraphScope building(graph);
    x = placeholder(uint16, {-1, 2}, "x");
    y = cast(transpose(x), float32) * 0.5;
  }
  Session session(graph);
  expect_tensor(session.run({{x, constant({{2, 4}, {6, 65535}}, {.dtype = uint16})}}, y), float32,
                {2, 2}, {1, 3, 2, 32767.5});

  auto batches =
      data::Dataset::from_tensor_slices({constant({{1, 2}, {3, 4}, {5, 6}}, {.dtype = int16}),
                                         constant({0, 1, 2}, {.dtype = uint8})})
          .shuffle(3, {.seed = 1})
          .map([](const data::Example& e) {
            return data::Example{cast(e[0], float32) / 2.0, e[0], e[1]};
          })
          .batch(2);
  double sum = 0, halves = 0;
  for (const data::Example& batch : batches) {
    EXPECT_EQ(batch[1].dtype(), int16);
    sum += reduce_sum(cast(batch[1], float32)).item();
    halves += reduce_sum(batch[0]).item();
  }
  EXPECT_EQ(sum, 21);
  EXPECT_EQ(halves, 10.5);
}

TEST(StorageDtypes, HaveNoGradients) {
  const Tensor pixels = constant({{10, 20}}, {.dtype = int8});
  const Variable w(constant({{1.0F}, {2.0F}}));
  GradientTape tape;
  const Tensor loss = reduce_sum(matmul(cast(pixels, float32), w));
  expect_tensor(tape.gradient(loss, w), float32, {2, 1}, {10, 20});
  const Variable v(constant({3.0F}));
  GradientTape other;
  const Tensor through = reduce_sum(cast(cast(v, int16), float32) * v);
  expect_tensor(other.gradient(through, v), float32, {1}, {3});
}

}  // namespace
}  // namespace tandem::storage_dtypes_test
