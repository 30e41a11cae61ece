#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "core/parallel.h"
#include "ops/nn_reference.h"
#include "support/expects.h"
#include "support/thread_counts.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::matmul_test {
namespace {

using namespace testing;

// The matrix product by definition, of the operands as they are stored.
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b,
                            std::int64_t m, std::int64_t n, std::int64_t k,
                            const MatMulOptions& options) {
  std::vector<double> c;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += a[static_cast<std::size_t>(options.transpose_a ? l * m + i : i * k + l)] *
               b[static_cast<std::size_t>(options.transpose_b ? j * k + l : l * n + j)];
      c.push_back(sum);
    }
  return c;
}

const MatMulOptions kTransposes[] = {
    {}, {.transpose_a = true}, {.transpose_b = true}, {.transpose_a = true, .transpose_b = true}};

Shape stored(std::int64_t rows, std::int64_t columns, bool transposed) {
  return transposed ? Shape{columns, rows} : Shape{rows, columns};
}

TEST(MatMul, AgreesWithTheDefinitionInEveryDtypeAndTranspose) {
  struct Size {
    std::int64_t m, n, k;
  };
  for (const Size size : {Size{1, 1, 1}, Size{2, 3, 4}, Size{17, 9, 33}, Size{5, 1, 300},
                          Size{1, 70, 65}, Size{64, 48, 96}, Size{33, 129, 65}})
    for (const MatMulOptions& options : kTransposes) {
      SCOPED_TRACE(::testing::Message() << size.m << "x" << size.n << "x" << size.k << " "
                                        << options.transpose_a << options.transpose_b);
      const Tensor a = random_tensor(stored(size.m, size.k, options.transpose_a), 1, -1, 1);
      const Tensor b = random_tensor(stored(size.k, size.n, options.transpose_b), 2, -1, 1);
      expect_tensor(matmul(a, b, options), float64, {size.m, size.n},
                    product(values_of(a), values_of(b), size.m, size.n, size.k, options), 1e-12);
      const auto f = [&](const std::vector<Tensor>& in) { return matmul(in[0], in[1], options); };
      expect_like_float64(f, {a, b}, float32, 1e-5);
      expect_like_float64(f, {a, b}, float16, 4e-3);
      expect_like_float64(f, {a, b}, bfloat16, 3e-2);
    }
}

TEST(MatMul, BroadcastsLeadingAxes) {
  struct Case {
    Shape a, b, result;
  };
  const Case cases[] = {{{3, 4, 5}, {5, 6}, {3, 4, 6}},
                        {{4, 5}, {3, 5, 6}, {3, 4, 6}},
                        {{3, 4, 5}, {3, 5, 6}, {3, 4, 6}},
                        {{2, 1, 4, 5}, {3, 5, 6}, {2, 3, 4, 6}},
                        {{2, 3, 4, 5}, {2, 1, 5, 6}, {2, 3, 4, 6}},
                        {{2, 3, 1, 2, 4, 5}, {1, 3, 2, 1, 5, 6}, {2, 3, 2, 2, 4, 6}}};
  for (const Case& c : cases)
    for (const DType dtype : {float32, float64}) {
      SCOPED_TRACE(c.a.to_string() + c.b.to_string() + std::string(name_of(dtype)));
      const Tensor a = random_tensor(c.a, 3, -1, 1, dtype), b = random_tensor(c.b, 4, -1, 1, dtype);
      const std::vector<double> in_a = values_of(a), in_b = values_of(b);
      std::vector<double> expected;
      const int batch_rank = c.result.rank() - 2;
      const std::int64_t batch = c.result.num_elements() / 24;
      for (std::int64_t i = 0; i < batch; ++i) {
        std::int64_t rest = i, at_a = 0, at_b = 0, step_a = 20, step_b = 30;
        for (int axis = batch_rank - 1; axis >= 0; --axis) {
          const std::int64_t position = rest % c.result[axis];
          rest /= c.result[axis];
          const int axis_a = axis - (c.result.rank() - c.a.rank()),
                    axis_b = axis - (c.result.rank() - c.b.rank());
          if (axis_a >= 0) {
            at_a += c.a[axis_a] == 1 ? 0 : position * step_a;
            step_a *= c.a[axis_a];
          }
          if (axis_b >= 0) {
            at_b += c.b[axis_b] == 1 ? 0 : position * step_b;
            step_b *= c.b[axis_b];
          }
        }
        const auto one = product({in_a.begin() + at_a, in_a.begin() + at_a + 20},
                                 {in_b.begin() + at_b, in_b.begin() + at_b + 30}, 4, 6, 5, {});
        expected.insert(expected.end(), one.begin(), one.end());
      }
      expect_tensor(matmul(a, b), dtype, c.result, expected, dtype == float32 ? 1e-6 : 1e-13);
    }
}

