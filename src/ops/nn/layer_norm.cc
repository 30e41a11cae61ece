// Layer normalisation: J. L. Ba, J. R. Kiros and G. E. Hinton, 2016.
#include "ops/nn/layer_norm.h"

#include <cmath>
#include <vector>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/math/float_chunks.h"
#include "ops/math/in_float32.h"
#include "ops/math/rows.h"
#include "ops/nn/norm_math.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem {
namespace {

// The number of rows per block. Each block keeps its sums for gamma and beta, which are added in
// order, so that they do not depend on the number of threads.
std::int64_t rows_in_block(std::int64_t columns) {
  return std::max<std::int64_t>(16, 16384 / columns);
}

Shape shape_of_rows(const Shape& x) {
  Dims dims;
  for (int i = 0; i + 1 < x.rank(); ++i) dims.push_back(x.word(i));
  return Shape(dims);
}

void check_layer_data(InferContext& c, int input) {
  check_dtype(c.op().name, kFloating, c.dtype(input));
  const Shape& x = c.shape(input);
  if (x.rank() < 1 || x.word(-1) == 0)
    fail<ShapeError>("[{}] expected data with a last axis to normalise over, got shape {}",
                     c.op().name, x.to_string());
}

void infer_layer_norm(InferContext& c) {
  check_layer_data(c, 0);
  check_epsilon(c);
  const Shape& x = c.shape(0);
  check_scale_and_shift(c, x.word(-1));
  c.add_output(c.dtype(0), x);
  for (int output = 1; output < 3; ++output)
    c.add_output(statistics_dtype(c.dtype(0)), shape_of_rows(x));
}

template <class T>
TANDEM_INLINED void normalise_rows(std::int64_t rows, std::int64_t columns, double epsilon,
                                   const T* x, const Compute<T>* gamma, const Compute<T>* beta,
                                   T* y, Compute<T>* means, Compute<T>* inverses) {
  using C = Compute<T>;
  const C scale = C(1) / static_cast<C>(columns);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    const C mean =
        scale * row_sum<C>(columns, [=](std::int64_t j) { return static_cast<C>(x[j]); });
    const C squares = row_sum<C>(columns, [=](std::int64_t j) {
      const C distance = static_cast<C>(x[j]) - mean;
      return distance * distance;
    });
    const C inverse = C(1) / std::sqrt(scale * squares + static_cast<C>(epsilon));
    write_elements(y, columns, [=](std::int64_t j) {
      return (static_cast<C>(x[j]) - mean) * inverse * gamma[j] + beta[j];
    });
    means[row] = mean;
    inverses[row] = inverse;
  }
}

void layer_norm_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  if (x.size() == 0) return;
  const InFloat32 in_float32(c);
  const std::int64_t columns = x.shape.word(-1);
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    const C *gamma = converted<C>(c, c.inputs[1]), *beta = converted<C>(c, c.inputs[2]);
    const std::int64_t grain = std::max<std::int64_t>(1, kElementwiseGrain / columns);
    parallel_for(x.size() / columns, grain, [&](std::int64_t begin, std::int64_t end) {
      run_loop<T, normalise_rows<T>>(end - begin, columns, c.attrs<NormAttrs>().epsilon,
                                     x.as<const T>() + begin * columns, gamma, beta,
                                     y.as<T>() + begin * columns, c.outputs[1].as<C>() + begin,
                                     c.outputs[2].as<C>() + begin);
    });
  });
}

void infer_layer_norm_grad(InferContext& c) {
  check_layer_data(c, 1);
  const Shape& x = c.shape(1);
  if (!dim::may_equal(c.shape(0), x) || c.dtype(0) != c.dtype(1))
    fail<InvalidArgumentError>("[{}] expected a gradient like the data, {} {}, got {} {}",
                               c.op().name, name_of(c.dtype(1)), x.to_string(), name_of(c.dtype(0)),
                               c.shape(0).to_string());
  check_channel_parameter(c, 2, x.word(-1));
  for (int input : {3, 4})
    if (!dim::may_equal(c.shape(input), shape_of_rows(x)) ||
        c.dtype(input) != statistics_dtype(c.dtype(0)))
      fail<InvalidArgumentError>("[{}] expected one statistic per row of {}, got {} {}",
                                 c.op().name, x.to_string(), name_of(c.dtype(input)),
                                 c.shape(input).to_string());
  c.add_output(c.dtype(1), x);
  for (int parameter = 0; parameter < 2; ++parameter) c.add_output(c.dtype(2), Shape{x.word(-1)});
}

