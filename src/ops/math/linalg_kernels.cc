// LAPACK's matrices have their columns one after the other: what it gets is the transpose of a
// matrix, unless the elements are copied in the other order.
#include "ops/math/linalg_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "core/module.h"
#include "core/parallel.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "ops/math/lapack.h"

namespace tandem {
namespace {

template <class T>
const LapackOf<T>& lapack() {
  static const Lapack functions = [] {
    Lapack loaded;
    load<void(Lapack*)>(kLapackModule, "tandem_lapack")(&loaded);
    return loaded;
  }();
  if constexpr (std::is_same_v<T, float>)
    return functions.of_float;
  else
    return functions.of_double;
}

// The matrices of the first input, of m rows and n columns.
template <class T>
struct Matrices {
  explicit Matrices(const KernelContext& c)
      : x(c.inputs[0].as<const T>()),
        m(size_for_lapack(c, -2)),
        n(size_for_lapack(c, -1)),
        k(std::min(m, n)),
        size(std::int64_t{m} * n),
        count(size == 0 ? 0 : c.inputs[0].size() / size) {}

  static int size_for_lapack(const KernelContext& c, int axis) {
    const std::int64_t size = c.inputs[0].shape.word(axis);
    if (size > std::numeric_limits<int>::max())
      fail<ShapeError>("[{}] expected matrices of at most {} rows and columns, got {}", c.op->name,
                       std::numeric_limits<int>::max(), size);
    return static_cast<int>(size);
  }

  const T* x;
  int m, n, k;
  std::int64_t size, count;
};

// Calls body(matrix, memory) for each matrix, in parallel; the memory has `elements`. The error is
// the first matrix's.
template <class T, class Body>
void for_matrices(KernelContext& c, const Matrices<T>& of, std::int64_t elements,
                  const Body& body) {
  if (of.count == 0) return;
  constexpr std::int64_t kGrain = 4096;  // elements of matrices
  const std::int64_t threads = std::clamp<std::int64_t>(
      of.count * of.size / kGrain, 1, std::min<std::int64_t>(intra_op_threads(), of.count));
  T* const memory =
      static_cast<T*>(c.scratch(static_cast<std::size_t>(threads * elements) * sizeof(T)));
  parallel_for(threads, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t thread = begin; thread < end; ++thread)
      for (std::int64_t i = of.count * thread / threads; i < of.count * (thread + 1) / threads; ++i)
        body(i, memory + thread * elements);
  });
}

template <class Body>
void switch_real(const KernelContext& c, const Body& body) {
  if (c.inputs[0].dtype == float64)
    body(TypeTag<double>());
  else
    body(TypeTag<float>());
}

// Copies the m x n elements of x in the other order.
template <class T>
void transpose_to(T* out, const T* x, std::int64_t m, std::int64_t n) {
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) out[j * m + i] = x[i * n + j];
}

// The answer to a question for the size of memory, at least `least`.
template <class T>
int memory_size(T answer, std::int64_t least) {
  // float's neighbours above 2^24 are further apart than 1.
  return static_cast<int>(std::max<double>(
      static_cast<double>(least),
      std::ceil(static_cast<double>(answer) * (1.0 + std::numeric_limits<T>::epsilon()))));
}

void expect_convergence(const KernelContext& c, std::int64_t matrix, int info) {
  if (info != 0)
    fail<InvalidArgumentError>(
        "[{}] expected finite elements, for which it converges, but matrix {} does not", c.op->name,
        matrix);
}

// The LU factorisation of the transpose of x, in `lu`. Returns the number of the first element of
// U's diagonal that is zero, from 1; 0 if there is none.
template <class T>
int factorise(const T* x, int n, T* lu, int* pivots) {
  int info = 0;
  std::copy_n(x, std::int64_t{n} * n, lu);
  lapack<T>().getrf(&n, &n, lu, &n, pivots, &info);
  return info;
}

// The thin singular value decomposition. What LAPACK writes as U for the transpose of x is V.
template <class T>
class SvdOf {
 public:
  explicit SvdOf(const Matrices<T>& of) : of_(of) {
    T answer = 0, none = 0;
    const int query = -1;
    int info = 0, number = 0;
    lapack<T>().gesdd("S", &of.n, &of.m, &none, &of.n, &none, &none, &of.n, &none, &of.k, &answer,
                      &query, &number, &info, 1);
    const std::int64_t k = of.k, most = std::max(of.m, of.n);
    work_ = memory_size(answer, 4 * k * k + 7 * k + most);
  }
  std::int64_t elements() const { return of_.size + work_ + 8 * of_.k; }
  void operator()(const KernelContext& c, std::int64_t matrix, T* memory, T* u, T* s, T* vh) const {
    int info = 0;
    std::copy_n(of_.x + matrix * of_.size, of_.size, memory);
    T* const work = memory + of_.size;
    lapack<T>().gesdd("S", &of_.n, &of_.m, memory, &of_.n, s, vh, &of_.n, u, &of_.k, work, &work_,
                      reinterpret_cast<int*>(work + work_), &info, 1);
    expect_convergence(c, matrix, info);
  }