TEST(MatMul, LargeBatchesOfFloat32AgreeWithFloat64) {
  const auto f = [](const std::vector<Tensor>& in) {
    return matmul(in[0], in[1], {.transpose_b = true});
  };
  expect_like_float64(
      f, {random_tensor({3, 1, 40, 33}, 5, -1, 1), random_tensor({2, 50, 33}, 6, -1, 1)}, float32,
      1e-5);
}

TEST(MatMul, HasRightGradients) {
  for (const MatMulOptions& options : kTransposes) {
    const auto f = [&](const std::vector<Tensor>& in) { return matmul(in[0], in[1], options); };
    const Tensor a = random_tensor(stored(3, 5, options.transpose_a), 7);
    const Tensor b = random_tensor(stored(5, 4, options.transpose_b), 8);
    expect_gradients(f, {a, b});
    expect_second_order(f, {a, b});
  }
  const auto f = [](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); };
  expect_gradients(f, {random_tensor({2, 1, 3, 2}, 9), random_tensor({3, 2, 2}, 10)});
  expect_gradients(f, {random_tensor({3, 2}, 9), random_tensor({2, 2, 2}, 10)});
}

TEST(MatMul, HandlesEmptySizes) {
  for (const DType dtype : testing::kFloatingTypes) {
    const CreationOptions type{.dtype = dtype};
    expect_tensor(matmul(ones({2, 0}, type), ones({0, 3}, type)), dtype, {2, 3},
                  std::vector<double>(6, 0.0));
    expect_tensor(matmul(ones({0, 4}, type), ones({4, 3}, type)), dtype, {0, 3}, {});
    expect_tensor(matmul(ones({0, 2, 4}, type), ones({4, 3}, type)), dtype, {0, 2, 3}, {});
  }
}

TEST(MatMul, SameTeamSameBits) {
  const Tensor a = random_tensor({130, 77}, 11, -1, 1, float32),
               b = random_tensor({77, 95}, 12, -1, 1, float32);
  const std::vector<float> first = matmul(a, b).to_vector<float>();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(matmul(a, b).to_vector<float>(), first);
}

// Long sums, as in a weight's gradient over a large batch, are divided in a way that depends only
// on the shape.
TEST(MatMul, TheSameBitsWithAnyTeam) {
  // Without AVX-512, oneDNN rounds by where the parts of its threads end.
  TANDEM_REQUIRE(__builtin_cpu_supports("avx512f"), "avx512");
  const std::array<std::int64_t, 3> sizes[] = {{32, 32, 4096},   {10, 84, 5000},  {17, 1, 20001},
                                               {784, 128, 2048}, {64, 700, 3000}, {1, 1, 9000},
                                               {150, 701, 1500}};
  // With AMX it divides the sums of bfloat16 by its threads.
  std::vector<DType> dtypes = {float32};
  if (!__builtin_cpu_supports("amx-bf16") || std::getenv("ONEDNN_MAX_CPU_ISA"))
    dtypes.push_back(bfloat16);
  expect_same_bits_with_any_team([&] {
    std::vector<double> products;
    for (const DType dtype : dtypes)
      for (const auto& [m, n, k] : sizes)
        for (const MatMulOptions& options : {MatMulOptions{},
                                             {.transpose_b = true},
                                             {.transpose_a = true},
                                             {.transpose_a = true, .transpose_b = true}}) {
          const Shape a = options.transpose_a ? Shape{k, m} : Shape{m, k};
          const Shape b = options.transpose_b ? Shape{n, k} : Shape{k, n};
          const std::vector<double> product = values_of(matmul(
              random_tensor(a, 1, -1, 1, dtype), random_tensor(b, 2, -1, 1, dtype), options));
          products.insert(products.end(), product.begin(), product.end());
        }
    return products;
  });
}

TEST(MatMul, LongSumsAreLikeFloat64) {
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{20, 30, 1500},
                                {300, 250, 1100},
                                {250, 301, 1100},
                                {7, 5, 1024}})
    for (const bool transpose_b : {false, true})
      for (const auto& [dtype, tolerance] :
           {std::pair{float32, 1e-4}, std::pair{float16, 0.06}, std::pair{bfloat16, 0.5}})
        expect_like_float64(
            [transpose_b](const std::vector<Tensor>& in) {
              return matmul(in[0], in[1], {.transpose_a = true, .transpose_b = transpose_b});
            },
            {random_tensor({k, m}, 1), random_tensor(transpose_b ? Shape{n, k} : Shape{k, n}, 2)},
            dtype, tolerance);
}

