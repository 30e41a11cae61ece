#include "ops/math/matmul.h"

#include "core/status.h"
#include "op/record.h"
#include "ops/math/activation_math.h"
#include "ops/math/broadcast.h"
#include "ops/math/gemm.h"
#include "ops/onednn/onednn.h"
#include "ops/onednn/widen.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "runtime/trace.h"
#include "tandem/math.h"

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

}  // namespace

void matrix_product(KernelContext& context, const MatrixProduct& product, const TensorView& a,
                    const TensorView& b, const TensorView* bias, const TensorView& c) {
  if (c.size() == 0) return;
  const auto [m, n, k, batch] = ProductSizes(product, a.shape, b.shape, c.shape);
  if (c.dtype == float64)
    return plain_product(context, product, batch, m, n, k, a.as<const double>(),
                         b.as<const double>(), bias ? bias->as<const double>() : nullptr,
                         c.as<double>());
  const void* wide_a = onednn::widened(context, a);
  const void* wide_b = onednn::widened(context, b);
  const void* wide_bias = bias ? onednn::widened(context, *bias) : nullptr;
  void* wide_c = onednn::wide_output(context, c);
  const DType dtype = onednn::compute_dtype(c.dtype);
  if (dtype == float32 && (k == 0 || batch.count * m * n * k <= kSmallProduct)) {
    plain_product(context, product, batch, m, n, k, static_cast<const float*>(wide_a),
                  static_cast<const float*>(wide_b), static_cast<const float*>(wide_bias),
                  static_cast<float*>(wide_c));
  } else if (k == 0) {
    // bfloat16 with k = 0: the bias and the activation only, rounded once.
    for (std::int64_t i = 0; i < c.size(); ++i) {
      float value = bias ? static_cast<float>(bias->as<const BFloat16>()[i % n]) : 0.0f;
      nn::activate_range(product.activation, &value, 1);
      c.as<BFloat16>()[i] = BFloat16(value);
    }
  } else {
    // A vector and its transpose have the same layout in memory. oneDNN does not distinguish them
    // and would reuse the primitive that it made for the other one.
    onednn::matmul(context,
                   {.dtype = dtype,
                    .batch_a = batch.a,
                    .batch_b = batch.b,
                    .m = m,
                    .n = n,
                    .k = k,
                    .transpose_a = product.transpose_a && m > 1 && k > 1,
                    .transpose_b = product.transpose_b && n > 1 && k > 1,
                    .bias = bias != nullptr},
                   wide_a, wide_b, wide_bias, wide_c);
    nn::activate_in_place(product.activation, dtype, wide_c, c.size());
  }
  onednn::finish(c, wide_c);
}

namespace {

void infer_matmul(InferContext& c) {
  const auto& attrs = c.attrs<MatMulAttrs>();
  const Shape &a = c.shape(0), &b = c.shape(1);
  const std::string_view op = c.op().name;
  if (c.dtype(0) != c.dtype(1) || !is_floating(c.dtype(0)))
    fail<InvalidArgumentError>("[{}] expected two tensors of one floating dtype, got {} and {}", op,
                               name_of(c.dtype(0)), name_of(c.dtype(1)));
  if (a.rank() < 2 || b.rank() < 2)
    fail<InvalidArgumentError>("[{}] expected tensors of rank 2 or more, got shapes {} and {}", op,
                               a.to_string(), b.to_string());
  const std::int64_t m = a.dim(attrs.transpose_a ? -1 : -2),
                     ka = a.dim(attrs.transpose_a ? -2 : -1);
  const std::int64_t kb = b.dim(attrs.transpose_b ? -1 : -2),
                     n = b.dim(attrs.transpose_b ? -2 : -1);
  const auto shapes = [&] {
    return fmt::format("{}{} and {}{}", a.to_string(), attrs.transpose_a ? " transposed" : "",
                       b.to_string(), attrs.transpose_b ? " transposed" : "");
  };
  if (ka != kb)
    fail<InvalidArgumentError>("[{}] expected equal inner sizes, got {} and {} (shapes {})", op, ka,
                               kb, shapes());
  Dims result;
  const int rank_a = a.rank() - 2, rank_b = b.rank() - 2, rank = std::max(rank_a, rank_b);
  for (int i = 0; i < rank; ++i) {
    const std::int64_t size_a = i < rank - rank_a ? 1 : a[i - (rank - rank_a)];
    const std::int64_t size_b = i < rank - rank_b ? 1 : b[i - (rank - rank_b)];
    if (size_a != size_b && size_a != 1 && size_b != 1)
      fail<InvalidArgumentError>("[{}] expected leading axes that broadcast, got {}", op, shapes());
    result.push_back(size_a == 1 ? size_b : size_a);
  }
  result.push_back(m);
  result.push_back(n);
  c.add_output(c.dtype(0), Shape(result));
}

void matmul_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<MatMulAttrs>();
  matrix_product(c, {.transpose_a = attrs.transpose_a, .transpose_b = attrs.transpose_b},
                 c.inputs[0], c.inputs[1], nullptr, c.outputs[0]);
}

void matmul_gradient(GradContext& c) {
  const auto& attrs = c.attrs<MatMulAttrs>();
  const bool ta = attrs.transpose_a, tb = attrs.transpose_b;
  const Tensor& g = c.grad();
  if (c.needs_grad(0)) {
    const Tensor& b = c.input(1);
    const Tensor da = ta ? matmul(b, g, {.transpose_a = tb, .transpose_b = true})
                         : matmul(g, b, {.transpose_b = !tb});
    c.set_grad(0, sum_to_shape(da, c.input_spec(0).shape));
  }
  if (c.needs_grad(1)) {
    const Tensor& a = c.input(0);
    const Tensor db = tb ? matmul(g, a, {.transpose_a = true, .transpose_b = ta})
                         : matmul(a, g, {.transpose_a = !ta});
    c.set_grad(1, sum_to_shape(db, c.input_spec(1).shape));
  }
}

// TensorFlow's names: MatMul for matrices, BatchMatMulV2 for batches.
const OpDef kMatMul = {.name = "MatMul",
                       .attrs = &attrs_type<MatMulAttrs>,
                       .infer = infer_matmul,
                       .gradient = matmul_gradient,
                       .cpu_kernel = matmul_kernel,
                       .saved_inputs = 0b11};
const OpDef kBatchMatMul = {.name = "BatchMatMulV2",
                            .attrs = &attrs_type<MatMulAttrs>,
                            .infer = infer_matmul,
                            .gradient = matmul_gradient,
                            .cpu_kernel = matmul_kernel,
                            .saved_inputs = 0b11};

}  // namespace

OpList matmul_ops() { return list_of<kMatMul, kBatchMatMul>(); }

Tensor matmul(const Tensor& a, const Tensor& b, const MatMulOptions& options) {
  const bool matrices = a.rank() <= 2 && b.rank() <= 2;
  return named(
      run(matrices ? kMatMul : kBatchMatMul, {&a, &b},
          MatMulAttrs{.transpose_a = options.transpose_a, .transpose_b = options.transpose_b}),
      options.name);
}

}  // namespace tandem