 private:
  const Matrices<T>& of_;
  int work_;
};

}  // namespace

void cholesky_kernel(KernelContext& c) {
  switch_real(c, [&]<class T>(TypeTag<T>) {
    const Matrices<T> of(c);
    for_matrices(c, of, 0, [&](std::int64_t matrix, T*) {
      T* const out = c.outputs[0].as<T>() + matrix * of.size;
      std::copy_n(of.x + matrix * of.size, of.size, out);
      int info = 0;
      lapack<T>().potrf("U", &of.n, out, &of.n, &info, 1);
      if (info != 0)
        fail<InvalidArgumentError>(
            "[{}] expected positive-definite matrices, but the leading minor of order {} of matrix "
            "{} is not positive",
            c.op->name, info, matrix);
      for (std::int64_t i = 0; i < of.n; ++i)
        std::fill(out + i * of.n + i + 1, out + (i + 1) * of.n, T(0));
    });
  });
}

void solve_kernel(KernelContext& c) {
  const bool adjoint = c.attrs<SolveAttrs>().adjoint;
  switch_real(c, [&]<class T>(TypeTag<T>) {
    const Matrices<T> of(c);
    const auto columns = static_cast<int>(c.inputs[1].shape.word(-1));
    const std::int64_t n = of.n, size = n * columns;
    for_matrices(c, of, of.size + size + n, [&](std::int64_t matrix, T* lu) {
      T* const b = lu + of.size;
      int* const pivots = reinterpret_cast<int*>(b + size);
      if (const int zero = factorise(of.x + matrix * of.size, of.n, lu, pivots); zero != 0)
        fail<InvalidArgumentError>(
            "[{}] expected invertible matrices, but matrix {} is singular: element {} of the "
            "diagonal of its factor U is zero",
            c.op->name, matrix, zero - 1);
      transpose_to(b, c.inputs[1].as<const T>() + matrix * size, n, columns);
      int info = 0;
      lapack<T>().getrs(adjoint ? "N" : "T", &of.n, &columns, lu, &of.n, pivots, b, &of.n, &info,
                        1);
      transpose_to(c.outputs[0].as<T>() + matrix * size, b, columns, n);
    });
  });
}

void triangular_solve_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<TriangularSolveAttrs>();
  switch_real(c, [&]<class T>(TypeTag<T>) {
    const Matrices<T> of(c);
    const auto columns = static_cast<int>(c.inputs[1].shape.word(-1));
    const std::int64_t size = std::int64_t{of.n} * columns;
    if (size == 0) return;
    for_matrices(c, of, 0, [&](std::int64_t matrix, T*) {
      T* const out = c.outputs[0].as<T>() + matrix * size;
      std::copy_n(c.inputs[1].as<const T>() + matrix * size, size, out);
      const T one = 1;  // x^T a^T = b^T
      lapack<T>().trsm("R", attrs.upper ? "L" : "U", attrs.adjoint ? "T" : "N",
                       attrs.unit ? "U" : "N", &columns, &of.n, &one, of.x + matrix * of.size,
                       &of.n, out, &columns, 1, 1, 1, 1);
    });
  });
}

void log_determinant_kernel(KernelContext& c) {
  switch_real(c, [&]<class T>(TypeTag<T>) {
    const Matrices<T> of(c);
    T *const sign = c.outputs[0].as<T>(), *const logarithm = c.outputs[1].as<T>();
    if (of.size == 0) {
      std::fill_n(sign, c.outputs[0].size(), T(1));
      std::fill_n(logarithm, c.outputs[1].size(), T(0));
    }
    for_matrices(c, of, of.size + of.n, [&](std::int64_t matrix, T* lu) {
      int* const pivots = reinterpret_cast<int*>(lu + of.size);
      factorise(of.x + matrix * of.size, of.n, lu, pivots);
      double sum = 0;
      bool negative = false, zero = false;
      for (std::int64_t i = 0; i < of.n; ++i) {
        const double each = static_cast<double>(lu[i * of.n + i]);
        sum += std::log(std::abs(each));
        negative ^= (each < 0) != (pivots[i] != i + 1);
        zero |= each == 0;
      }
      sign[matrix] = zero ? T(0) : negative ? T(-1) : T(1);
      logarithm[matrix] = static_cast<T>(sum);
    });
  });
}

