// Linear algebra by LAPACK. The main library loads this module.
#include <type_traits>

#include "ops/math/lapack.h"

// Fortran's functions are declared by the types of their pointers.
#define TANDEM_LAPACK(X) \
  X(potrf) X(getrf) X(getrs) X(trsm) X(gemm) X(geqrf) X(orgqr) X(syevd) X(gesdd)

extern "C" {
#define TANDEM_DECLARE(name)                                                 \
  std::remove_pointer_t<decltype(tandem::LapackOf<float>::name)> s##name##_; \
  std::remove_pointer_t<decltype(tandem::LapackOf<double>::name)> d##name##_;
TANDEM_LAPACK(TANDEM_DECLARE)

__attribute__((visibility("default"))) void tandem_lapack(tandem::Lapack* functions) {
#define TANDEM_ASSIGN(name)              \
  functions->of_float.name = s##name##_; \
  functions->of_double.name = d##name##_;
  TANDEM_LAPACK(TANDEM_ASSIGN)
}
}
