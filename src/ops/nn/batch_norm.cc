// Batch normalisation: S. Ioffe and C. Szegedy, 2015.
#include <cmath>
#include <vector>

#include "core/multiversion.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "op/record.h"
#include "ops/math/element_count.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/math/in_float32.h"
#include "ops/nn/batch_norm.h"
#include "ops/nn/columns.h"
#include "ops/nn/layer_norm.h"
#include "ops/nn/norm_math.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem {
namespace {

void check_data(InferContext& c, int input) {
  check_dtype(c.op().name, kFloating, c.dtype(input));
  if (c.shape(input).rank() < 2)
    fail<ShapeError>("[{}] expected data of rank 2 or more, got shape {}", c.op().name,
                     c.shape(input).to_string());
}

void check_channels(InferContext& c, const Shape& x) {
  if (x.word(-1) == 0)
    fail<ShapeError>("[{}] expected data to take moments of, got shape {}", c.op().name,
                     x.to_string());
}

ColumnBlocks blocks_of(const TensorView& x) {
  const std::int64_t columns = x.shape.word(-1);
  return {x.size() / columns, columns};
}

// The means of a block and the sums of squared distances from them. Takes two passes over a block
// that fits into the cache.
template <class T>
TANDEM_INLINED void block_moments(ColumnBlocks blocks, std::int64_t block, const T* x,
                                  Compute<T>* means, Compute<T>* squares, Compute<T>* wide) {
  using C = Compute<T>;
  blocks.sum_block(block, means,
                   [x](std::int64_t i, std::int64_t) { return static_cast<C>(x[i]); });
  const C scale = C(1) / static_cast<C>(blocks.rows_in(block));
  for (std::int64_t c = 0; c < blocks.columns; ++c) means[c] *= scale;
  blocks.widen(means, wide);
  blocks.sum_block(block, squares, [x, wide](std::int64_t i, std::int64_t j) {
    const C distance = static_cast<C>(x[i]) - wide[j];
    return distance * distance;
  });
}

// The mean and population variance of each column, in double. The moments of blocks are combined by
// the method of T. F. Chan, G. H. Golub and R. J. LeVeque, 1979.
template <class T>
void moments(KernelContext& c, const ColumnBlocks& blocks, const T* x, double* mean,
             double* variance) {
  using C = Compute<T>;
  C* means = take<C>(c, blocks.blocks * blocks.columns);
  C* squares = take<C>(c, blocks.blocks * blocks.columns);
  C* wide = take<C>(c, blocks.blocks * blocks.width);
  blocks.for_blocks([&](std::int64_t block) {
    run_loop<T, block_moments<T>>(blocks, block, x, means + block * blocks.columns,
                                  squares + block * blocks.columns, wide + block * blocks.width);
  });
  const double rows = static_cast<double>(blocks.rows);
  std::fill_n(mean, blocks.columns, 0.0);
  std::fill_n(variance, blocks.columns, 0.0);
  for (std::int64_t block = 0; block < blocks.blocks; ++block) {
    const double share = static_cast<double>(blocks.rows_in(block)) / rows;
    for (std::int64_t i = 0; i < blocks.columns; ++i)
      mean[i] += share * static_cast<double>(means[block * blocks.columns + i]);
  }
  for (std::int64_t block = 0; block < blocks.blocks; ++block) {
    const double share = static_cast<double>(blocks.rows_in(block)) / rows;
    for (std::int64_t i = 0; i < blocks.columns; ++i) {
      const double distance = static_cast<double>(means[block * blocks.columns + i]) - mean[i];
      variance[i] += share * distance * distance +
                     static_cast<double>(squares[block * blocks.columns + i]) / rows;
    }
  }
}

// y = (x - mean) * scale + shift in rows of `width`, with one parameter per column.
template <class T>
TANDEM_INLINED void normalise_range(const T* x, T* y, std::int64_t count, std::int64_t width,
                                    const Compute<T>* mean, const Compute<T>* scale,
                                    const Compute<T>* shift) {
  using C = Compute<T>;
  write_rows(y, count, width, [=](std::int64_t i, std::int64_t j) {
    return (static_cast<C>(x[i]) - mean[j]) * scale[j] + shift[j];
  });
}

// Normalises the whole tensor by the given moments, which are in double.
template <class T>
void normalise(KernelContext& c, const TileHooks& hooks, const ColumnBlocks& blocks, const T* x,
               T* y, const double* mean, const double* variance, const double* gamma,
               const double* beta, double epsilon) {
  using C = Compute<T>;
  C *means = take<C>(c, blocks.width), *scales = take<C>(c, blocks.width),
    *shifts = take<C>(c, blocks.width);
  for (std::int64_t j = 0; j < blocks.width; ++j) {
    const std::int64_t i = j % blocks.columns;
    means[j] = static_cast<C>(mean[i]);
    scales[j] = static_cast<C>(gamma[i] / std::sqrt(variance[i] + epsilon));
    shifts[j] = static_cast<C>(beta[i]);
  }
  blocks.for_blocks([&](std::int64_t block) {
    const std::int64_t at = blocks.begin(block), count = blocks.rows_in(block) * blocks.columns;
    run_loop<T, normalise_range<T>>(x + at, y + at, count, blocks.width, means, scales, shifts);
    hooks.after(at, count);
  });
}

// --- training: inputs x, gamma, beta; outputs y, and the batch's mean and variance (0 for no rows)

void infer_training(InferContext& c) {
  check_data(c, 0);
  check_epsilon(c);
  const Shape& x = c.shape(0);
  check_scale_and_shift(c, x.word(-1));
  check_channels(c, x);
  c.add_output(c.dtype(0), x);
  for (int moment = 0; moment < 2; ++moment)
    c.add_output(statistics_dtype(c.dtype(0)), Shape{x.word(-1)});
}

void tiled_training(KernelContext& c, const TileHooks& hooks) {
  const InFloat32 in_float32(c);
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  const ColumnBlocks blocks = blocks_of(x);
  double *mean = take<double>(c, blocks.columns), *variance = take<double>(c, blocks.columns);
  const double *gamma = converted<double>(c, c.inputs[1]),
               *beta = converted<double>(c, c.inputs[2]);
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    moments(c, blocks, x.as<const T>(), mean, variance);
    normalise(c, hooks, blocks, x.as<const T>(), y.as<T>(), mean, variance, gamma, beta,
              c.attrs<NormAttrs>().epsilon);
  });
  store(c.outputs[1], mean);
  store(c.outputs[2], variance);
}

