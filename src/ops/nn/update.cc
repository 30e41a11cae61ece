#include "ops/nn/update.h"

#include <bit>
#include <cmath>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"
#include "op/dtype_switch.h"
#include "ops/math/elementwise.h"
#include "ops/math/rows.h"
#include "ops/nn/update_steps.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"

namespace tandem {
namespace {

using namespace update;  // NOLINT: the rules, in the file that runs them

// Inputs: the variable, its slots, and the gradient.
void infer_update(InferContext& c) {
  check_dtype(c.op().name, kFloating, c.dtype(0));
  const int inputs = std::countr_one(c.op().mutated_inputs) + 1;
  if (c.num_inputs() != inputs)
    fail<InvalidArgumentError>("[{}] expected {} inputs, got {}", c.op().name, inputs,
                               c.num_inputs());
  for (int i = 1; i < inputs; ++i) {
    const bool gradient = i + 1 == inputs;
    const DType expected = gradient ? c.dtype(0) : slot_dtype(c.dtype(0));
    if (c.dtype(i) != expected || !(c.shape(i) == c.shape(0)))
      fail<InvalidArgumentError>("[{}] expected {} of dtype {} and shape {}, got {} {}",
                                 c.op().name, gradient ? "a gradient" : "a slot", name_of(expected),
                                 c.shape(0).to_string(), name_of(c.dtype(i)),
                                 c.shape(i).to_string());
  }
}

// Calls f(gradient, copy) with input `index` and the 16-bit copy of a float32 variable after it.
// The copy is a null void* if there is none; if there is one, the gradient may have its dtype.
template <class T, class F>
void switch_copy(const KernelContext& c, int index, const F& f) {
  const TensorView& gradient = c.inputs[index];
  if constexpr (std::is_same_v<T, float>) {
    const auto with = [&]<class Copy>(Copy* copy) {
      gradient.dtype == float32 ? f(gradient.as<const float>(), copy)
                                : f(gradient.as<const Copy>(), copy);
    };
    if (index + 1 < c.inputs.size()) {
      const TensorView& copy = c.inputs[index + 1];
      return copy.dtype == bfloat16 ? with(copy.as<BFloat16>()) : with(copy.as<Half>());
    }
  }
  f(gradient.as<const T>(), static_cast<void*>(nullptr));
}

// `copy`: null if Copy is void.
template <int kSlots, class T, class Gradient, class Copy, class Step>
TANDEM_MULTIVERSION void update_range(T* variable, Compute<T>* const* slot_data,
                                      const Gradient* gradient, Copy* copy, double grad_scale,
                                      std::int64_t begin, std::int64_t end, Step step) {
  using C = Compute<T>;
  const C scale = static_cast<C>(grad_scale);
  C* const slot_0 = kSlots > 0 ? slot_data[0] : nullptr;
  C* const slot_1 = kSlots > 1 ? slot_data[1] : nullptr;
  C* const slot_2 = kSlots > 2 ? slot_data[2] : nullptr;
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    C slots[3];
    if constexpr (kSlots > 0) slots[0] = slot_0[i];
    if constexpr (kSlots > 1) slots[1] = slot_1[i];
    if constexpr (kSlots > 2) slots[2] = slot_2[i];
    const C updated = step(static_cast<C>(variable[i]), static_cast<C>(gradient[i]) * scale, slots);
    variable[i] = store_as<T>(updated);
    if constexpr (!std::is_void_v<Copy>) copy[i] = store_as<Copy>(updated);
    if constexpr (kSlots > 0) slot_0[i] = slots[0];
    if constexpr (kSlots > 1) slot_1[i] = slots[1];
    if constexpr (kSlots > 2) slot_2[i] = slots[2];
  }
}

template <template <class> class StepOf>
void update_kernel(KernelContext& c) {
  constexpr int kSlots = StepOf<float>::kSlots;
  const auto& rule = c.attrs<typename StepOf<float>::Rule>();
  switch_floating(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    Compute<T>* slots[3] = {};
    for (int i = 0; i < kSlots; ++i) slots[i] = c.inputs[i + 1].template as<Compute<T>>();
    const StepOf<Compute<T>> step(rule);
    switch_copy<T>(c, kSlots + 1, [&](const auto* gradient, auto* copy) {
      parallel_for(c.inputs[0].size(), kElementwiseGrain,
                   [&](std::int64_t begin, std::int64_t end) {
                     update_range<kSlots>(c.inputs[0].template as<T>(), slots, gradient, copy,
                                          rule.grad_scale, begin, end, step);
                   });
    });
  });
}