// Computes dx of some rows, and their sums for the gradients of gamma and beta.
template <class T>
TANDEM_INLINED void gradient_rows(std::int64_t rows, std::int64_t columns, const T* dy, const T* x,
                                  const Compute<T>* gamma, const Compute<T>* means,
                                  const Compute<T>* inverses, T* dx, Compute<T>* dgamma,
                                  Compute<T>* dbeta) {
  using C = Compute<T>;
  std::fill_n(dgamma, columns, C(0));
  std::fill_n(dbeta, columns, C(0));
  const C scale = C(1) / static_cast<C>(columns);
  for (std::int64_t row = 0; row < rows; ++row, x += columns, dy += columns, dx += columns) {
    const C mean = means[row], inverse = inverses[row];
    RowSum<C> sums, products;
    sums.add(columns, [=](std::int64_t j) { return static_cast<C>(dy[j]) * gamma[j]; });
    products.add(columns, [=](std::int64_t j) {
      return static_cast<C>(dy[j]) * gamma[j] * ((static_cast<C>(x[j]) - mean) * inverse);
    });
    const C sum = scale * sums.total(), product = scale * products.total();
    write_elements(dx, columns, [=](std::int64_t j) {
      const C normal = (static_cast<C>(x[j]) - mean) * inverse;
      return inverse * (static_cast<C>(dy[j]) * gamma[j] - sum - normal * product);
    });
#pragma GCC ivdep
    for (std::int64_t j = 0; j < columns; ++j) {
      const C here = static_cast<C>(dy[j]);
      dgamma[j] += here * ((static_cast<C>(x[j]) - mean) * inverse);
      dbeta[j] += here;
    }
  }
}

template <class T>
void layer_norm_grad(KernelContext& c) {
  using C = Compute<T>;
  const TensorView& x = c.inputs[1];
  const std::int64_t columns = x.shape.word(-1), rows = x.size() / columns;
  const std::int64_t block_rows = rows_in_block(columns),
                     blocks = (rows + block_rows - 1) / block_rows;
  const C* gamma = converted<C>(c, c.inputs[2]);
  C *gammas = take<C>(c, blocks * columns), *betas = take<C>(c, blocks * columns);
  parallel_for(blocks, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t row = block * block_rows, at = row * columns;
      run_loop<T, gradient_rows<T>>(std::min(block_rows, rows - row), columns,
                                    c.inputs[0].as<const T>() + at, x.as<const T>() + at, gamma,
                                    c.inputs[3].as<const C>() + row,
                                    c.inputs[4].as<const C>() + row, c.outputs[0].as<T>() + at,
                                    gammas + block * columns, betas + block * columns);
    }
  });
  double *dgamma = take<double>(c, columns), *dbeta = take<double>(c, columns);
  std::fill_n(dgamma, columns, 0.0);
  std::fill_n(dbeta, columns, 0.0);
  for (std::int64_t block = 0; block < blocks; ++block)
    for (std::int64_t j = 0; j < columns; ++j) {
      dgamma[j] += static_cast<double>(gammas[block * columns + j]);
      dbeta[j] += static_cast<double>(betas[block * columns + j]);
    }
  store(c.outputs[1], dgamma);
  store(c.outputs[2], dbeta);
}

void layer_norm_grad_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  switch_floating(c.inputs[1].dtype, [&]<class T>(TypeTag<T>) { layer_norm_grad<T>(c); });
}

// Gradients composed of operations, for second order.
void composed_gradient(GradContext& c) {
  const Tensor &x = c.input(0), &dy = c.grad(0);
  const ReduceOptions last{.axis = Dims{-1}, .keepdims = true};
  const Tensor gamma = cast(c.input(1), x.dtype());
  const Tensor centred = x - reduce_mean(x, last);
  const Tensor inverse = rsqrt(reduce_mean(square(centred), last) + c.attrs<NormAttrs>().epsilon);
  const Tensor normal = centred * inverse;
  if (c.needs_grad(0)) {
    const Tensor slope = dy * gamma;
    c.set_grad(0, inverse * (slope - reduce_mean(slope, last) -
                             normal * reduce_mean(slope * normal, last)));
  }
  Dims leading;
  for (int i = 0; i + 1 < x.rank(); ++i) leading.push_back(i);
  if (c.needs_grad(1))
    c.set_grad(1, cast(reduce_sum(dy * normal, {.axis = leading}), c.input_spec(1).dtype));
  if (c.needs_grad(2))
    c.set_grad(2, cast(reduce_sum(dy, {.axis = leading}), c.input_spec(2).dtype));
}

void layer_norm_gradient(GradContext& c) {
  if (context.records) return composed_gradient(c);
  const Tensor mean = c.output(1), inverse = c.output(2);
  const Tensor* inputs[] = {&c.grad(0), &c.input(0), &c.input(1), &mean, &inverse};
  const std::vector<Tensor> grads = run_op(kLayerNormGrad, inputs);
  for (int i = 0; i < 3; ++i)
    if (c.needs_grad(i)) c.set_grad(i, grads[static_cast<std::size_t>(i)]);
}

}  // namespace

const OpDef kLayerNorm = {.name = "LayerNorm",
                          .attrs = &attrs_type<NormAttrs>,
                          .infer = infer_layer_norm,
                          .gradient = layer_norm_gradient,
                          .cpu_kernel = layer_norm_kernel,
                          .autocast = kAutocastFloat32OnGpus,
                          .saved_inputs = 0b011,
                          .saved_outputs = 0b110};
// Has no gradient: a backward pass that is itself recorded is composed of differentiable
// operations.
const OpDef kLayerNormGrad = {
    .name = "LayerNormGrad", .infer = infer_layer_norm_grad, .cpu_kernel = layer_norm_grad_kernel};

namespace nn {

Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  const Tensor* inputs[] = {&x, &gamma, &beta};
  return std::move(run_op(kLayerNorm, inputs, NormAttrs{.epsilon = epsilon})[0]);
}

}  // namespace nn
}  // namespace tandem
