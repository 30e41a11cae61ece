// Linear algebra: shape rules, gradients, and what is composed of the operations.
#include "tandem/linalg.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "core/dim.h"
#include "core/status.h"
#include "op/record.h"
#include "ops/math/element_count.h"
#include "ops/math/linalg_kernels.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// --- shape rules ---

void check_matrices(InferContext& c) {
  if (c.dtype(0) != float32 && c.dtype(0) != float64)
    fail<DTypeError>("[{}] expected matrices of float32 or float64, got {}", c.op().name,
                     name_of(c.dtype(0)));
  if (c.shape(0).rank() < 2)
    fail<ShapeError>("[{}] expected matrices [..., m, n], got shape {}", c.op().name,
                     c.shape(0).to_string());
}

void check_square(InferContext& c) {
  check_matrices(c);
  if (!dim::may_equal(c.shape(0).word(-1), c.shape(0).word(-2)))
    fail<ShapeError>("[{}] expected square matrices, got shape {}", c.op().name,
                     c.shape(0).to_string());
}

// The leading axes, and then `last`.
Shape batch_of(InferContext& c, std::initializer_list<std::int64_t> last) {
  Dims dims;
  for (int i = 0; i + 2 < c.shape(0).rank(); ++i) dims.push_back(c.shape(0).word(i));
  for (const std::int64_t size : last) dims.push_back(size);
  return Shape(dims);
}

void infer_cholesky(InferContext& c) {
  check_square(c);
  c.add_output(c.dtype(0), c.shape(0));
}

void infer_solve(InferContext& c) {
  check_square(c);
  const Shape &a = c.shape(0), &b = c.shape(1);
  if (c.dtype(1) != c.dtype(0))
    fail<DTypeError>("[{}] expected two tensors of one dtype, got {} and {}", c.op().name,
                     name_of(c.dtype(0)), name_of(c.dtype(1)));
  if (b.rank() != a.rank() || !dim::may_equal(b, batch_of(c, {a.word(-1), b.word(-1)})))
    fail<ShapeError>("[{}] expected right sides [..., {}, k] for matrices of shape {}, got {}",
                     c.op().name, dim::text(a.word(-1)), a.to_string(), b.to_string());
  c.add_output(c.dtype(0), b);
}

void infer_log_determinant(InferContext& c) {
  check_square(c);
  for (int i = 0; i < 2; ++i) c.add_output(c.dtype(0), batch_of(c, {}));
}

void infer_qr(InferContext& c) {
  check_matrices(c);
  const std::int64_t m = c.shape(0).word(-2), n = c.shape(0).word(-1), k = dim::min(m, n);
  c.add_output(c.dtype(0), batch_of(c, {m, k}));
  c.add_output(c.dtype(0), batch_of(c, {k, n}));
}

void infer_eigh(InferContext& c) {
  check_square(c);
  c.add_output(c.dtype(0), batch_of(c, {c.shape(0).word(-1)}));
  c.add_output(c.dtype(0), c.shape(0));
}

void infer_svd(InferContext& c) {
  check_matrices(c);
  const std::int64_t m = c.shape(0).word(-2), n = c.shape(0).word(-1), k = dim::min(m, n);
  c.add_output(c.dtype(0), batch_of(c, {m, k}));
  c.add_output(c.dtype(0), batch_of(c, {k}));
  c.add_output(c.dtype(0), batch_of(c, {k, n}));
}

void infer_pseudo_inverse(InferContext& c) {
  check_matrices(c);
  c.add_output(c.dtype(0), batch_of(c, {c.shape(0).word(-1), c.shape(0).word(-2)}));
}

// --- gradients. M. B. Giles, "An extended collection of matrix derivative results for forward and
// reverse mode algorithmic differentiation" (2008); for qr() S. F. Walter, L. Lehmann, "Algorithmic
// differentiation of linear algebra functions" (2010). ---