// --- LAMB: first the moments and both norms, then the update that the norms scale ---

template <class T, class Gradient>
TANDEM_MULTIVERSION void lamb_moments(cpu::LambStep<Compute<T>> step, const T* variable,
                                      Compute<T>* m, Compute<T>* v, const Gradient* gradient,
                                      std::int64_t count, double* variable_norm,
                                      double* direction_norm) {
  using C = Compute<T>;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const C g = step.slope(static_cast<C>(gradient[i]), static_cast<C>(variable[i]));
    m[i] = step.first_moment(m[i], g);
    v[i] = step.second_moment(v[i], g);
  }
  *variable_norm = static_cast<double>(row_sum<C>(count, [variable](std::int64_t i) {
    return static_cast<C>(variable[i]) * static_cast<C>(variable[i]);
  }));
  *direction_norm = static_cast<double>(row_sum<C>(count, [&](std::int64_t i) {
    const C r = step.direction(static_cast<C>(variable[i]), m[i], v[i]);
    return r * r;
  }));
}

template <class T, class Copy>
TANDEM_MULTIVERSION void lamb_apply(cpu::LambStep<Compute<T>> step, double rate, T* variable,
                                    const Compute<T>* m, const Compute<T>* v, Copy* copy,
                                    std::int64_t begin, std::int64_t end) {
  using C = Compute<T>;
  const C factor = static_cast<C>(rate);
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) {
    const C old = static_cast<C>(variable[i]);
    const C updated = old - factor * step.direction(old, m[i], v[i]);
    variable[i] = store_as<T>(updated);
    if constexpr (!std::is_void_v<Copy>) copy[i] = store_as<Copy>(updated);
  }
}

// The ratio of the norms, whose squares are the sums over the blocks.
double lamb_ratio(const Lamb& rule, const double* norms, std::int64_t blocks) {
  double variable_norm = 0.0, direction_norm = 0.0;
  for (std::int64_t b = 0; b < blocks; ++b) {
    variable_norm += norms[2 * b];
    direction_norm += norms[2 * b + 1];
  }
  return rule.scaled && variable_norm > 0.0 && direction_norm > 0.0
             ? std::sqrt(variable_norm / direction_norm)
             : 1.0;
}

void lamb_kernel(KernelContext& c) {
  const auto& rule = c.attrs<Lamb>();
  const std::int64_t count = c.inputs[0].size();
  // The norms are summed in order in blocks of a fixed size, so that they do not depend on the
  // number of threads.
  constexpr std::int64_t kBlock = 16 * 1024;
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  auto* norms =
      static_cast<double*>(c.scratch(static_cast<std::size_t>(2 * blocks) * sizeof(double)));
  switch_floating(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    const cpu::LambStep<Compute<T>> step(rule);
    T* variable = c.inputs[0].as<T>();
    Compute<T>*m = c.inputs[1].as<Compute<T>>(), *v = c.inputs[2].as<Compute<T>>();
    switch_copy<T>(c, 3, [&](const auto* gradient, auto* copy) {
      parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t b = begin; b < end; ++b) {
          const std::int64_t at = b * kBlock;
          lamb_moments(step, variable + at, m + at, v + at, gradient + at,
                       std::min(kBlock, count - at), norms + 2 * b, norms + 2 * b + 1);
        }
      });
      const double rate = rule.learning_rate * lamb_ratio(rule, norms, blocks);
      parallel_for(count, kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
        lamb_apply(step, rate, variable, m, v, copy, begin, end);
      });
    });
  });
}

template <template <class> class StepOf>
constexpr OpDef update_op(KernelFn kernel = update_kernel<StepOf>,
                          std::uint32_t traits = kStateful | kElementwise) {
  using Step = StepOf<float>;
  return {.name = Step::kOp,
          .attrs = &attrs_type<typename Step::Rule>,
          .infer = infer_update,
          .cpu_kernel = kernel,
          .traits = traits | kWritesCast,
          .mutated_inputs = ((2u << Step::kSlots) - 1u) | (4u << Step::kSlots)};
}