void qr_kernel(KernelContext& c) {
  switch_real(c, [&]<class T>(TypeTag<T>) {
    const Matrices<T> of(c);
    if (of.count == 0) return;
    const LapackOf<T>& functions = lapack<T>();
    T answers[2] = {}, none = 0;
    const int query = -1;
    int info = 0;
    functions.geqrf(&of.m, &of.n, &none, &of.m, &none, &answers[0], &query, &info);
    functions.orgqr(&of.m, &of.k, &of.k, &none, &of.m, &none, &answers[1], &query, &info);
    const int size = memory_size(std::max(answers[0], answers[1]), of.n);
    const std::int64_t m = of.m, n = of.n, k = of.k;
    for_matrices(c, of, of.size + k + size, [&](std::int64_t matrix, T* a) {
      T *const tau = a + of.size, *const work = tau + k;
      transpose_to(a, of.x + matrix * of.size, m, n);
      int ignored = 0;  // arguments are valid
      functions.geqrf(&of.m, &of.n, a, &of.m, tau, work, &size, &ignored);
      T* const r = c.outputs[1].as<T>() + matrix * k * n;
      for (std::int64_t i = 0; i < k; ++i)
        for (std::int64_t j = 0; j < n; ++j) r[i * n + j] = i <= j ? a[j * m + i] : T(0);
      functions.orgqr(&of.m, &of.k, &of.k, a, &of.m, tau, work, &size, &ignored);
      transpose_to(c.outputs[0].as<T>() + matrix * m * k, a, k, m);
    });
  });
}

void eigh_kernel(KernelContext& c) {
  switch_real(c, [&]<class T>(TypeTag<T>) {
    const Matrices<T> of(c);
    if (of.count == 0) return;
    const LapackOf<T>& functions = lapack<T>();
    const std::int64_t n = of.n;
    T answer = 0, none = 0;
    const int query = -1, integers = static_cast<int>(3 + 5 * n);
    int info = 0, number = 0;
    functions.syevd("V", "U", &of.n, &none, &of.n, &none, &answer, &query, &number, &query, &info,
                    1, 1);
    const int size = memory_size(answer, 1 + 6 * n + 2 * n * n);
    for_matrices(c, of, of.size + size + integers, [&](std::int64_t matrix, T* a) {
      T* const work = a + of.size;
      int failed = 0;
      std::copy_n(of.x + matrix * of.size, of.size, a);
      functions.syevd("V", "U", &of.n, a, &of.n, c.outputs[0].as<T>() + matrix * n, work, &size,
                      reinterpret_cast<int*>(work + size), &integers, &failed, 1, 1);
      expect_convergence(c, matrix, failed);
      transpose_to(c.outputs[1].as<T>() + matrix * of.size, a, n, n);
    });
  });
}

void svd_kernel(KernelContext& c) {
  switch_real(c, [&]<class T>(TypeTag<T>) {
    const Matrices<T> of(c);
    if (of.count == 0) return;
    const SvdOf<T> svd(of);
    const std::int64_t k = of.k;
    for_matrices(c, of, svd.elements(), [&](std::int64_t matrix, T* memory) {
      svd(c, matrix, memory, c.outputs[0].as<T>() + matrix * of.m * k,
          c.outputs[1].as<T>() + matrix * k, c.outputs[2].as<T>() + matrix * k * of.n);
    });
  });
}

void pseudo_inverse_kernel(KernelContext& c) {
  const double rtol = c.attrs<PseudoInverseAttrs>().rtol;
  switch_real(c, [&]<class T>(TypeTag<T>) {
    const Matrices<T> of(c);
    if (of.count == 0) return;
    const SvdOf<T> svd(of);
    const std::int64_t m = of.m, n = of.n, k = of.k;
    const double relative =
        rtol >= 0 ? rtol : std::numeric_limits<T>::epsilon() * static_cast<double>(std::max(m, n));
    for_matrices(c, of, svd.elements() + k * (m + n + 1), [&](std::int64_t matrix, T* s) {
      T *const u = s + k, *const vh = u + m * k;
      svd(c, matrix, vh + k * n, u, s, vh);
      const T least = static_cast<T>(relative * static_cast<double>(s[0]));
      for (std::int64_t i = 0; i < k; ++i)
        for (std::int64_t j = 0; j < n; ++j)
          vh[i * n + j] = s[i] > least ? vh[i * n + j] / s[i] : T(0);
      const T one = 1, zero = 0;  // the transpose: u times vh
      lapack<T>().gemm("T", "T", &of.m, &of.n, &of.k, &one, u, &of.k, vh, &of.n, &zero,
                       c.outputs[0].as<T>() + matrix * of.size, &of.m, 1, 1);
    });
  });
}

}  // namespace tandem