// A row times a matrix has a loop of its own.
TEST(MatMul, RowsAgreeWithFloat64) {
  for (const auto& [n, k] : {std::array<std::int64_t, 2>{16, 64},
                             {17, 301},
                             {300, 5},
                             {1031, 1022},
                             {4000, 3},
                             {15, 1000},
                             {700, 1}}) {
    const Tensor a = random_tensor({1, k}, 1, -1, 1), b = random_tensor({k, n}, 2, -1, 1),
                 bias = random_tensor({n}, 3, -1, 1);
    expect_like_float64([](const auto& in) { return matmul(in[0], in[1]); }, {a, b}, float32, 1e-4);
    expect_like_float64(
        [](const auto& in) { return nn::dense(in[0], in[1], in[2], nn::Activation::kTanh); },
        {a, b, bias}, float32, 1e-4);
  }
  // A zero hides no NaN.
  const Tensor nan =
      matmul(zeros({1, 2}), concat({full({1, 600}, std::nan("")), ones({1, 600})}, 0));
  for (const float value : nan.to_vector<float>()) EXPECT_TRUE(std::isnan(value));
}

TEST(MatMul, RowsHaveTheSameBitsWithAnyTeam) {
  expect_same_bits_with_any_team([] {
    std::vector<double> products;
    for (const auto& [n, k] : {std::array<std::int64_t, 2>{1000, 1001}, {517, 2000}, {9001, 70}})
      for (const double value : values_of(matmul(random_tensor({1, k}, 1, -1, 1, float32),
                                                 random_tensor({k, n}, 2, -1, 1, float32))))
        products.push_back(value);
    return products;
  });
}

// Right operands of a million numbers or more are packed.
TEST(MatMul, LargeRightOperandsAgreeWithFloat64) {
  const std::vector<Tensor> inputs = {random_tensor({130, 1024}, 1, -1, 1),
                                      random_tensor({1024, 1100}, 2, -1, 1),
                                      random_tensor({1100}, 3, -1, 1)};
  const auto product = [](const std::vector<Tensor>& in) { return matmul(in[0], in[1]); };
  const auto layer = [](const std::vector<Tensor>& in) { return nn::dense(in[0], in[1], in[2]); };
  expect_like_float64(product, {inputs[0], inputs[1]}, float32, 1e-4);
  expect_like_float64(layer, inputs, float32, 1e-4);
  const auto transposed = [](const std::vector<Tensor>& in) {
    return matmul(in[0], in[1], {.transpose_a = true});
  };
  expect_like_float64(transposed,
                      {random_tensor({1100, 261}, 1, -1, 1), random_tensor({1100, 1030}, 2, -1, 1)},
                      float32, 1e-4);
}

TEST(MatMul, RunsFromSeveralThreadsAtOnce) {
  const Tensor a = random_tensor({65, 130}, 13, -1, 1, float32),
               b = random_tensor({130, 67}, 14, -1, 1, float32);
  const std::vector<double> expected = values_of(matmul(cast(a, float64), cast(b, float64)));
  std::vector<std::thread> threads;
  std::vector<std::vector<double>> results(4);
  for (std::size_t i = 0; i < results.size(); ++i)
    threads.emplace_back([&, i] {
      ThreadBudget budget(1);
      for (int repeat = 0; repeat < 50; ++repeat) results[i] = values_of(matmul(a, b));
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results)
    for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(result[i], expected[i], 1e-4);
}

TEST(MatMul, ExplainsBadInput) {
  expect_error<InvalidArgumentError>(
      [] {
        matmul(ones({2, 3}), ones({4, 5}));
      },
      "[MatMul] expected equal inner sizes, got 3 and 4 (shapes (2, 3) and (4, 5))");
  expect_error<InvalidArgumentError>(
      [] {
        matmul(ones({2, 3}), ones({2, 3}), {.transpose_a = false, .transpose_b = false});
      },
      "[MatMul] expected equal inner sizes");
  expect_error<InvalidArgumentError>(
      [] {
        matmul(ones(Shape::scalar()), ones({3, 2}));
      },
      "[MatMul] expected tensors of rank 2 or more, got shapes () and (3, 2)");
  expect_error<InvalidArgumentError>(
      [] {
        matmul(ones({2, 2, 3}), ones({3, 3, 2}));
      },
      "[BatchMatMulV2] expected leading axes that broadcast");
  expect_error<InvalidArgumentError>(
      [] {
        matmul(ones({2, 3}), ones({3, 2}, {.dtype = float64}));
      },
      "expected two tensors of one floating dtype, got float32 and float64");
  expect_error<InvalidArgumentError>(
      [] {
        matmul(ones({2, 3}, {.dtype = int32}), ones({3, 2}, {.dtype = int32}));
      },
      "got int32 and int32");
}

}  // namespace
}  // namespace tandem::matmul_test