void training_kernel(KernelContext& c) { tiled_training(c, TileHooks()); }

extern const OpDef kBatchNorm, kBatchNormGrad, kBatchNormInference;

// All axes but the last.
Dims leading_axes(const Shape& shape) {
  Dims axes;
  for (int i = 0; i + 1 < shape.rank(); ++i) axes.push_back(i);
  return axes;
}

// The number of rows of channels as a scalar, since it may be unknown until a graph runs.
Tensor row_count(const Tensor& x, DType dtype) {
  return element_count(
      Shape(x.shape().words().span().first(static_cast<std::size_t>(x.rank() - 1))), dtype);
}

// Gradients composed of operations, for second order and for gradients of the moments.
void composed_training_gradient(GradContext& c) {
  const Tensor& x = c.input(0);
  const DType data = x.dtype();
  const Dims axes = leading_axes(x.shape());
  const Tensor gamma = cast(c.input(1), data);
  const Tensor mean = reduce_mean(x, {.axis = axes}), centred = x - mean;
  const Tensor inverse =
      rsqrt(reduce_mean(square(centred), {.axis = axes}) + c.attrs<NormAttrs>().epsilon);
  const Tensor normal = centred * inverse;
  Tensor dx;
  const auto add_to_dx = [&](const Tensor& term) { dx = dx.defined() ? dx + term : term; };
  if (c.grad(0).defined()) {
    const Tensor& dy = c.grad(0);
    const Tensor slope = dy * gamma;
    add_to_dx(inverse * (slope - reduce_mean(slope, {.axis = axes}) -
                         normal * reduce_mean(slope * normal, {.axis = axes})));
    if (c.needs_grad(1))
      c.set_grad(1, cast(reduce_sum(dy * normal, {.axis = axes}), c.input_spec(1).dtype));
    if (c.needs_grad(2)) c.set_grad(2, cast(reduce_sum(dy, {.axis = axes}), c.input_spec(2).dtype));
  }
  const auto share = [&](const Tensor& grad) { return cast(grad, data) / row_count(x, data); };
  if (c.grad(1).defined()) add_to_dx(broadcast_to(share(c.grad(1)), x.shape()));
  if (c.grad(2).defined()) add_to_dx(centred * (share(c.grad(2)) * 2.0));
  if (c.needs_grad(0) && dx.defined()) c.set_grad(0, dx);
}

