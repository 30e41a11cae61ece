// The GPU kernels of LAMB (update.cc): the moments and both norms, the ratio of the norms, and the
// update that it scales.
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/per_run_arg.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/nn/update_steps.h"

namespace tandem::cuda {
namespace {

constexpr std::int64_t kMostBlocks = 1024;  // that compute partial norms

// norms[2 * block] and norms[2 * block + 1] are the block's sums of squares of the variable and of
// the direction.
template <class T, class Gradient>
__global__ void __launch_bounds__(kThreads)
    lamb_moments(const T* variable, ComputeOf<T>* m, ComputeOf<T>* v, const Gradient* gradient,
                 PerRunArg<LambStep<ComputeOf<T>>> step_arg, std::int64_t size, double* norms) {
  using C = ComputeOf<T>;
  const LambStep<C> step = step_arg();
  constexpr int kCount = kPackOf<T, C>;
  C of_variable = C{0}, of_direction = C{0};
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x * kCount;
  for (std::int64_t begin = MyPack<kCount>(size).begin; begin < size; begin += stride) {
    const int count = static_cast<int>(size - begin < kCount ? size - begin : kCount);
    const auto variables = load_pack<kCount>(variable, begin, count);
    const auto gradients = load_pack<kCount>(gradient, begin, count);
    auto first = load_pack<kCount>(m, begin, count), second = load_pack<kCount>(v, begin, count);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (i >= count) break;
      const C old = load_as(variables.at[i]), g = step.slope(load_as(gradients.at[i]), old);
      first.at[i] = step.first_moment(first.at[i], g);
      second.at[i] = step.second_moment(second.at[i], g);
      const C r = step.direction(old, first.at[i], second.at[i]);
      of_variable += old * old;
      of_direction += r * r;
    }
    store_pack(m, begin, count, first);
    store_pack(v, begin, count, second);
  }
  const MyRow row(kThreads);
  const double variables = over_row(row, static_cast<double>(of_variable), Add());
  const double directions = over_row(row, static_cast<double>(of_direction), Add());
  if (row.lane != 0) return;
  norms[2 * row.index] = variables;
  norms[2 * row.index + 1] = directions;
}

// rate = learning_rate * |variable| / |direction|; the ratio is 1 if a norm is 0, and if not
// `scaled`. Runs in one block.
__global__ void __launch_bounds__(kThreads)
    lamb_rate(const double* norms, int blocks, PerRunArg<double> learning_rate, bool scaled,
              double* rate) {
  double of_variable = 0.0, of_direction = 0.0;
  for (int i = threadIdx.x; i < blocks; i += kThreads) {
    of_variable += norms[2 * i];
    of_direction += norms[2 * i + 1];
  }
  const MyRow row(kThreads);
  of_variable = over_row(row, of_variable, Add());
  of_direction = over_row(row, of_direction, Add());
  if (row.lane == 0)
    *rate = learning_rate() * (scaled && of_variable > 0.0 && of_direction > 0.0
                                   ? ::sqrt(of_variable / of_direction)
                                   : 1.0);
}

// `copy`: null without a 16-bit copy of the variable.
template <class T, class Copy>
__global__ void __launch_bounds__(kThreads)
    lamb_apply(T* variable, const ComputeOf<T>* m, const ComputeOf<T>* v, Copy* copy,
               PerRunArg<LambStep<ComputeOf<T>>> step_arg, std::int64_t size, const double* rate) {
  using C = ComputeOf<T>;
  const LambStep<C> step = step_arg();
  constexpr int kCount = kPackOf<T, C>;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  const C factor = static_cast<C>(*rate);
  auto variables = load_pack<kCount>(variable, mine.begin, mine.count);
  const auto first = load_pack<kCount>(m, mine.begin, mine.count),
             second = load_pack<kCount>(v, mine.begin, mine.count);
  Pack<Copy, kCount> copies;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const C old = load_as(variables.at[i]);
    const C updated = old - factor * step.direction(old, first.at[i], second.at[i]);
    variables.at[i] = store_as<T>(updated);
    copies.at[i] = store_as<Copy>(static_cast<float>(updated));
  }
  store_pack(variable, mine.begin, mine.count, variables);
  if (copy) store_pack(copy, mine.begin, mine.count, copies);
}

template <class T, class Gradient, class Copy>
void apply_lamb(KernelContext& c, const Gradient* gradient, Copy* copy) {
  using update::Lamb;
  using C = ComputeOf<T>;
  constexpr int kCount = kPackOf<T, C>;
  const auto learning_rate =
      per_run_arg<Lamb>(c, [](const Lamb& rule) { return rule.learning_rate; });
  const auto step = per_run_arg<Lamb>(c, [](const Lamb& rule) { return LambStep<C>(rule); });
  const std::int64_t size = c.inputs[0].size();
  T* variable = c.inputs[0].as<T>();
  C *m = c.inputs[1].as<C>(), *v = c.inputs[2].as<C>();
  const unsigned packs = blocks_for((size + kCount - 1) / kCount);
  const unsigned blocks = std::min(packs, static_cast<unsigned>(kMostBlocks));
  auto* norms = static_cast<double*>(c.scratch((2 * blocks + 1) * sizeof(double)));
  double* rate = norms + 2 * blocks;
  launch(c, {.blocks = blocks}, lamb_moments<T, Gradient>, variable, m, v, gradient, step, size,
         norms);
  launch(c, {.blocks = 1u}, lamb_rate, norms, static_cast<int>(blocks), learning_rate,
         c.attrs<Lamb>().scaled, rate);
  launch(c, {.blocks = packs}, lamb_apply<T, Copy>, variable, m, v, copy, step, size, rate);
}

// The gradient and the 16-bit copy as in update.cu.
void lamb_kernel(KernelContext& c) {
  if (c.inputs[0].size() == 0) return;
  const TensorView& gradient = c.inputs[3];
  const auto with_copy = [&]<class Copy>(Copy* copy) {
    if (gradient.dtype == DType::kFloat32)
      apply_lamb<float>(c, gradient.as<const float>(), copy);
    else
      apply_lamb<float>(c, gradient.as<const Copy>(), copy);
  };
  if (c.inputs.size() == 4)
    switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
      apply_lamb<T>(c, gradient.as<const T>(), static_cast<__half*>(nullptr));
    });
  else if (c.inputs[4].dtype == DType::kBFloat16)
    with_copy(c.inputs[4].as<__nv_bfloat16>());
  else
    with_copy(c.inputs[4].as<__half>());
}

}  // namespace

KernelList lamb_kernels() {
  static constexpr CudaKernel kernels[] = {{LambStep<float>::kOp, on_gpu<lamb_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