Tensor transposed(const Tensor& x) {
  Dims order;
  for (int i = 0; i < x.rank(); ++i) order.push_back(i);
  std::swap(order[x.rank() - 1], order[x.rank() - 2]);
  return transpose(x, order);
}

Tensor t_matmul(const Tensor& a, const Tensor& b) { return matmul(a, b, {.transpose_a = true}); }
Tensor matmul_t(const Tensor& a, const Tensor& b) { return matmul(a, b, {.transpose_b = true}); }

Tensor as_row(const Tensor& x) { return expand_dims(x, -2); }
Tensor as_column(const Tensor& x) { return expand_dims(x, -1); }

// Row minus column number of each element of the last two axes, of any sizes.
Tensor rows_below(const Tensor& x) {
  return as_column(range(x.dim(-2), {.dtype = int64})) - as_row(range(x.dim(-1), {.dtype = int64}));
}

Tensor lower(const Tensor& x) { return where(greater_equal(rows_below(x), 0), x, zeros_like(x)); }
Tensor strictly_lower(const Tensor& x) {
  return where(greater(rows_below(x), 0), x, zeros_like(x));
}
Tensor without_diagonal(const Tensor& x) {
  return where(equal(rows_below(x), 0), zeros_like(x), x);
}

// The identity of the size of square matrices, in their shape.
Tensor identity_like(const Tensor& x) {
  return broadcast_to(cast(equal(rows_below(x), 0), x.dtype()), x.shape());
}

// x with its diagonal instead of the other elements.
Tensor on_diagonal(const Tensor& values, const Tensor& like) {
  return where(equal(rows_below(like), 0), as_row(values), zeros_like(like));
}

// Element i, j is 1 / (x_j - x_i); 0 on the diagonal.
Tensor inverse_gaps(const Tensor& x) {
  const Tensor gaps = as_row(x) - as_column(x);
  const Tensor on = equal(rows_below(gaps), 0);
  return where(on, zeros_like(gaps), divide(1.0, where(on, ones_like(gaps), gaps)));
}

Tensor solve_with(const Tensor& a, const Tensor& b, bool adjoint);
Tensor triangular_solve(const Tensor& a, const Tensor& b, const TriangularSolveAttrs& attrs);

void cholesky_gradient(GradContext& c) {
  const Tensor l = c.output(0);
  const Tensor product = t_matmul(l, lower(c.grad()));
  const Tensor half = (lower(product) + strictly_lower(product)) * 0.5;
  const TriangularSolveAttrs adjoint{.adjoint = true};
  // l^-T half l^-1
  const Tensor left = triangular_solve(l, half, adjoint);
  const Tensor both = transposed(triangular_solve(l, transposed(left), adjoint));
  c.set_grad(0, (both + transposed(both)) * 0.5);
}

void solve_gradient(GradContext& c) {
  const bool adjoint = c.attrs<SolveAttrs>().adjoint;
  const Tensor db = solve_with(c.input(0), c.grad(), !adjoint), x = c.output(0);
  if (c.needs_grad(0)) c.set_grad(0, -(adjoint ? matmul_t(x, db) : matmul_t(db, x)));
  if (c.needs_grad(1)) c.set_grad(1, db);
}

void triangular_solve_gradient(GradContext& c) {
  TriangularSolveAttrs attrs = c.attrs<TriangularSolveAttrs>();
  const bool adjoint = std::exchange(attrs.adjoint, !attrs.adjoint);
  const Tensor db = triangular_solve(c.input(0), c.grad(), attrs), x = c.output(0);
  if (c.needs_grad(0)) {
    const Tensor all = -(adjoint ? matmul_t(x, db) : matmul_t(db, x));
    const Tensor read = attrs.upper ? transposed(lower(transposed(all))) : lower(all);
    c.set_grad(0, attrs.unit ? without_diagonal(read) : read);
  }
  if (c.needs_grad(1)) c.set_grad(1, db);
}