// Sets the gradients of x, gamma and beta.
void kernel_gradients(GradContext& c, const Tensor& mean, const Tensor& variance,
                      bool given_moments) {
  const std::vector<Tensor> grads = run_op_in_place(
      kBatchNormGrad, c.take_grad(0), {&c.input(0), &c.input(1), &mean, &variance},
      NormAttrs{.epsilon = c.attrs<NormAttrs>().epsilon, .given_moments = given_moments});
  for (int i = 0; i < 3; ++i)
    if (c.needs_grad(i)) c.set_grad(i, grads[static_cast<std::size_t>(i)]);
}

void training_gradient(GradContext& c) {
  if (context.records || c.grad(1).defined() || c.grad(2).defined())
    return composed_training_gradient(c);
  kernel_gradients(c, c.output(1), c.output(2), false);
}

// --- its gradient: inputs dy, x, gamma, mean, variance; outputs dx, dgamma, dbeta ---

void infer_training_grad(InferContext& c) {
  check_data(c, 0);
  const Shape& x = c.shape(1);
  if (!dim::may_equal(c.shape(0), x) || c.dtype(0) != c.dtype(1))
    fail<InvalidArgumentError>("[{}] expected a gradient like the data, {} {}, got {} {}",
                               c.op().name, name_of(c.dtype(1)), x.to_string(), name_of(c.dtype(0)),
                               c.shape(0).to_string());
  check_epsilon(c);
  check_channels(c, x);
  for (int input : {2, 3, 4}) check_channel_parameter(c, input, x.word(-1));
  c.add_output(c.dtype(0), x);
  c.add_output(c.dtype(2), Shape{x.word(-1)});
  c.add_output(c.dtype(2), Shape{x.word(-1)});
}

// The sums of dy and of dy * (x - mean) over a block.
template <class T>
TANDEM_INLINED void block_gradient_sums(ColumnBlocks blocks, std::int64_t block, const T* dy,
                                        const T* x, const Compute<T>* mean, Compute<T>* sums,
                                        Compute<T>* products) {
  using C = Compute<T>;
  blocks.sum_block(
      block, sums, [dy](std::int64_t i, std::int64_t) { return static_cast<C>(dy[i]); }, products,
      [dy, x, mean](std::int64_t i, std::int64_t j) {
        return static_cast<C>(dy[i]) * (static_cast<C>(x[i]) - mean[j]);
      });
}

// dx = scale * dy + slope * (x - mean) + shift; dx may be dy.
template <class T>
TANDEM_INLINED void gradient_range(const T* dy, const T* x, T* dx, std::int64_t count,
                                   std::int64_t width, const Compute<T>* mean,
                                   const Compute<T>* scale, const Compute<T>* slope,
                                   const Compute<T>* shift) {
  using C = Compute<T>;
  write_rows(dx, count, width, [=](std::int64_t i, std::int64_t j) {
    return static_cast<C>(dy[i]) * scale[j] + (static_cast<C>(x[i]) - mean[j]) * slope[j] +
           shift[j];
  });
}

