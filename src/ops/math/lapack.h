// The functions of LAPACK that linear algebra calls. They are in a module, because their library
// may be missing.
#pragma once

#include <cstddef>

namespace tandem {

// Matrices are stored in column-major order. The last arguments, of type std::size_t, are the
// lengths of the strings, which a Fortran compiler passes implicitly.
template <class T>
struct LapackOf {
  using Int = const int*;
  using Text = const char*;
  void (*potrf)(Text uplo, Int n, T* a, Int lda, int* info, std::size_t);
  void (*getrf)(Int m, Int n, T* a, Int lda, int* pivots, int* info);
  void (*getrs)(Text trans, Int n, Int columns, const T* a, Int lda, Int pivots, T* b, Int ldb,
                int* info, std::size_t);
  void (*trsm)(Text side, Text uplo, Text trans, Text diag, Int m, Int n, const T* alpha,
               const T* a, Int lda, T* b, Int ldb, std::size_t, std::size_t, std::size_t,
               std::size_t);
  void (*gemm)(Text trans_a, Text trans_b, Int m, Int n, Int k, const T* alpha, const T* a, Int lda,
               const T* b, Int ldb, const T* beta, T* c, Int ldc, std::size_t, std::size_t);
  void (*geqrf)(Int m, Int n, T* a, Int lda, T* tau, T* work, Int lwork, int* info);
  void (*orgqr)(Int m, Int n, Int k, T* a, Int lda, const T* tau, T* work, Int lwork, int* info);
  void (*syevd)(Text jobz, Text uplo, Int n, T* a, Int lda, T* w, T* work, Int lwork, int* iwork,
                Int liwork, int* info, std::size_t, std::size_t);
  void (*gesdd)(Text jobz, Int m, Int n, T* a, Int lda, T* s, T* u, Int ldu, T* vt, Int ldvt,
                T* work, Int lwork, int* iwork, int* info, std::size_t);
};

struct Lapack {
  LapackOf<float> of_float;
  LapackOf<double> of_double;
};

}  // namespace tandem
