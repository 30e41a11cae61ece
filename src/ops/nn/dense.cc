#include "ops/nn/dense.h"

#include "core/multiversion.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/math/activation_math.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/math/in_float32.h"
#include "ops/math/matrix_product.h"
#include "ops/nn/activation.h"
#include "ops/nn/columns.h"
#include "ops/onednn/onednn.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "runtime/gradient_buffer.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem {
namespace {

void check_same_dtypes(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  for (int i = 1; i < c.num_inputs(); ++i)
    if (c.dtype(i) != c.dtype(0))
      fail<DTypeError>("[{}] expected one dtype, got {} and {}", c.op().name, name_of(c.dtype(0)),
                       name_of(c.dtype(i)));
}

void check_bias(InferContext& c, int input, std::int64_t size) {
  const Shape& bias = c.shape(input);
  if (bias.rank() != 1 || !dim::may_equal(bias.word(0), size))
    fail<ShapeError>("[{}] expected a bias of shape ({},), got {}", c.op().name, dim::text(size),
                     bias.to_string());
}

void infer_fused_matmul(InferContext& c) {
  check_same_dtypes(c);
  const Shape &x = c.shape(0), &weights = c.shape(1);
  if (x.rank() < 2)
    fail<ShapeError>("[{}] expected an input of rank 2 or more, got shape {}", c.op().name,
                     x.to_string());
  if (weights.rank() != 2 || !dim::may_equal(weights.word(0), x.word(-1)))
    fail<ShapeError>("[{}] expected weights of shape ({}, units) for an input of shape {}, got {}",
                     c.op().name, dim::text(x.word(-1)), x.to_string(), weights.to_string());
  if (c.num_inputs() == 3) check_bias(c, 2, weights.word(1));
  Shape result = x;
  result.set(x.rank() - 1, weights.word(1));
  c.add_output(c.dtype(0), result);
}

void fused_matmul_kernel(KernelContext& c) {
  const InFloat32 in_float32(c, !onednn::computes(bfloat16));
  matrix_product(c, {.activation = c.attrs<FusedMatMulAttrs>().activation}, as_rows(c.inputs[0]),
                 c.inputs[1], c.inputs.size() == 3 ? &c.inputs[2] : nullptr, as_rows(c.outputs[0]));
}

// Reshapes [..., columns] to [rows, columns].
Tensor rows_of(const Tensor& x) {
  const Shape leading(x.shape().words().span().first(static_cast<std::size_t>(x.rank() - 1)));
  return reshape(x, {dim::num_elements(leading), x.size_word(-1)});
}

void product_gradients(GradContext& c, const Tensor& dz) {
  if (c.needs_grad(0)) c.set_grad(0, matmul(dz, c.input(1), {.transpose_b = true}));
  if (c.needs_grad(1)) {
    const Tensor& x = c.input(0);
    const GradientBufferScope place(c, 1);
    if (x.rank() == 2) {
      c.set_grad(1, matmul(x, dz, {.transpose_a = true}));
    } else {
      c.set_grad(1, matmul(rows_of(x), rows_of(dz), {.transpose_a = true}));
    }
  }
  if (c.num_inputs() == 3 && c.needs_grad(2)) c.set_grad(2, run(kBiasAddGrad, {&dz}));
}

void fused_matmul_gradient(GradContext& c) {
  product_gradients(c, nn::fused_activation_gradient(c.attrs<FusedMatMulAttrs>().activation,
                                                     c.take_grad(), c.output(0)));
}

void matmul_bias_add_gradient(GradContext& c) { product_gradients(c, c.grad()); }

void infer_bias_add(InferContext& c) {
  check_same_dtypes(c);
  const Shape& x = c.shape(0);
  if (x.rank() < 1)
    fail<ShapeError>("[{}] expected an input of rank 1 or more, got a scalar", c.op().name);
  check_bias(c, 1, x.word(-1));
  c.add_output(c.dtype(0), x);
}

template <class T>
TANDEM_INLINED void bias_add_rows(const T* x, const T* bias, T* y, std::int64_t rows,
                                  std::int64_t columns) {
  using C = Compute<T>;
  write_rows(y, rows * columns, columns, [=](std::int64_t i, std::int64_t j) {
    return static_cast<C>(x[i]) + static_cast<C>(bias[j]);
  });
}

void bias_add_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const TensorView x = as_rows(c.inputs[0]);
  const std::int64_t rows = x.shape.word(0), columns = x.shape.word(1);
  if (x.size() == 0) return;
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    parallel_for(rows, std::max<std::int64_t>(1, kElementwiseGrain / columns),
                 [&](std::int64_t begin, std::int64_t end) {
                   run_loop<T, bias_add_rows<T>>(
                       x.as<const T>() + begin * columns, c.inputs[1].as<const T>(),
                       c.outputs[0].as<T>() + begin * columns, end - begin, columns);
                 });
  });
}