template <class T>
void training_grad(KernelContext& c, const TileHooks& hooks) {
  using C = Compute<T>;
  const ColumnBlocks blocks = blocks_of(c.inputs[1]);
  const std::int64_t columns = blocks.columns, width = blocks.width;
  const T *dy = c.inputs[0].as<const T>(), *x = c.inputs[1].as<const T>();
  const double *gamma = converted<double>(c, c.inputs[2]),
               *mean = converted<double>(c, c.inputs[3]),
               *variance = converted<double>(c, c.inputs[4]);
  C* means = take<C>(c, width);
  for (std::int64_t j = 0; j < width; ++j) means[j] = static_cast<C>(mean[j % columns]);
  C *sums = take<C>(c, blocks.blocks * columns), *products = take<C>(c, blocks.blocks * columns);
  blocks.for_blocks([&](std::int64_t block) {
    hooks.before(blocks.begin(block), blocks.rows_in(block) * columns);
    run_loop<T, block_gradient_sums<T>>(blocks, block, dy, x, means, sums + block * columns,
                                        products + block * columns);
  });
  double *dbeta = take<double>(c, columns), *dgamma = take<double>(c, columns);
  blocks.add_blocks(sums, dbeta);
  blocks.add_blocks(products, dgamma);
  C *scales = take<C>(c, width), *slopes = take<C>(c, width), *shifts = take<C>(c, width);
  const double rows = c.attrs<NormAttrs>().divisor(static_cast<double>(blocks.rows));
  for (std::int64_t j = 0; j < width; ++j) {
    const std::int64_t i = j % columns;
    const double inverse = 1.0 / std::sqrt(variance[i] + c.attrs<NormAttrs>().epsilon),
                 scale = gamma[i] * inverse;
    scales[j] = static_cast<C>(scale);
    slopes[j] = static_cast<C>(-scale * inverse * inverse * dgamma[i] / rows);
    shifts[j] = static_cast<C>(-scale * dbeta[i] / rows);
  }
  T* dx = c.outputs[0].as<T>();
  blocks.for_blocks([&](std::int64_t block) {
    const std::int64_t at = blocks.begin(block), count = blocks.rows_in(block) * columns;
    run_loop<T, gradient_range<T>>(dy + at, x + at, dx + at, count, width, means, scales, slopes,
                                   shifts);
    hooks.after(at, count);
  });
  for (std::int64_t i = 0; i < columns; ++i)
    dgamma[i] /= std::sqrt(variance[i] + c.attrs<NormAttrs>().epsilon);
  store(c.outputs[1], dgamma);
  store(c.outputs[2], dbeta);
}

void tiled_training_grad(KernelContext& c, const TileHooks& hooks) {
  const InFloat32 in_float32(c);
  switch_floating(c.inputs[1].dtype, [&]<class T>(TypeTag<T>) { training_grad<T>(c, hooks); });
}

void training_grad_kernel(KernelContext& c) { tiled_training_grad(c, TileHooks()); }

// --- moments alone: input x; outputs the mean and variance, which are 0 for no rows ---

void infer_moments(InferContext& c) {
  check_data(c, 0);
  for (int moment = 0; moment < 2; ++moment)
    c.add_output(statistics_dtype(c.dtype(0)), Shape{c.shape(0).word(-1)});
}

void moments_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  const TensorView& x = c.inputs[0];
  const std::int64_t columns = x.shape.word(-1);
  double *mean = take<double>(c, columns), *variance = take<double>(c, columns);
  std::fill_n(mean, columns, 0.0);
  std::fill_n(variance, columns, 0.0);
  if (x.size() > 0)
    switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
      moments(c, blocks_of(x), x.as<const T>(), mean, variance);
    });
  store(c.outputs[0], mean);
  store(c.outputs[1], variance);
}

void moments_gradient(GradContext& c) {
  const DType wide = c.output_spec(0).dtype;
  const Tensor x = cast(c.input(0), wide), rows = maximum(row_count(x, wide), 1.0);
  Tensor dx;
  if (c.grad(1).defined()) dx = (x - c.output(0)) * (c.grad(1) / rows * 2.0);
  if (c.grad(0).defined()) {
    const Tensor share = c.grad(0) / rows;
    dx = dx.defined() ? dx + share : broadcast_to(share, x.shape());
  }
  c.set_grad(0, cast(dx, c.input_spec(0).dtype));
}

// --- inference: inputs x, gamma, beta, mean, variance ---

void infer_inference(InferContext& c) {
  check_data(c, 0);
  check_epsilon(c);
  for (int input : {1, 2, 3, 4}) check_channel_parameter(c, input, c.shape(0).word(-1));
  c.add_output(c.dtype(0), c.shape(0));
}

void tiled_inference(KernelContext& c, const TileHooks& hooks) {
  const TensorView &x = c.inputs[0], &y = c.outputs[0];
  if (x.size() == 0) return;
  const InFloat32 in_float32(c);
  const double *gamma = converted<double>(c, c.inputs[1]),
               *beta = converted<double>(c, c.inputs[2]), *mean = converted<double>(c, c.inputs[3]),
               *variance = converted<double>(c, c.inputs[4]);
  switch_floating(x.dtype, [&]<class T>(TypeTag<T>) {
    normalise(c, hooks, blocks_of(x), x.as<const T>(), y.as<T>(), mean, variance, gamma, beta,
              c.attrs<NormAttrs>().epsilon);
  });
}

