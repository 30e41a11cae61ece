// Matrix products in plain loops: for float64, which oneDNN does not support, and for products that
// are too small for a primitive. The sum over k runs in order, for any number of threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/multiversion.h"
#include "core/parallel.h"

namespace tandem {

// A matrix with strides in elements.
template <class T>
struct MatrixRef {
  T* data;
  std::int64_t row_stride;
  std::int64_t column_stride;
};

// Computes the rows [begin, end) of c[m, n] = a[m, k] . b[k, n]. c is dense. Fastest if b's columns
// have stride 1.
template <class T>
TANDEM_MULTIVERSION void gemm_rows(std::int64_t begin, std::int64_t end, std::int64_t n,
                                   std::int64_t k, MatrixRef<const T> a, MatrixRef<const T> b,
                                   T* c) {
  constexpr int kRows = 4, kColumns = 16;
  for (std::int64_t i = begin; i < end; i += kRows) {
    const int rows = static_cast<int>(std::min<std::int64_t>(kRows, end - i));
    for (std::int64_t j = 0; j < n; j += kColumns) {
      const int columns = static_cast<int>(std::min<std::int64_t>(kColumns, n - j));
      T sum[kRows][kColumns] = {};
      if (rows == kRows && columns == kColumns && b.column_stride == 1) {
        for (std::int64_t l = 0; l < k; ++l) {
          const T* row = b.data + l * b.row_stride + j;
          for (int r = 0; r < kRows; ++r) {
            const T factor = a.data[(i + r) * a.row_stride + l * a.column_stride];
            for (int s = 0; s < kColumns; ++s) sum[r][s] += factor * row[s];
          }
        }
      } else {
        for (std::int64_t l = 0; l < k; ++l) {
          const T* row = b.data + l * b.row_stride + j * b.column_stride;
          for (int r = 0; r < rows; ++r) {
            const T factor = a.data[(i + r) * a.row_stride + l * a.column_stride];
            for (int s = 0; s < columns; ++s) sum[r][s] += factor * row[s * b.column_stride];
          }
        }
      }
      for (int r = 0; r < rows; ++r) std::copy_n(sum[r], columns, c + (i + r) * n + j);
    }
  }
}

// Computes the whole product, in parallel over the calling thread's team.
template <class T>
void gemm(std::int64_t m, std::int64_t n, std::int64_t k, MatrixRef<const T> a,
          MatrixRef<const T> b, T* c) {
  const std::int64_t work = std::max<std::int64_t>(1, n * k);
  parallel_for(
      m, std::max<std::int64_t>(1, 32768 / work),
      [&](std::int64_t begin, std::int64_t end) { gemm_rows<T>(begin, end, n, k, a, b, c); });
}

}  // namespace tandem