void bias_add_gradient(GradContext& c) {
  if (c.needs_grad(0)) c.set_grad(0, c.grad());
  if (c.needs_grad(1)) c.set_grad(1, run(kBiasAddGrad, {&c.grad()}));
}

void infer_bias_add_grad(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  if (c.shape(0).rank() < 1)
    fail<ShapeError>("[{}] expected an input of rank 1 or more, got a scalar", c.op().name);
  c.add_output(c.dtype(0), Shape{c.shape(0).word(-1)});
}

template <class T>
TANDEM_INLINED void sum_block(ColumnBlocks blocks, std::int64_t block, const T* x,
                              Compute<T>* sums) {
  blocks.sum_block(block, sums,
                   [x](std::int64_t i, std::int64_t) { return static_cast<Compute<T>>(x[i]); });
}

void bias_add_grad_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const TensorView x = as_rows(c.inputs[0]);
  const std::int64_t columns = x.shape.word(1);
  if (columns == 0) return;
  const ColumnBlocks blocks(x.shape.word(0), columns);
  auto* totals =
      static_cast<double*>(c.scratch(static_cast<std::size_t>(columns) * sizeof(double)));
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    auto* partial =
        static_cast<C*>(c.scratch(static_cast<std::size_t>(blocks.blocks * columns) * sizeof(C)));
    blocks.for_blocks([&](std::int64_t block) {
      run_loop<T, sum_block<T>>(blocks, block, x.as<const T>(), partial + block * columns);
    });
    blocks.add_blocks(partial, totals);
    for (std::int64_t j = 0; j < columns; ++j) c.outputs[0].as<T>()[j] = store_as<T>(totals[j]);
  });
}

void bias_add_grad_gradient(GradContext& c) {
  c.set_grad(0, broadcast_to(c.grad(), c.input_spec(0).shape));
}

}  // namespace

const OpDef kFusedMatMul = {.name = "FusedMatMul",
                            .attrs = &attrs_type<FusedMatMulAttrs>,
                            .infer = infer_fused_matmul,
                            .gradient = fused_matmul_gradient,
                            .cpu_kernel = fused_matmul_kernel,
                            .autocast = kAutocastLower,
                            .saved_inputs = 0b011,
                            .saved_outputs = 0b1};
const OpDef kMatMulBiasAdd = {.name = "MatMulBiasAdd",
                              .attrs = &attrs_type<FusedMatMulAttrs>,
                              .infer = infer_fused_matmul,
                              .gradient = matmul_bias_add_gradient,
                              .cpu_kernel = fused_matmul_kernel,
                              .autocast = kAutocastLower,
                              .saved_inputs = 0b011};
const OpDef kBiasAdd = {.name = "BiasAdd",
                        .infer = infer_bias_add,
                        .gradient = bias_add_gradient,
                        .cpu_kernel = bias_add_kernel,
                        .traits = kInPlace,
                        .autocast = kAutocastLower};
const OpDef kBiasAddGrad = {.name = "BiasAddGrad",
                            .infer = infer_bias_add_grad,
                            .gradient = bias_add_grad_gradient,
                            .cpu_kernel = bias_add_grad_kernel};

OpList dense_ops() { return list_of<kFusedMatMul, kMatMulBiasAdd, kBiasAdd, kBiasAddGrad>(); }

namespace nn {

Tensor dense(const Tensor& x, const Tensor& weights, const Tensor& bias, Activation activation) {
  if (x.rank() == 1) {
    const Tensor row = dense(reshape(x, {1, x.size_word(0)}), weights, bias, activation);
    return reshape(row, {row.size_word(1)});
  }
  const bool fused = is_fused(activation);
  const FusedMatMulAttrs attrs{.activation = fused ? activation : Activation::kLinear};
  const OpDef& op = attrs.activation == Activation::kLinear ? kMatMulBiasAdd : kFusedMatMul;
  const Tensor y =
      bias.defined() ? run(op, {&x, &weights, &bias}, attrs) : run(op, {&x, &weights}, attrs);
  return fused ? y : activate(y, activation);
}

Tensor bias_add(const Tensor& x, const Tensor& bias) { return run(kBiasAdd, {&x, &bias}); }

}  // namespace nn
}  // namespace tandem