void log_determinant_gradient(GradContext& c) {
  const Tensor& x = c.input(0);
  if (!c.grad(1).defined()) return;  // the sign has no gradient
  c.set_grad(0, as_column(as_column(c.grad(1))) * solve_with(x, identity_like(x), true));
}

Tensor or_zeros(const Tensor& gradient, const Tensor& output) {
  return gradient.defined() ? gradient : zeros_like(output);
}

// The numbers of rows and columns, on which a gradient's formula depends.
std::pair<std::int64_t, std::int64_t> known_sizes(const GradContext& c) {
  const Shape& shape = c.input_spec(0).shape;
  return {dim::known(c.op().name, shape.word(-2), "the gradient"),
          dim::known(c.op().name, shape.word(-1), "the gradient")};
}

// For matrices with at least as many rows as columns.
Tensor tall_qr_gradient(const Tensor& q, const Tensor& r, const Tensor& dq, const Tensor& dr) {
  const Tensor m = matmul_t(r, dr) - t_matmul(dq, q);
  const Tensor symmetric = lower(m) + transposed(strictly_lower(m));
  const Tensor right = dq + matmul(q, symmetric);  // times r^-T
  return transposed(triangular_solve(r, transposed(right), {.upper = true}));
}

void qr_gradient(GradContext& c) {
  const Tensor q = c.output(0), r = c.output(1);
  const Tensor dq = or_zeros(c.grad(0), q), dr = or_zeros(c.grad(1), r);
  const auto [m, n] = known_sizes(c);
  if (m >= n) return c.set_grad(0, tall_qr_gradient(q, r, dq, dr));
  // The columns on the right are q times those of r.
  const std::vector<Tensor> parts = split(r, {m, n - m}, -1), slopes = split(dr, {m, n - m}, -1);
  const Tensor right = matmul(q, parts[1]);
  const Tensor left = tall_qr_gradient(q, parts[0], dq + matmul_t(right, slopes[1]), slopes[0]);
  c.set_grad(0, concat({left, matmul(q, slopes[1])}, -1));
}

void eigh_gradient(GradContext& c) {
  const Tensor values = c.output(0), vectors = c.output(1);
  Tensor inner = zeros_like(vectors);
  if (c.grad(0).defined()) inner = inner + on_diagonal(c.grad(0), vectors);
  if (c.grad(1).defined()) inner = inner + t_matmul(vectors, c.grad(1)) * inverse_gaps(values);
  c.set_grad(0, matmul(vectors, matmul_t(inner, vectors)));
}

void svd_gradient(GradContext& c) {
  const Tensor u = c.output(0), s = c.output(1), vh = c.output(2);
  Tensor inner = on_diagonal(or_zeros(c.grad(1), s), as_column(s) + as_row(s)), outer;
  const auto skew = [](const Tensor& x) { return x - transposed(x); };
  const auto add = [&outer](const Tensor& part) { outer = outer.defined() ? outer + part : part; };
  if (c.grad(0).defined()) {
    const Tensor& du = c.grad(0);
    const Tensor product = t_matmul(u, du);
    inner = inner + skew(product) * inverse_gaps(square(s)) * as_row(s);
    if (const auto [m, n] = known_sizes(c); m > n)
      add(matmul((du - matmul(u, product)) / as_row(s), vh));
  }
  if (c.grad(2).defined()) {
    const Tensor& dvh = c.grad(2);
    const Tensor product = matmul_t(vh, dvh);
    inner = inner + as_column(s) * skew(product) * inverse_gaps(square(s));
    if (const auto [m, n] = known_sizes(c); m < n)
      add(matmul(u, (dvh - matmul(transposed(product), vh)) / as_column(s)));
  }
  const Tensor within = matmul(u, matmul(inner, vh));
  c.set_grad(0, outer.defined() ? within + outer : within);
}

