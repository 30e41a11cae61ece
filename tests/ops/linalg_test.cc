// Linear algebra: products that give the matrix again, definitions, and numerical gradients.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "core/module.h"
#include "support/expects.h"
#include "support/gradient_check.h"
#include "support/tensors.h"
#include "support/thread_counts.h"
#include "tandem/tandem.h"

namespace tandem::linalg_test {
namespace {

using namespace testing;
using Tensors = std::vector<Tensor>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor adjoint(const Tensor& x) {
  Dims order;
  for (int i = 0; i < x.rank(); ++i) order.push_back(i);
  std::swap(order[x.rank() - 1], order[x.rank() - 2]);
  return transpose(x, order);
}

Tensor identity_of(std::int64_t n, DType dtype = float64) { return eye(n, -1, {.dtype = dtype}); }

// Square and far from singular.
Tensor regular(const Shape& shape, std::uint32_t seed = 1, DType dtype = float64) {
  const std::int64_t n = shape.dim(-1);
  return random_tensor(shape, seed, -1, 1, dtype) +
         identity_of(n, dtype) * (3.0 + 0.25 * static_cast<double>(n));
}

Tensor positive(const Shape& shape, DType dtype = float64) {
  const Tensor x = random_tensor(shape, 7, -1, 1, dtype);
  const std::int64_t n = shape.dim(-1);
  return matmul(x, adjoint(x)) / (1.0 + static_cast<double>(n)) + identity_of(n, dtype);
}

Tensor symmetric(const Tensor& x) { return x + adjoint(x); }

void expect_close(const Tensor& got, const Tensor& expected) {
  ASSERT_EQ(got.shape(), expected.shape());
  ASSERT_EQ(got.dtype(), expected.dtype());
  const double tolerance = got.dtype() == float64 ? 1e-11 : 1e-4;
  expect_tensor(got, expected.dtype(), expected.shape(), values_of(expected), tolerance);
}

// The gradients of first and second order.
void expect_both_orders(const TensorFunction& f, const Tensors& inputs) {
  expect_gradients(f, inputs);
  expect_second_order(f, inputs, {.tolerance = 1e-5});
}

class Linalg : public ::testing::Test {
 protected:
  void SetUp() override { TANDEM_REQUIRE(can_load(kLapackModule), "lapack"); }
};

const Shape kSquares[] = {{1, 1}, {4, 4}, {2, 3, 5, 5}, {0, 3, 3}, {2, 0, 0}, {70, 70}};

TEST_F(Linalg, SolvesSystemsOfEquations) {
  for (const DType dtype : {float32, float64})
    for (const Shape& shape : kSquares) {
      SCOPED_TRACE(shape.to_string());
      const Tensor a = regular(shape, 1, dtype);
      Dims right = shape.words();
      right[shape.rank() - 1] = 3;
      const Tensor b = random_tensor(Shape(right), 2, -1, 1, dtype), l = tril(a), u = triu(a);
      expect_close(matmul(a, linalg::solve(a, b)), b);
      expect_close(matmul(linalg::solve(a, adjoint(b), false), a), adjoint(b));
      expect_close(matmul(a, linalg::inv(a)),
                   broadcast_to(identity_of(shape.dim(-1), dtype), shape));
      expect_close(matmul(l, linalg::solve_triangular(a, b)), b);
      expect_close(matmul(u, linalg::solve_triangular(a, b, {.upper = true})), b);
      expect_close(
          matmul(linalg::solve_triangular(a, adjoint(b), {.upper = true, .left = false}), u),
          adjoint(b));
      const Tensor unit = identity_of(shape.dim(-1), dtype), below = (l - l * unit) * 0.1;
      expect_close(
          matmul(below + unit, linalg::solve_triangular(a * 0.1, b, {.unitriangular = true})), b);
      const Tensor p = positive(shape, dtype);
      expect_close(matmul(p, linalg::cholesky_solve(linalg::cholesky(p), b)), b);
      expect_close(matmul(p, linalg::cholesky_solve(linalg::cholesky(p, true), b, true)), b);
    }
}

TEST_F(Linalg, SolvesForVectorsAndBroadcastsBatches) {
  const Tensor a = regular({2, 3, 3}), v = random_tensor({3}, 4), batch = random_tensor({2, 3}, 5);
  for (std::int64_t i = 0; i < 2; ++i) {
    expect_close(matmul(a[i], linalg::solve(a, v)[i]), v);
    expect_close(matmul(a[i], linalg::solve(a, batch)[i]), batch[i]);
    expect_close(matmul(linalg::solve(a[i], v, false), a[i]), v);
  }
  const Tensor many = random_tensor({4, 1, 3, 2}, 6);
  expect_close(matmul(a, linalg::solve(a, many)), broadcast_to(many, {4, 2, 3, 2}));
}

TEST_F(Linalg, FactorisesMatrices) {
  for (const DType dtype : {float32, float64}) {
    for (const Shape& shape : kSquares) {
      SCOPED_TRACE(shape.to_string());
      const Tensor p = positive(shape, dtype), l = linalg::cholesky(p);
      expect_close(matmul(l, adjoint(l)), p);
      expect_close(l, tril(l));
      expect_close(linalg::cholesky(p, true), adjoint(l));
      // The lower triangle alone is read.
      expect_close(linalg::cholesky(tril(p)), l);
      const Tensor s = symmetric(random_tensor(shape, 3, -1, 1, dtype));
      const auto [values, vectors] = linalg::eigh(tril(s));
      expect_close(matmul(vectors * expand_dims(values, -2), adjoint(vectors)), s);
      expect_close(sort(values, -1).values, values);
      expect_close(linalg::eigvalsh(s), values);
    }
    for (const Shape& shape :
         {Shape{1, 1}, Shape{4, 3}, Shape{3, 4}, Shape{2, 5, 2}, Shape{2, 2, 3, 7}, Shape{0, 2, 3},
          Shape{3, 0}, Shape{0, 3}, Shape{90, 40}}) {
      SCOPED_TRACE(shape.to_string());
      const Tensor x = random_tensor(shape, 9, -1, 1, dtype);
      const auto [q, r] = linalg::qr(x);
      const std::int64_t k = std::min(shape.dim(-1).value(), shape.dim(-2).value());
      expect_close(matmul(q, r), x);
      expect_close(r, triu(r));
      const Tensor unit = matmul(adjoint(q), q);
      expect_close(unit, broadcast_to(identity_of(k, dtype), unit.shape()));
      const auto [u, s, vh] = linalg::svd(x);
      expect_close(matmul(u * expand_dims(s, -2), vh), x);
      expect_close(sort(s, -1, true).values, s);
      for (const Tensor& rows : {adjoint(u), vh})
        expect_close(matmul(rows, adjoint(rows)),
                     broadcast_to(identity_of(k, dtype), unit.shape()));
      expect_close(linalg::svdvals(x), s);
      const Tensor p = linalg::pinv(x);
      expect_close(matmul(x, matmul(p, x)), x);
      expect_close(matmul(p, matmul(x, p)), p);
      expect_close(adjoint(matmul(x, p)), matmul(x, p));
    }
  }
}

TEST_F(Linalg, HasDeterminants) {
  expect_tensor(linalg::det(constant({{0.0, 2.0}, {3.0, 0.0}})), float32, Shape::scalar(), {-6.0});
  const Tensor x = regular({2, 3, 3}, 2);
  const std::vector<double> v = values_of(x);
  std::vector<double> expected;
  for (std::size_t i = 0; i < 18; i += 9)
    expected.push_back(v[i] * (v[i + 4] * v[i + 8] - v[i + 5] * v[i + 7]) -
                       v[i + 1] * (v[i + 3] * v[i + 8] - v[i + 5] * v[i + 6]) +
                       v[i + 2] * (v[i + 3] * v[i + 7] - v[i + 4] * v[i + 6]));
  expect_tensor(linalg::det(x), float64, {2}, expected, 1e-12);
  const auto [sign, logarithm] = linalg::slogdet(-x);
  expect_tensor(sign, float64, {2}, {-1.0, -1.0});
  expect_tensor(logarithm, float64, {2}, {std::log(expected[0]), std::log(expected[1])}, 1e-12);
  const auto singular = linalg::slogdet(ones({3, 3}));
  expect_tensor(singular.sign, float32, Shape::scalar(), {0.0});
  expect_tensor(singular.logabsdet, float32, Shape::scalar(), {-kInfinity});
  expect_tensor(linalg::det(ones({2, 2, 2})), float32, {2}, {0.0, 0.0});
  expect_tensor(linalg::det(ones({2, 0, 0})), float32, {2}, {1.0, 1.0});
  // The logarithm where the determinant is too large.
  expect_tensor(linalg::slogdet(identity_of(200) * 1e10).logabsdet, float64, Shape::scalar(),
                {2000.0 * std::log(10.0)}, 1e-9);
}

TEST_F(Linalg, HasRanksNormsAndPowers) {
  const Tensor x = random_tensor({2, 4, 3}, 3), low = matmul(x, adjoint(x));
  expect_tensor(linalg::matrix_rank(x), int64, {2}, {3, 3});
  expect_tensor(linalg::matrix_rank(low), int64, {2}, {3, 3});
  expect_tensor(linalg::matrix_rank(zeros({2, 2})), int64, Shape::scalar(), {0});
  expect_tensor(linalg::matrix_rank(zeros({2, 0})), int64, Shape::scalar(), {0});
  const Tensor steps = diag_embed(constant({1.0, 0.1, 0.01}));
  expect_tensor(linalg::matrix_rank(steps, 0.05), int64, Shape::scalar(), {2});
  expect_tensor(reduce_max(linalg::pinv(steps, 0.05)), float32, Shape::scalar(), {10.0}, 1e-5);

  const Tensor y = constant({{3.0, 0.0}, {0.0, -4.0}}, {.dtype = float64});
  const auto norm_is = [&](const linalg::MatrixNormOrder& order, double expected) {
    expect_tensor(linalg::matrix_norm(y, order), float64, Shape::scalar(), {expected}, 1e-12);
  };
  norm_is("fro", 5.0);
  norm_is("nuc", 7.0);
  norm_is(2, 4.0);
  norm_is(-2, 3.0);
  const Tensor z = constant({{1.0, -2.0}, {3.0, 4.0}});
  for (const auto& [order, expected] :
       {std::pair(1.0, 6.0), {-1.0, 4.0}, {kInfinity, 7.0}, {-kInfinity, 3.0}})
    expect_tensor(linalg::matrix_norm(stack({z, z}), order, true), float32, {2, 1, 1},
                  {expected, expected});
  expect_tensor(linalg::matrix_norm(z), float32, Shape::scalar(), {std::sqrt(30.0)}, 1e-6);

  const Tensor a = regular({2, 3, 3});
  expect_close(linalg::matrix_power(a, 5), matmul(a, matmul(matmul(a, a), matmul(a, a))));
  expect_close(linalg::matrix_power(a, -2), matmul(linalg::inv(a), linalg::inv(a)));
  expect_close(linalg::matrix_power(a, 1), a);
  expect_close(linalg::matrix_power(a, 0), broadcast_to(identity_of(3), {2, 3, 3}));
}

TEST_F(Linalg, FindsLeastSquares) {
  const Tensor a = random_tensor({5, 3}, 1), b = random_tensor({5, 2}, 2);
  // The residuals are orthogonal to the columns.
  const Tensor x = linalg::lstsq(a, b);
  expect_close(matmul(adjoint(a), matmul(a, x) - b), zeros({3, 2}, {.dtype = float64}));
  const Tensor one = linalg::lstsq(a, b(Slice{}, 0));
  expect_close(one, x(Slice{}, 0));
  // The shortest of all solutions has no part that the matrix does not see.
  const Tensor wide = adjoint(a), shortest = linalg::lstsq(wide, b(Slice{0, 3}));
  expect_close(matmul(wide, shortest), b(Slice{0, 3}));
  expect_close(matmul(linalg::pinv(wide), matmul(wide, shortest)), shortest);
}

TEST_F(Linalg, HasRightGradientsOfBothOrders) {
  const Tensor a = regular({2, 3, 3}), b = random_tensor({2, 3, 2}, 2), v = random_tensor({3}, 3);
  expect_both_orders([](const Tensors& in) { return linalg::solve(in[0], in[1]); }, {a, b});
  expect_both_orders([](const Tensors& in) { return linalg::solve(in[0], in[1], false); },
                     {a, adjoint(b)});
  expect_gradients([](const Tensors& in) { return linalg::solve(in[0], in[1]); }, {a, v});
  for (const bool upper : {false, true})
    for (const bool unit : {false, true})
      for (const bool left : {false, true})
        expect_both_orders(
            [&](const Tensors& in) {
              return linalg::solve_triangular(
                  in[0], in[1], {.upper = upper, .left = left, .unitriangular = unit});
            },
            {a, left ? b : adjoint(b)});
  expect_both_orders([](const Tensors& in) { return linalg::inv(in[0]); }, {a});
  expect_both_orders([](const Tensors& in) { return linalg::det(in[0]); }, {a});
  expect_both_orders([](const Tensors& in) { return linalg::slogdet(in[0]).logabsdet; }, {a});
  expect_both_orders([](const Tensors& in) { return linalg::matrix_power(in[0], -3); }, {a});
  const auto positive_of = [](const Tensor& x) {
    return matmul(x, adjoint(x)) + identity_of(3) * 0.5;
  };
  expect_both_orders([&](const Tensors& in) { return linalg::cholesky(positive_of(in[0])); }, {a});
  expect_both_orders([](const Tensors& in) { return linalg::cholesky_solve(in[0], in[1]); },
                     {a, b});
}

TEST_F(Linalg, HasRightGradientsOfFactorisations) {
  for (const Shape& shape : {Shape{2, 3, 3}, Shape{4, 2}, Shape{2, 4}}) {
    SCOPED_TRACE(shape.to_string());
    const Tensor x = random_tensor(shape, 21);
    expect_both_orders([](const Tensors& in) { return linalg::qr(in[0]).q; }, {x});
    expect_both_orders([](const Tensors& in) { return linalg::qr(in[0]).r; }, {x});
    expect_both_orders([](const Tensors& in) { return linalg::pinv(in[0]); }, {x});
    expect_both_orders([](const Tensors& in) { return linalg::svdvals(in[0]); }, {x});
    // Vectors are determined but for their signs.
    expect_both_orders([](const Tensors& in) { return square(linalg::svd(in[0]).u); }, {x});
    expect_both_orders([](const Tensors& in) { return square(linalg::svd(in[0]).vh); }, {x});
    expect_both_orders(
        [](const Tensors& in) {
          const auto [u, s, vh] = linalg::svd(in[0]);
          return matmul(u * expand_dims(exp(s), -2), vh);
        },
        {x});
    for (const linalg::MatrixNormOrder& order :
         std::initializer_list<linalg::MatrixNormOrder>{"fro", "nuc", 2, -2})
      expect_gradients([&](const Tensors& in) { return linalg::matrix_norm(in[0], order); }, {x});
  }
  const Tensor x = random_tensor({2, 3, 3}, 22);
  expect_both_orders([](const Tensors& in) { return linalg::eigvalsh(symmetric(in[0])); }, {x});
  expect_both_orders(
      [](const Tensors& in) { return square(linalg::eigh(symmetric(in[0])).eigenvectors); }, {x});
  // Eigenvalues may be equal if the vectors do not count.
  const Tensor same = identity_of(3) * 2.0;
  GradientTape tape;
  tape.watch(same);
  const Tensor sum = reduce_sum(linalg::eigvalsh(same));
  expect_close(tape.gradient(sum, same), identity_of(3));
  // A pseudo-inverse of lower rank, in the directions that keep it.
  const Tensor rows = random_tensor({4, 2}, 23), columns = random_tensor({2, 3}, 24);
  expect_gradients([](const Tensors& in) { return linalg::pinv(matmul(in[0], in[1]), 1e-8); },
                   {rows, columns});
}

TEST_F(Linalg, WorksForUnknownSizes) {
  const auto step = [](const Tensors& in) {
    const Tensor &a = in[0], &b = in[1];
    GradientTape tape({.persistent = true});
    tape.watch(a);
    const Tensor p = matmul(a, adjoint(a)) + linalg::matrix_power(a, 0);
    Tensors results = {linalg::solve(a, b),
                       linalg::inv(a),
                       linalg::det(a),
                       linalg::cholesky(p),
                       linalg::eigh(p).eigenvectors,
                       linalg::svd(b).u,
                       linalg::pinv(b),
                       linalg::qr(b).r,
                       cast(linalg::matrix_rank(b), float64),
                       linalg::matrix_norm(b, "nuc"),
                       linalg::lstsq(b, a)};
    Tensor sum = reduce_sum(linalg::eigvalsh(p)) + reduce_sum(linalg::cholesky(p)) +
                 reduce_sum(linalg::solve(a, b)) + reduce_sum(linalg::pinv(a)) +
                 reduce_sum(linalg::det(a)) + reduce_sum(linalg::svdvals(a));
    results.push_back(tape.gradient(sum, a));
    return results;
  };
  const auto traced = function(
      step, {.input_signature = {{Shape{-1, -1, -1}, float64}, {Shape{-1, -1, -1}, float64}}});
  for (const auto& [n, k] : {std::pair(3, 2), {2, 4}}) {
    const Tensors in = {regular({2, n, n}), random_tensor({2, n, k}, 4)};
    const Tensors expected = step(in), got = traced(in);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      SCOPED_TRACE(i);
      expect_close(got[i], expected[i]);
    }
  }
}

TEST_F(Linalg, IsTheSameWithAnyNumberOfThreads) {
  expect_same_bits_with_any_team([] {
    const Tensor x = regular({40, 12, 12}, 3);
    return values_of(linalg::inv(x) + linalg::svd(x).u + linalg::qr(x).q + linalg::pinv(x));
  });
}

TEST_F(Linalg, RefusesMatricesThatDoNotFit) {
  const Tensor singular = constant({{1.0, 2.0}, {2.0, 4.0}});
  const Tensor batch = stack({identity_of(2, float32), singular});
  const auto wait = [](const Tensor& x) { return values_of(x); };
  expect_error<InvalidArgumentError>([&] { wait(linalg::inv(batch)); },
                                     "[MatrixSolve] expected invertible matrices, but matrix 1 is "
                                     "singular: element 1 of the diagonal of its factor U is zero");
  expect_error<InvalidArgumentError>([&] { wait(linalg::solve(singular, ones({2}))); },
                                     "but matrix 0 is singular");
  expect_error<InvalidArgumentError>(
      [&] {
        wait(linalg::cholesky(constant({{1.0, 2.0}, {2.0, 1.0}})));
      },
      "[Cholesky] expected positive-definite matrices, but the leading minor of order 2 of matrix "
      "0 is not positive");
  expect_error<ShapeError>(
      [] {
        static_cast<void>(linalg::inv(ones({2, 3})));
      },
      "[inv] expected square matrices, got shape (2, 3)");
  expect_error<ShapeError>([] { static_cast<void>(linalg::det(ones({3}))); },
                           "[LogMatrixDeterminant] expected matrices [..., m, n], got shape (3,)");
  expect_error<ShapeError>(
      [] {
        static_cast<void>(linalg::solve(ones({2, 2}), ones({3, 1})));
      },
      "[MatrixSolve] expected right sides [..., 2, k] for matrices of shape "
      "(2, 2), got (3, 1)");
  expect_error<ShapeError>(
      [] {
        static_cast<void>(linalg::solve(ones({2, 2, 2}), ones({3, 2, 1})));
      },
      "[solve] expected matrices whose leading axes broadcast, got shapes (2, 2, 2) and (3, 2, 1)");
  expect_error<DTypeError>(
      [] {
        static_cast<void>(linalg::solve(ones({2, 2}), ones({2, 1}, {.dtype = float64})));
      },
      "[MatrixSolve] expected two tensors of one dtype, got float32 and float64");
  for (const DType dtype : {float16, bfloat16, int32})
    expect_error<DTypeError>(
        [&] {
          static_cast<void>(linalg::svd(ones({2, 2}, {.dtype = dtype})));
        },
        "[Svd] expected matrices of float32 or float64, got " + std::string(name_of(dtype)));
  expect_error<InvalidArgumentError>(
      [] {
        static_cast<void>(linalg::matrix_norm(ones({2, 2}), "max"));
      },
      "infinity or their negatives, got \"max\"");
  expect_error<InvalidArgumentError>(
      [] {
        static_cast<void>(linalg::matrix_norm(ones({2, 2}), 3.0));
      },
      "infinity or their negatives, got 3");
}

}  // namespace
}  // namespace tandem::linalg_test
