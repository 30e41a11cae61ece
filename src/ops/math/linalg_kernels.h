// Kernels of linear algebra, which call LAPACK. Inputs and outputs are batches of matrices of
// float32 or float64, with rows one after the other.
#pragma once

#include "op/op.h"

namespace tandem {

struct SolveAttrs {
  bool adjoint = false;  // whether the transpose of the matrix counts
  TANDEM_FIELDS(adjoint)
};

struct TriangularSolveAttrs {
  bool upper = false, adjoint = false, unit = false;
  TANDEM_FIELDS(upper, adjoint, unit)
};

struct PseudoInverseAttrs {
  double rtol = 0.0;
  TANDEM_FIELDS(rtol)
};

void cholesky_kernel(KernelContext& c);          // x -> lower factor
void solve_kernel(KernelContext& c);             // a, b -> solution (SolveAttrs)
void triangular_solve_kernel(KernelContext& c);  // a, b -> solution (TriangularSolveAttrs)
void log_determinant_kernel(KernelContext& c);   // x -> sign, logarithm
void qr_kernel(KernelContext& c);                // x -> q, r
void eigh_kernel(KernelContext& c);              // x -> eigenvalues, eigenvectors
void svd_kernel(KernelContext& c);               // x -> u, s, vh
void pseudo_inverse_kernel(KernelContext& c);    // x -> pseudo-inverse (PseudoInverseAttrs)

}  // namespace tandem