void pseudo_inverse_gradient(GradContext& c) {
  const Tensor& a = c.input(0);
  const Tensor p = c.output(0), slope = transposed(c.grad());
  const Tensor rows = matmul_t(matmul(slope, p), p), columns = t_matmul(p, matmul(p, slope));
  c.set_grad(0, rows - matmul(a, matmul(p, rows)) + columns - matmul(matmul(columns, p), a) -
                    transposed(matmul(p, matmul(slope, p))));
}

// TensorFlow's names, if it has the operation.
const OpDef kCholesky = {.name = "Cholesky",
                         .infer = infer_cholesky,
                         .gradient = cholesky_gradient,
                         .cpu_kernel = cholesky_kernel,
                         .gpu = false,
                         .autocast = kAutocastFloat32,
                         .saved_outputs = 0b1};
const OpDef kSolve = {.name = "MatrixSolve",
                      .attrs = &attrs_type<SolveAttrs>,
                      .infer = infer_solve,
                      .gradient = solve_gradient,
                      .cpu_kernel = solve_kernel,
                      .gpu = false,
                      .autocast = kAutocastFloat32,
                      .saved_inputs = 0b1,
                      .saved_outputs = 0b1};
const OpDef kTriangularSolve = {.name = "MatrixTriangularSolve",
                                .attrs = &attrs_type<TriangularSolveAttrs>,
                                .infer = infer_solve,
                                .gradient = triangular_solve_gradient,
                                .cpu_kernel = triangular_solve_kernel,
                                .gpu = false,
                                .autocast = kAutocastFloat32,
                                .saved_inputs = 0b1,
                                .saved_outputs = 0b1};
const OpDef kLogDeterminant = {.name = "LogMatrixDeterminant",
                               .infer = infer_log_determinant,
                               .gradient = log_determinant_gradient,
                               .cpu_kernel = log_determinant_kernel,
                               .gpu = false,
                               .autocast = kAutocastFloat32,
                               .saved_inputs = 0b1};
const OpDef kQr = {.name = "Qr",
                   .infer = infer_qr,
                   .gradient = qr_gradient,
                   .cpu_kernel = qr_kernel,
                   .gpu = false,
                   .autocast = kAutocastFloat32,
                   .saved_outputs = 0b11};
const OpDef kEigh = {.name = "SelfAdjointEigV2",
                     .infer = infer_eigh,
                     .gradient = eigh_gradient,
                     .cpu_kernel = eigh_kernel,
                     .gpu = false,
                     .autocast = kAutocastFloat32,
                     .saved_outputs = 0b11};
const OpDef kSvd = {.name = "Svd",
                    .infer = infer_svd,
                    .gradient = svd_gradient,
                    .cpu_kernel = svd_kernel,
                    .gpu = false,
                    .autocast = kAutocastFloat32,
                    .saved_outputs = 0b111};
const OpDef kPseudoInverse = {.name = "PseudoInverse",
                              .attrs = &attrs_type<PseudoInverseAttrs>,
                              .infer = infer_pseudo_inverse,
                              .gradient = pseudo_inverse_gradient,
                              .cpu_kernel = pseudo_inverse_kernel,
                              .gpu = false,
                              .autocast = kAutocastFloat32,
                              .saved_inputs = 0b1,
                              .saved_outputs = 0b1};

Tensor solve_with(const Tensor& a, const Tensor& b, bool adjoint) {
  return run(kSolve, {&a, &b}, SolveAttrs{adjoint});
}

Tensor triangular_solve(const Tensor& a, const Tensor& b, const TriangularSolveAttrs& attrs) {
  return run(kTriangularSolve, {&a, &b}, attrs);
}

std::vector<Tensor> results_of(const OpDef& op, const Tensor& x) {
  const Tensor* inputs[] = {&x};
  return run_op(op, inputs);
}

