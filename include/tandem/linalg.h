/// @file
/// Linear algebra: factorisations of matrices and what is computed by them. As torch.linalg and
/// tf.linalg.
#pragma once

#include <cstdint>
#include <string_view>

#include "tandem/tensor.h"

/// Linear algebra of a matrix, or of each matrix [..., m, n] of a batch, of float32 or float64.
/// Computed on the host in the tensor's dtype. Results have gradients of any order, unless said
/// otherwise. All functions throw DTypeError for other dtypes and ShapeError for shapes that do not
/// fit, and those that need an invertible matrix throw InvalidArgumentError with the number of the
/// matrix in the batch. UnavailableError: the host has no LAPACK (Debian: liblapack3). Signs of
/// vectors are those of Householder's reflections: they may differ from other libraries'. As
/// torch.linalg.
namespace tandem::linalg {

/// The lower triangular L of L L^T = x, with `upper` its transpose. Reads the lower triangle of x
/// alone. Throws InvalidArgumentError if x is not positive-definite. As torch.linalg.cholesky.
[[nodiscard]] Tensor cholesky(const Tensor& x, bool upper = false);
/// The x of a x = b for a symmetric a whose cholesky() is `chol`, with `upper` the upper one. `rhs`
/// is [..., n, k]. As tf.linalg.cholesky_solve; torch.cholesky_solve has the opposite order.
[[nodiscard]] Tensor cholesky_solve(const Tensor& chol, const Tensor& rhs, bool upper = false);
/// The x of a x = b, or of x a = b without `left`. `b` is a vector (batch) of a's size, or a
/// matrix; leading axes broadcast. Throws InvalidArgumentError if a is singular. As
/// torch.linalg.solve.
[[nodiscard]] Tensor solve(const Tensor& a, const Tensor& b, bool left = true);
/// Options of solve_triangular().
struct TriangularOptions {
  bool upper = false;          ///< whether the upper triangle counts, else the lower one
  bool left = true;            ///< whether to solve a x = b, else x a = b
  bool unitriangular = false;  ///< whether the diagonal counts as ones
};
/// As solve() for a triangular a, whose other elements are not read; b is a matrix. Divisions by a
/// diagonal of 0 give infinities. As torch.linalg.solve_triangular, with `upper` as an option.
[[nodiscard]] Tensor solve_triangular(const Tensor& a, const Tensor& b,
                                      const TriangularOptions& options = {});
/// The inverse of a square matrix. Throws InvalidArgumentError if it is singular. As
/// torch.linalg.inv.
[[nodiscard]] Tensor inv(const Tensor& x);

/// The sign of a determinant and the logarithm of its absolute value: 0 and -infinity for a
/// singular matrix, whose gradient throws InvalidArgumentError.
struct Slogdet {
  Tensor sign{};       ///< -1, 0 or 1
  Tensor logabsdet{};  ///< the logarithm
};
/// As torch.linalg.slogdet.
[[nodiscard]] Slogdet slogdet(const Tensor& x);
/// The determinant of a square matrix. The gradient of a singular one throws InvalidArgumentError.
/// As torch.linalg.det.
[[nodiscard]] Tensor det(const Tensor& x);

/// The reduced QR factorisation: x = q r, k = min(m, n).
struct Qr {
  Tensor q{};  ///< [..., m, k], with orthonormal columns
  Tensor r{};  ///< [..., k, n], upper triangular
};
/// As torch.linalg.qr in mode "reduced". The gradient needs the first k columns of x to be
/// independent, and known sizes while a function is traced.
[[nodiscard]] Qr qr(const Tensor& x);

/// Eigenvalues in ascending order, and eigenvectors.
struct Eigh {
  Tensor eigenvalues{};   ///< [..., n]
  Tensor eigenvectors{};  ///< [..., n, n], as columns
};
/// The eigenvalues of a symmetric matrix. Reads the lower triangle alone; the gradient is as if x
/// were symmetric. That of eigenvectors is not finite where eigenvalues are equal. As
/// torch.linalg.eigh.
[[nodiscard]] Eigh eigh(const Tensor& x);
/// The eigenvalues of eigh(). As torch.linalg.eigvalsh.
[[nodiscard]] Tensor eigvalsh(const Tensor& x);

/// The reduced singular value decomposition: x = u diag(s) vh, k = min(m, n).
struct Svd {
  Tensor u{};   ///< [..., m, k]
  Tensor s{};   ///< [..., k], in descending order
  Tensor vh{};  ///< [..., k, n]
};
/// As torch.linalg.svd without full_matrices. The gradient of u and vh, and the second one of s, is
/// not finite where singular values are equal, and needs known sizes while a function is traced.
[[nodiscard]] Svd svd(const Tensor& x);
/// The singular values of svd(). As torch.linalg.svdvals.
[[nodiscard]] Tensor svdvals(const Tensor& x);

/// The pseudo-inverse [..., n, m] (Moore, Penrose). Singular values of at most rtol times the
/// largest one count as 0; default: max(m, n) times the dtype's epsilon. As torch.linalg.pinv.
[[nodiscard]] Tensor pinv(const Tensor& x, double rtol = -1.0);
/// The x of least norm among those for which the norm of a x - b is least; b is a matrix
/// [..., m, k] or, for one matrix a, a vector. As tf.linalg.lstsq, and as the solution of
/// torch.linalg.lstsq.
[[nodiscard]] Tensor lstsq(const Tensor& a, const Tensor& b, double rtol = -1.0);
/// The number of singular values above rtol times the largest one (as in pinv()), of dtype int64.
/// As torch.linalg.matrix_rank.
[[nodiscard]] Tensor matrix_rank(const Tensor& x, double rtol = -1.0);

/// The order of a matrix norm.
class MatrixNormOrder {
 public:
  /// "fro", Frobenius's, or "nuc", the sum of the singular values. Throws InvalidArgumentError for
  /// another name.
  MatrixNormOrder(const char* name);  // NOLINT: stands for it
  /// 2: the largest singular value; 1: the largest sum of a column's absolute values; infinity: of
  /// a row's. Negative ones have the smallest.
  MatrixNormOrder(double order) : order_(order) {}  // NOLINT: stands for it
  std::string_view name() const { return name_; }   ///< empty for a number
  double number() const { return order_; }          ///< the number

 private:
  std::string_view name_;
  double order_ = 0.0;
};
/// The norm of matrices in the last two axes, which `keepdim` keeps. Throws InvalidArgumentError
/// for another order. As torch.linalg.matrix_norm.
[[nodiscard]] Tensor matrix_norm(const Tensor& x, MatrixNormOrder ord = "fro",
                                 bool keepdim = false);
/// The n-th power of a square matrix; of its inverse if n is negative. As
/// torch.linalg.matrix_power.
[[nodiscard]] Tensor matrix_power(const Tensor& x, std::int64_t n);

}  // namespace tandem::linalg
