// The kernels of update.cc on a GPU: each one pass over a variable's memory. LAMB, which needs two
// norms first, is in lamb.cu.
#include "ops/nn/update.h"

#include <cmath>

#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {
namespace {

// Each rule makes a step(variable, gradient, slots): the new variable; the slots are changed. C is
// the type that is computed in.

template <class C>
struct DescentStep {
  static constexpr int kSlots = 0;
  C rate, keep;
  explicit DescentStep(const update::GradientDescent& rule)
      : rate(C(rule.learning_rate)), keep(C(1.0 - rule.learning_rate * rule.weight_decay)) {}
  __device__ C operator()(C variable, C gradient, C*) const {
    return variable * keep - rate * gradient;
  }
};

template <class C>
struct MomentumStep {
  static constexpr int kSlots = 1;
  C rate, momentum, keep;
  bool nesterov;
  explicit MomentumStep(const update::Momentum& rule)
      : rate(C(rule.learning_rate)),
        momentum(C(rule.momentum)),
        keep(C(1.0 - rule.learning_rate * rule.weight_decay)),
        nesterov(rule.nesterov) {}
  __device__ C operator()(C variable, C gradient, C* slots) const {
    const C drop = rate * gradient;
    slots[0] = momentum * slots[0] - drop;
    return variable * keep + (nesterov ? momentum * slots[0] - drop : slots[0]);
  }
};

template <class C>
struct AdamStep {
  static constexpr int kSlots = 2;
  C rate, take_1, take_2, epsilon, keep;
  explicit AdamStep(const update::Adam& rule)
      : rate(C(rule.learning_rate *
               std::sqrt(1.0 - std::pow(rule.beta_2, static_cast<double>(rule.step))) /
               (1.0 - std::pow(rule.beta_1, static_cast<double>(rule.step))))),
        take_1(C(1.0 - rule.beta_1)),
        take_2(C(1.0 - rule.beta_2)),
        epsilon(C(rule.epsilon)),
        keep(C(1.0 - rule.learning_rate * rule.weight_decay)) {}
  __device__ C operator()(C variable, C gradient, C* slots) const {
    slots[0] += (gradient - slots[0]) * take_1;
    slots[1] += (gradient * gradient - slots[1]) * take_2;
    return variable * keep - rate * slots[0] / (::sqrt(slots[1]) + epsilon);
  }
};

template <class C>
struct AdagradStep {
  static constexpr int kSlots = 1;
  C rate, epsilon, keep;
  explicit AdagradStep(const update::Adagrad& rule)
      : rate(C(rule.learning_rate)),
        epsilon(C(rule.epsilon)),
        keep(C(1.0 - rule.learning_rate * rule.weight_decay)) {}
  __device__ C operator()(C variable, C gradient, C* slots) const {
    slots[0] += gradient * gradient;
    return variable * keep - rate * gradient / ::sqrt(slots[0] + epsilon);
  }
};

template <class C, bool kCentred, bool kMomentum>
struct RmsPropStep {
  static constexpr int kSlots = 1 + kCentred + kMomentum;
  C rate, take, epsilon, momentum, keep;
  explicit RmsPropStep(const update::RmsProp& rule)
      : rate(C(rule.learning_rate)),
        take(C(1.0 - rule.rho)),
        epsilon(C(rule.epsilon)),
        momentum(C(rule.momentum)),
        keep(C(1.0 - rule.learning_rate * rule.weight_decay)) {}
  __device__ C operator()(C variable, C gradient, C* slots) const {
    slots[0] += (gradient * gradient - slots[0]) * take;
    C square = slots[0];
    if constexpr (kCentred) {
      slots[1] += (gradient - slots[1]) * take;
      square -= slots[1] * slots[1];
    }
    C drop = rate * gradient / ::sqrt(square + epsilon);
    if constexpr (kMomentum) {
      drop += momentum * slots[kSlots - 1];
      slots[kSlots - 1] = drop;
    }
    return variable * keep - drop;
  }
};

template <class T, class Step>
struct UpdateOf {
  T* variable;
  T* slots[3];
  const T* gradient;
  ComputeOf<T> grad_scale;
  Step step;
};

template <class T, class Step>
__global__ void __launch_bounds__(kThreads)
    update_elements(UpdateOf<T, Step> update, std::int64_t size) {
  using C = ComputeOf<T>;
  constexpr int kCount = kPackOf<T>;
  constexpr int kSlots = Step::kSlots;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  auto variable = load_pack<kCount>(update.variable, mine.begin, mine.count);
  const auto gradient = load_pack<kCount>(update.gradient, mine.begin, mine.count);
  Pack<T, kCount> slots[kSlots + 1];  // none is no array
#pragma unroll
  for (int n = 0; n < kSlots; ++n)
    slots[n] = load_pack<kCount>(update.slots[n], mine.begin, mine.count);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    C values[kSlots + 1];
#pragma unroll
    for (int n = 0; n < kSlots; ++n) values[n] = load_as(slots[n].at[i]);
    variable.at[i] = store_as<T>(
        update.step(load_as(variable.at[i]), load_as(gradient.at[i]) * update.grad_scale, values));
#pragma unroll
    for (int n = 0; n < kSlots; ++n) slots[n].at[i] = store_as<T>(values[n]);
  }
  store_pack(update.variable, mine.begin, mine.count, variable);
#pragma unroll
  for (int n = 0; n < kSlots; ++n) store_pack(update.slots[n], mine.begin, mine.count, slots[n]);
}