// Matrices whose leading axes are those of both.
std::pair<Tensor, Tensor> in_one_batch(const char* what, const Tensor& a, const Tensor& b) {
  Dims axes;
  const int rank_a = a.rank() - 2, rank_b = b.rank() - 2, rank = std::max(rank_a, rank_b);
  bool fits = rank_a >= 0 && rank_b >= 0;
  for (int i = 0; fits && i < rank; ++i) {
    const std::int64_t of_a = i < rank - rank_a ? 1 : a.size_word(i - (rank - rank_a)),
                       of_b = i < rank - rank_b ? 1 : b.size_word(i - (rank - rank_b));
    fits = dim::may_broadcast(of_a, of_b);
    if (fits) axes.push_back(dim::broadcast(of_a, of_b));
  }
  if (!fits)
    fail<ShapeError>("[{}] expected matrices whose leading axes broadcast, got shapes {} and {}",
                     what, a.shape().to_string(), b.shape().to_string());
  const auto spread = [&](const Tensor& x) {
    Dims shape = axes;
    for (const int axis : {-2, -1}) shape.push_back(x.size_word(axis));
    return x.shape() == Shape(shape) ? x : broadcast_to(x, Shape(shape));
  };
  return {spread(a), spread(b)};
}

void expect_square(const char* what, const Tensor& x) {
  if (x.rank() < 2 || !dim::may_equal(x.size_word(-1), x.size_word(-2)))
    fail<ShapeError>("[{}] expected square matrices, got shape {}", what, x.shape().to_string());
}

}  // namespace

OpList linalg_ops() {
  return list_of<kCholesky, kSolve, kTriangularSolve, kLogDeterminant, kQr, kEigh, kSvd,
                 kPseudoInverse>();
}