const OpDef kGradientDescent = update_op<cpu::DescentStep>();
const OpDef kMomentum = update_op<cpu::MomentumStep>();
const OpDef kDampedMomentum = update_op<cpu::DampedMomentumStep>();
const OpDef kAdam = update_op<cpu::AdamStep>();
const OpDef kAdagrad = update_op<cpu::AdagradStep>();
const OpDef kLamb = update_op<cpu::LambStep>(lamb_kernel, kStateful);
template <bool kCentred, bool kMomentum>
const OpDef kRmsProp = update_op<cpu::RmsPropSteps<kCentred, kMomentum>::template UpdateStep>();

const OpDef kStepScalar = {
    .name = "StepScalar",
    .attrs = &attrs_type<StepScalar>,
    .infer = [](InferContext& c) { c.add_output(float64, Shape::scalar()); },
    .cpu_kernel =
        [](KernelContext& c) { *c.outputs[0].as<double>() = c.attrs<StepScalar>().value; },
    .gpu = false,
    .traits = kStateful};

template <class Rule>
void run_rule(const OpDef& op, std::initializer_list<const Tensor*> inputs, const Rule& rule) {
  run_update(op, std::span<const Tensor* const>(inputs.begin(), inputs.size()), rule);
}

}  // namespace

OpList update_ops() {
  return list_of<kGradientDescent, kMomentum, kDampedMomentum, kAdam, kAdagrad, kLamb,
                 kRmsProp<false, false>, kRmsProp<false, true>, kRmsProp<true, false>,
                 kRmsProp<true, true>, kStepScalar>();
}

namespace update {

DType slot_dtype(DType variable) { return variable == float64 ? float64 : float32; }

void apply(const GradientDescent& rule, const Tensor& variable, const Tensor& gradient) {
  run_rule(kGradientDescent, {&variable, &gradient}, rule);
}
void apply(const Momentum& rule, const Tensor& variable, const Tensor& velocity,
           const Tensor& gradient) {
  run_rule(kMomentum, {&variable, &velocity, &gradient}, rule);
}
void apply(const DampedMomentum& rule, const Tensor& variable, const Tensor& buffer,
           const Tensor& gradient) {
  run_rule(kDampedMomentum, {&variable, &buffer, &gradient}, rule);
}
void apply(const Adam& rule, const Tensor& variable, const Tensor& m, const Tensor& v,
           const Tensor& gradient) {
  run_rule(kAdam, {&variable, &m, &v, &gradient}, rule);
}
void apply(const RmsProp& rule, const Tensor& variable, const Tensor& mean_square,
           const Tensor& momentum, const Tensor& mean_gradient, const Tensor& gradient) {
  if (momentum.defined() != (rule.momentum != 0.0))
    fail<InvalidArgumentError>("[RMSprop] expected {} momentum slot with momentum {}, got {}",
                               rule.momentum != 0.0 ? "a" : "no", rule.momentum,
                               momentum.defined() ? "one" : "none");
  if (mean_gradient.defined() && momentum.defined())
    run_rule(kRmsProp<true, true>, {&variable, &mean_square, &mean_gradient, &momentum, &gradient},
             rule);
  else if (mean_gradient.defined())
    run_rule(kRmsProp<true, false>, {&variable, &mean_square, &mean_gradient, &gradient}, rule);
  else if (momentum.defined())
    run_rule(kRmsProp<false, true>, {&variable, &mean_square, &momentum, &gradient}, rule);
  else
    run_rule(kRmsProp<false, false>, {&variable, &mean_square, &gradient}, rule);
}
void apply(const Adagrad& rule, const Tensor& variable, const Tensor& accumulator,
           const Tensor& gradient) {
  run_rule(kAdagrad, {&variable, &accumulator, &gradient}, rule);
}
void apply(const Lamb& rule, const Tensor& variable, const Tensor& m, const Tensor& v,
           const Tensor& gradient) {
  run_rule(kLamb, {&variable, &m, &v, &gradient}, rule);
}
bool skips_zeros(const OpDef& op, const void* attrs) {
  if (&op == &kGradientDescent)
    return static_cast<const GradientDescent*>(attrs)->weight_decay == 0;
  return &op == &kAdagrad && static_cast<const Adagrad*>(attrs)->weight_decay == 0;
}
Tensor scalar_of_step(const StepScalar& scalar) { return run(kStepScalar, {}, scalar); }

}  // namespace update
}  // namespace tandem