template <class Rule, template <class> class StepOf>
void update_kernel(KernelContext& c) {
  const auto& rule = c.attrs<Rule>();
  const std::int64_t size = c.inputs[0].size();
  if (size == 0) return;
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    using Step = StepOf<ComputeOf<T>>;
    constexpr int kCount = kPackOf<T>;
    UpdateOf<T, Step> update = {.variable = c.inputs[0].template as<T>(),
                                .slots = {},
                                .gradient = c.inputs[Step::kSlots + 1].template as<const T>(),
                                .grad_scale = static_cast<ComputeOf<T>>(rule.grad_scale),
                                .step = Step(rule)};
    for (int n = 0; n < Step::kSlots; ++n) update.slots[n] = c.inputs[n + 1].template as<T>();
    launch(c, {.blocks = blocks_for((size + kCount - 1) / kCount)}, update_elements<T, Step>,
           update, size);
  });
}

template <class C>
using PlainRms = RmsPropStep<C, false, false>;
template <class C>
using MomentumRms = RmsPropStep<C, false, true>;
template <class C>
using CentredRms = RmsPropStep<C, true, false>;
template <class C>
using CentredMomentumRms = RmsPropStep<C, true, true>;

}  // namespace

KernelList update_kernels() {
  using namespace update;  // NOLINT: the rules, in the file that runs them
  static constexpr CudaKernel kernels[] = {
      {"ApplyGradientDescent", on_gpu<update_kernel<GradientDescent, DescentStep>>},
      {"ApplyKerasMomentum", on_gpu<update_kernel<Momentum, MomentumStep>>},
      {"ApplyAdam", on_gpu<update_kernel<Adam, AdamStep>>},
      {"ApplyAdagradV2", on_gpu<update_kernel<Adagrad, AdagradStep>>},
      {"ApplyRMSProp", on_gpu<update_kernel<RmsProp, PlainRms>>},
      {"ApplyRMSPropMomentum", on_gpu<update_kernel<RmsProp, MomentumRms>>},
      {"ApplyCenteredRMSProp", on_gpu<update_kernel<RmsProp, CentredRms>>},
      {"ApplyCenteredRMSPropMomentum", on_gpu<update_kernel<RmsProp, CentredMomentumRms>>}};
  return kernels;
}

}  // namespace tandem::cuda