namespace linalg {

Tensor cholesky(const Tensor& x, bool upper) {
  const Tensor l = run(kCholesky, {&x});
  return upper ? transposed(l) : l;
}

Tensor cholesky_solve(const Tensor& chol, const Tensor& rhs, bool upper) {
  const auto [factor, b] = in_one_batch("cholesky_solve", chol, rhs);
  const Tensor half = triangular_solve(factor, b, {.upper = upper, .adjoint = upper});
  return triangular_solve(factor, half, {.upper = upper, .adjoint = !upper});
}

Tensor solve(const Tensor& a, const Tensor& b, bool left) {
  expect_square("solve", a);
  bool vectors = b.rank() == 1 || b.rank() == a.rank() - 1;
  for (int axis = 0; vectors && b.rank() > 1 && axis < b.rank(); ++axis)
    vectors = dim::may_equal(a.size_word(axis), b.size_word(axis));
  if (vectors) {
    const auto [matrices, columns] = in_one_batch("solve", a, expand_dims(b, -1));
    return squeeze(solve_with(matrices, columns, !left), {-1});
  }
  const auto [matrices, right] = in_one_batch("solve", a, b);
  return left ? solve_with(matrices, right, false)
              : transposed(solve_with(matrices, transposed(right), true));
}

Tensor solve_triangular(const Tensor& a, const Tensor& b, const TriangularOptions& options) {
  const auto [matrices, right] = in_one_batch("solve_triangular", a, b);
  TriangularSolveAttrs attrs{.upper = options.upper, .unit = options.unitriangular};
  if (options.left) return triangular_solve(matrices, right, attrs);
  attrs.adjoint = true;
  return transposed(triangular_solve(matrices, transposed(right), attrs));
}

Tensor inv(const Tensor& x) {
  expect_square("inv", x);
  return solve_with(x, identity_like(x), false);
}

Slogdet slogdet(const Tensor& x) {
  std::vector<Tensor> results = results_of(kLogDeterminant, x);
  return {results[0], results[1]};
}

Tensor det(const Tensor& x) {
  const bool narrow = x.dtype() == float32;  // whose logarithm would not be precise enough
  const auto [sign, logarithm] = slogdet(narrow ? cast(x, float64) : x);
  const Tensor result = sign * exp(logarithm);
  return narrow ? cast(result, float32) : result;
}

Qr qr(const Tensor& x) {
  std::vector<Tensor> results = results_of(kQr, x);
  return {results[0], results[1]};
}

Eigh eigh(const Tensor& x) {
  std::vector<Tensor> results = results_of(kEigh, x);
  return {results[0], results[1]};
}

Tensor eigvalsh(const Tensor& x) { return eigh(x).eigenvalues; }

Svd svd(const Tensor& x) {
  std::vector<Tensor> results = results_of(kSvd, x);
  return {results[0], results[1], results[2]};
}

Tensor svdvals(const Tensor& x) { return svd(x).s; }

Tensor pinv(const Tensor& x, double rtol) {
  return run(kPseudoInverse, {&x}, PseudoInverseAttrs{rtol});
}

Tensor lstsq(const Tensor& a, const Tensor& b, double rtol) { return matmul(pinv(a, rtol), b); }

Tensor matrix_rank(const Tensor& x, double rtol) {
  const Tensor s = svdvals(x);
  const std::int64_t m = x.size_word(-2), n = x.size_word(-1);
  Tensor least = s * 0.0;  // no values: no largest one
  if (s.size_word(-1) != 0) {
    const Tensor largest = reduce_max(s, {.axis = Dims{-1}, .keepdims = true});
    least = rtol >= 0.0 ? largest * rtol
                        : largest * element_count({dim::max(m, n)}, s.dtype()) *
                              (s.dtype() == float64 ? std::numeric_limits<double>::epsilon()
                                                    : std::numeric_limits<float>::epsilon());
  }
  return reduce_sum(cast(greater(s, least), int64), {.axis = Dims{-1}});
}

MatrixNormOrder::MatrixNormOrder(const char* name) : name_(name) {
  if (std::string_view(name) != "fro" && std::string_view(name) != "nuc")
    fail<InvalidArgumentError>(
        "[matrix_norm] expected \"fro\", \"nuc\", 1, 2, infinity or their negatives, got \"{}\"",
        name);
}

Tensor matrix_norm(const Tensor& x, MatrixNormOrder ord, bool keepdim) {
  if (x.rank() < 2)
    fail<ShapeError>("[matrix_norm] expected matrices [..., m, n], got shape {}",
                     x.shape().to_string());
  const double order = ord.number(), size = std::abs(order);
  const auto extreme = [&](const Tensor& values, std::int64_t axis) {
    const ReduceOptions options{.axis = Dims{axis}};
    return order > 0 ? reduce_max(values, options) : reduce_min(values, options);
  };
  Tensor result;
  if (ord.name() == "fro") {
    result = norm(x, {.axis = Dims{-2, -1}});
  } else if (ord.name() == "nuc") {
    result = reduce_sum(svdvals(x), {.axis = Dims{-1}});
  } else if (size == 2.0) {
    result = extreme(svdvals(x), -1);
  } else if (size == 1.0 || std::isinf(size)) {
    result = extreme(reduce_sum(abs(x), {.axis = Dims{size == 1.0 ? -2 : -1}}), -1);
  } else {
    fail<InvalidArgumentError>(
        "[matrix_norm] expected \"fro\", \"nuc\", 1, 2, infinity or their negatives, got {}",
        order);
  }
  return keepdim ? as_column(as_column(result)) : result;
}

Tensor matrix_power(const Tensor& x, std::int64_t n) {
  expect_square("matrix_power", x);
  Tensor power = n < 0 ? inv(x) : x, result;
  for (std::uint64_t left = n < 0 ? 0 - static_cast<std::uint64_t>(n)
                                  : static_cast<std::uint64_t>(n);
       left != 0; left >>= 1) {
    if ((left & 1) != 0) result = result.defined() ? matmul(result, power) : power;
    if (left > 1) power = matmul(power, power);
  }
  return result.defined() ? result : identity_like(x);
}

}  // namespace linalg
}  // namespace tandem
