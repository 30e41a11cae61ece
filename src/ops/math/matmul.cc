#include "core/status.h"
#include "op/record.h"
#include "ops/math/broadcast.h"
#include "ops/math/in_float32.h"
#include "ops/math/matmul_attrs.h"
#include "ops/math/matrix_product.h"
#include "ops/onednn/onednn.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "runtime/trace.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem {
namespace {

void infer_matmul(InferContext& c) {
  const auto& attrs = c.attrs<MatMulAttrs>();
  const Shape &a = c.shape(0), &b = c.shape(1);
  const std::string_view op = c.op().name;
  if (c.dtype(0) != c.dtype(1) || !is_floating(c.dtype(0)))
    fail<DTypeError>("[{}] expected two tensors of one floating dtype, got {} and {}", op,
                     name_of(c.dtype(0)), name_of(c.dtype(1)));
  if (a.rank() < 2 || b.rank() < 2)
    fail<ShapeError>("[{}] expected tensors of rank 2 or more, got shapes {} and {}", op,
                     a.to_string(), b.to_string());
  const std::int64_t m = a.word(attrs.transpose_a ? -1 : -2),
                     ka = a.word(attrs.transpose_a ? -2 : -1);
  const std::int64_t kb = b.word(attrs.transpose_b ? -1 : -2),
                     n = b.word(attrs.transpose_b ? -2 : -1);
  const auto shapes = [&] {
    return fmt::format("{}{} and {}{}", a.to_string(), attrs.transpose_a ? " transposed" : "",
                       b.to_string(), attrs.transpose_b ? " transposed" : "");
  };
  if (!dim::may_equal(ka, kb))
    fail<ShapeError>("[{}] expected equal inner sizes, got {} and {} (shapes {})", op,
                     dim::text(ka), dim::text(kb), shapes());
  Dims result;
  const int rank_a = a.rank() - 2, rank_b = b.rank() - 2, rank = std::max(rank_a, rank_b);
  for (int i = 0; i < rank; ++i) {
    const std::int64_t size_a = i < rank - rank_a ? 1 : a.word(i - (rank - rank_a));
    const std::int64_t size_b = i < rank - rank_b ? 1 : b.word(i - (rank - rank_b));
    if (!dim::may_broadcast(size_a, size_b))
      fail<ShapeError>("[{}] expected leading axes that broadcast, got {}", op, shapes());
    result.push_back(dim::broadcast(size_a, size_b));
  }
  result.push_back(m);
  result.push_back(n);
  c.add_output(c.dtype(0), Shape(result));
}

void matmul_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<MatMulAttrs>();
  const InFloat32 in_float32(c, !onednn::computes(bfloat16));
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
                       .autocast = kAutocastLower,
                       .saved_inputs = 0b11};
const OpDef kBatchMatMul = {.name = "BatchMatMulV2",
                            .attrs = &attrs_type<MatMulAttrs>,
                            .infer = infer_matmul,
                            .gradient = matmul_gradient,
                            .cpu_kernel = matmul_kernel,
                            .autocast = kAutocastLower,
                            .saved_inputs = 0b11};

}  // namespace

OpList matmul_ops() { return list_of<kMatMul, kBatchMatMul>(); }

Tensor matmul(const Tensor& a, const Tensor& b, const MatMulOptions& options) {
  // A vector is a row or a column.
  if (a.rank() == 1 && b.rank() >= 1 && !options.transpose_a)
    return squeeze(matmul(expand_dims(a, 0), b, options), {b.rank() == 1 ? -1 : -2});
  if (b.rank() == 1 && a.rank() >= 2 && !options.transpose_b)
    return squeeze(matmul(a, expand_dims(b, 1), options), {-1});
  const bool matrices = a.rank() <= 2 && b.rank() <= 2;
  return named(
      run(matrices ? kMatMul : kBatchMatMul, {&a, &b},
          MatMulAttrs{.transpose_a = options.transpose_a, .transpose_b = options.transpose_b}),
      options.name);
}

}  // namespace tandem