void inference_kernel(KernelContext& c) { tiled_inference(c, TileHooks()); }

void inference_gradient(GradContext& c) {
  const bool by_kernel = !context.records && !c.needs_grad(3) && !c.needs_grad(4) &&
                         (c.needs_grad(1) || c.needs_grad(2));
  if (by_kernel) return kernel_gradients(c, c.input(3), c.input(4), true);
  const DType wide = statistics_dtype(c.input(0).dtype());
  const Tensor x = cast(c.input(0), wide), dy = cast(c.grad(), wide);
  const Dims axes = leading_axes(x.shape());
  const Tensor gamma = cast(c.input(1), wide), mean = cast(c.input(3), wide);
  const Tensor inverse = rsqrt(cast(c.input(4), wide) + c.attrs<NormAttrs>().epsilon);
  const auto set = [&](int input, const Tensor& gradient) {
    c.set_grad(input, cast(gradient, c.input_spec(input).dtype));
  };
  if (c.needs_grad(0)) set(0, dy * (gamma * inverse));
  if (c.needs_grad(2) || c.needs_grad(3)) {
    const Tensor sum = reduce_sum(dy, {.axis = axes});
    if (c.needs_grad(2)) set(2, sum);
    if (c.needs_grad(3)) set(3, -sum * gamma * inverse);
  }
  if (c.needs_grad(1) || c.needs_grad(4)) {
    const Tensor product = reduce_sum(dy * (x - mean), {.axis = axes}) * inverse;
    if (c.needs_grad(1)) set(1, product);
    if (c.needs_grad(4)) set(4, product * gamma * square(inverse) * -0.5);
  }
}

const OpDef kBatchNorm = {.name = "FusedBatchNormV3",
                          .attrs = &attrs_type<NormAttrs>,
                          .infer = infer_training,
                          .gradient = training_gradient,
                          .cpu_kernel = training_kernel,
                          .tiled_kernel = tiled_training,
                          .saved_inputs = 0b011,
                          .saved_outputs = 0b110};
// Has no gradient: a backward pass that is itself recorded is composed of differentiable
// operations.
const OpDef kBatchNormGrad = {.name = "FusedBatchNormGradV3",
                              .attrs = &attrs_type<NormAttrs>,
                              .infer = infer_training_grad,
                              .cpu_kernel = training_grad_kernel,
                              .tiled_kernel = tiled_training_grad,
                              .traits = kInPlace};
const OpDef kBatchNormMoments = {.name = "BatchNormMoments",
                                 .infer = infer_moments,
                                 .gradient = moments_gradient,
                                 .cpu_kernel = moments_kernel,
                                 .saved_inputs = 0b1,
                                 .saved_outputs = 0b01};
const OpDef kBatchNormInference = {.name = "BatchNormInference",
                                   .attrs = &attrs_type<NormAttrs>,
                                   .infer = infer_inference,
                                   .gradient = inference_gradient,
                                   .cpu_kernel = inference_kernel,
                                   .tiled_kernel = tiled_inference,
                                   .saved_inputs = 0b11011};

}  // namespace

OpList norm_ops() {
  return list_of<kBatchNorm, kBatchNormGrad, kBatchNormMoments, kBatchNormInference, kLayerNorm,
                 kLayerNormGrad>();
}

BatchMoments batch_moments(const Tensor& x) {
  const Tensor* input = &x;
  const std::vector<Tensor> moments = run_op(kBatchNormMoments, {&input, 1});
  return {.rows = row_count(x, float64), .mean = moments[0], .variance = moments[1]};
}

namespace nn {

BatchNormResult batch_norm_training(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                                    double epsilon) {
  const Tensor* inputs[] = {&x, &gamma, &beta};
  std::vector<Tensor> outputs = run_op(kBatchNorm, inputs, NormAttrs{.epsilon = epsilon});
  return {
      .y = std::move(outputs[0]), .mean = std::move(outputs[1]), .variance = std::move(outputs[2])};
}

Tensor batch_norm_inference(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                            const Tensor& mean, const Tensor& variance, double epsilon) {
  return run(kBatchNormInference, {&x, &gamma, &beta, &mean, &variance},
             NormAttrs{.epsilon = epsilon});
}

}  // namespace nn
}  // namespace tandem
