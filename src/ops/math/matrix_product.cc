#include "ops/math/matrix_product.h"

#include "core/multiversion.h"
#include "core/parallel.h"
#include "ops/math/activation_math.h"
#include "ops/math/gemm.h"
#include "ops/onednn/onednn.h"

namespace tandem {
namespace {

// For products of at most this many multiplications, a plain loop is faster than a call of oneDNN.
constexpr std::int64_t kSmallProduct = 1024;

template <class T>
void plain_product(KernelContext& context, const MatrixProduct& product, const BatchAxes& batch,
                   std::int64_t m, std::int64_t n, std::int64_t k, const T* a, const T* b,
                   const T* bias, T* c) {
  const T* rows_of_b = b;
  const bool small = m * n * k <= kSmallProduct;
  if (product.transpose_b && !small) {  // the inner loop needs contiguous rows of b
    T* copy = static_cast<T*>(
        context.scratch(static_cast<std::size_t>(batch.count_b * n * k) * sizeof(T)));
    parallel_for(batch.count_b * k, std::max<std::int64_t>(1, 16384 / n),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     const T* from = b + (row / k) * n * k + row % k;
                     for (std::int64_t j = 0; j < n; ++j) copy[row * n + j] = from[j * k];
                   }
                 });
    rows_of_b = copy;
  }
  const bool strided_b = product.transpose_b && small;
  for (std::int64_t i = 0; i < batch.count; ++i) {
    const auto [at_a, at_b] = batch.operands(i);
    const MatrixRef<const T> left = product.transpose_a
                                        ? MatrixRef<const T>{a + at_a * m * k, 1, m}
                                        : MatrixRef<const T>{a + at_a * m * k, k, 1};
    const MatrixRef<const T> right = strided_b ? MatrixRef<const T>{b + at_b * n * k, 1, k}
                                               : MatrixRef<const T>{rows_of_b + at_b * n * k, n, 1};
    T* result = c + i * m * n;
    if (small)
      gemm_rows<T>(0, m, n, k, left, right, result);
    else
      gemm<T>(m, n, k, left, right, result);
    if (bias)
      for (std::int64_t at = 0; at < m * n; ++at) result[at] += bias[at % n];
    nn::activate_in_place(product.activation, result, m * n);
  }
}

// c += a . b for `columns` columns of b. Several rows of b, which are `stride` apart, are read at a
// time. Each element is the same sum for any number of columns.
TANDEM_INLINED void add_row_product(const float* a, const float* b, std::int64_t k,
                                    std::int64_t stride, std::int64_t columns,
                                    float* __restrict c) {
  constexpr std::int64_t kRows = 4;
  std::int64_t at = 0;
  for (; at + kRows <= k; at += kRows) {
    const float* rows = b + at * stride;
    const float a0 = a[at], a1 = a[at + 1], a2 = a[at + 2], a3 = a[at + 3];
    for (std::int64_t j = 0; j < columns; ++j) {
      float sum = c[j] + a0 * rows[j];
      sum += a1 * rows[stride + j];
      sum += a2 * rows[2 * stride + j];
      c[j] = sum + a3 * rows[3 * stride + j];
    }
  }
  for (; at < k; ++at)
    for (std::int64_t j = 0; j < columns; ++j) c[j] += a[at] * b[at * stride + j];
}

// A row times a matrix, which is read once: oneDNN's product takes up to twice as long for one row.
void row_product(std::int64_t n, std::int64_t k, const float* a, const float* b, const float* bias,
                 float* c) {
  parallel_for(n, std::max<std::int64_t>(64, (1 << 17) / k),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t j = begin; j < end; ++j) c[j] = bias ? bias[j] : 0.0f;
                 run_loop<float, add_row_product>(a, b + begin, k, n, end - begin, c + begin);
               });
}

// Weights that do not change are packed for a convolution, which is as fast. oneDNN's product
// splits long sums among the threads.
bool is_row_product(const KernelContext& context, const MatrixProduct& product,
                    const BatchAxes& batch, std::int64_t m, std::int64_t n, std::int64_t k,
                    const TensorView& b) {
  const bool packed = b.version == TensorView::kConstant && context.kept;
  return b.dtype == float32 && m == 1 && n >= 16 && k <= 64 * n && batch.count == 1 &&
         !product.transpose_b && !packed;
}

}  // namespace

void matrix_product(KernelContext& context, const MatrixProduct& product, const TensorView& a,
                    const TensorView& b, const TensorView* bias, const TensorView& c) {
  if (c.size() == 0) return;
  const auto [m, n, k, batch] = ProductSizes(product, a.shape, b.shape, c.shape);
  if (c.dtype == float64)
    return plain_product(context, product, batch, m, n, k, a.as<const double>(),
                         b.as<const double>(), bias ? bias->as<const double>() : nullptr,
                         c.as<double>());
  if (c.dtype == float32 && (k == 0 || batch.count * m * n * k <= kSmallProduct)) {
    plain_product(context, product, batch, m, n, k, a.as<const float>(), b.as<const float>(),
                  bias ? bias->as<const float>() : nullptr, c.as<float>());
  } else if (is_row_product(context, product, batch, m, n, k, b)) {
    row_product(n, k, a.as<const float>(), b.as<const float>(),
                bias ? bias->as<const float>() : nullptr, c.as<float>());
    nn::activate_in_place(product.activation, c.dtype, c.data, c.size());
  } else if (k == 0) {
    // bfloat16 with k = 0: the bias and the activation only, rounded once.
    for (std::int64_t i = 0; i < c.size(); ++i) {
      float value = bias ? static_cast<float>(bias->as<const BFloat16>()[i % n]) : 0.0f;
      run_loop<float, nn::activate_range<float>>(product.activation, &value, 1);
      c.as<BFloat16>()[i] = BFloat16(value);
    }
  } else {
    // A vector and its transpose have the same layout in memory. oneDNN does not distinguish them
    // and would reuse the primitive that it made for the other one.
    onednn::matmul(context,
                   {.dtype = c.dtype,
                    .batch_a = batch.a,
                    .batch_b = batch.b,
                    .m = m,
                    .n = n,
                    .k = k,
                    .transpose_a = product.transpose_a && m > 1 && k > 1,
                    .transpose_b = product.transpose_b && n > 1 && k > 1,
                    .bias = bias != nullptr},
                   a.data, b, bias ? bias->data : nullptr, c.data);
    nn::activate_in_place(product.activation, c.dtype, c.data, c.size());
  }
}

}  // namespace tandem
