#include "ops/nn/update.h"

#include <array>
#include <bit>
#include <cmath>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/status.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
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
    if (c.dtype(i) != expected || !dim::may_equal(c.shape(i), c.shape(0)))
      fail<InvalidArgumentError>("[{}] expected {} of dtype {} and shape {}, got {} {}",
                                 c.op().name, gradient ? "a gradient" : "a slot", name_of(expected),
                                 c.shape(0).to_string(), name_of(c.dtype(i)),
                                 c.shape(i).to_string());
  }
}

// A chunk of a floating tensor as numbers of the type that it is computed in.
template <class C>
class Chunk {
 public:
  // The elements: the tensor's memory; or 16-bit ones, converted, which are valid until the next
  // call and at most kFloatChunk.
  C* read(const TensorView& from, std::int64_t begin, std::int64_t count) {
    if constexpr (std::is_same_v<C, float>) {
      if (from.dtype == bfloat16) return widened(from.as<BFloat16>() + begin, count);
      if (from.dtype == float16) return widened(from.as<Half>() + begin, count);
    }
    return from.as<C>() + begin;
  }

 private:
  template <class T>
  C* widened(const T* from, std::int64_t count) {
    widen(from, wide_, count);
    return wide_;
  }
  alignas(64) C wide_[kFloatChunk];
};

// Rounds new numbers of a variable to its elements, or to those of its copy. Numbers that are not
// rounded have been computed in place.
template <class C>
void write(const C* numbers, const TensorView& to, std::int64_t begin, std::int64_t count) {
  if constexpr (std::is_same_v<C, float>) {
    if (to.dtype == bfloat16) narrow(numbers, to.as<BFloat16>() + begin, count);
    if (to.dtype == float16) narrow(numbers, to.as<Half>() + begin, count);
  }
}
// The tensor to write: the 16-bit copy of a float32 variable, which is the input after the
// gradient, or the variable if there is no copy.
const TensorView& result_of(const KernelContext& c, int gradient) {
  return c.inputs[gradient + 1 < c.inputs.size() ? gradient + 1 : 0];
}

// Calls body(at, count) for chunks of [begin, end): small ones if 16-bit elements are converted.
template <class Body>
void for_chunks(const KernelContext& c, int gradient, std::int64_t begin, std::int64_t end,
                const Body& body) {
  const bool converts =
      size_of(c.inputs[gradient].dtype) == 2 || size_of(result_of(c, gradient).dtype) == 2;
  const std::int64_t chunk = converts ? kFloatChunk : end - begin;
  for (; begin < end; begin += chunk) body(begin, std::min(chunk, end - begin));
}

template <class C, class Step>
TANDEM_INLINED void update_chunk(C* variable, std::array<C*, 3> slot_data, const C* gradient,
                                 C scale, std::int64_t count, Step step) {
  constexpr int kSlots = Step::kSlots;
  const auto [slot_0, slot_1, slot_2] = slot_data;
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    C slots[3];
    if constexpr (kSlots > 0) slots[0] = slot_0[i];
    if constexpr (kSlots > 1) slots[1] = slot_1[i];
    if constexpr (kSlots > 2) slots[2] = slot_2[i];
    variable[i] = step(variable[i], gradient[i] * scale, slots);
    if constexpr (kSlots > 0) slot_0[i] = slots[0];
    if constexpr (kSlots > 1) slot_1[i] = slots[1];
    if constexpr (kSlots > 2) slot_2[i] = slots[2];
  }
}

// Calls f(C()) with the type that a variable is computed in.
template <class F>
void switch_compute(DType dtype, const F& f) {
  dtype == float64 ? f(double()) : f(float());
}

template <template <class> class StepOf>
void update_kernel(KernelContext& c) {
  constexpr int kSlots = StepOf<float>::kSlots, kGradient = kSlots + 1;
  const auto& rule = c.attrs<typename StepOf<float>::Rule>();
  switch_compute(c.inputs[0].dtype, [&]<class C>(C) {
    const StepOf<C> step(rule);
    parallel_for(c.inputs[0].size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      Chunk<C> variable, gradient;
      for_chunks(c, kGradient, begin, end, [&](std::int64_t at, std::int64_t count) {
        std::array<C*, 3> slots = {};
        for (int i = 0; i < kSlots; ++i) slots[i] = c.inputs[i + 1].template as<C>() + at;
        C* numbers = variable.read(c.inputs[0], at, count);
        run_loop<C, update_chunk<C, StepOf<C>>>(numbers, slots,
                                                gradient.read(c.inputs[kGradient], at, count),
                                                static_cast<C>(rule.grad_scale), count, step);
        write(numbers, result_of(c, kGradient), at, count);
      });
    });
  });
}

// --- LAMB: first the moments and both norms, then the update that the norms scale ---

// Adds the squares of the variable and of the direction to `norms`.
template <class C>
TANDEM_INLINED void lamb_moments(cpu::LambStep<C> step, const C* variable, C* m, C* v,
                                 const C* gradient, std::int64_t count, RowSum<C>* norms) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i) {
    const C g = step.slope(gradient[i], variable[i]);
    m[i] = step.first_moment(m[i], g);
    v[i] = step.second_moment(v[i], g);
  }
  norms[0].add(count, [variable](std::int64_t i) { return variable[i] * variable[i]; });
  norms[1].add(count, [&](std::int64_t i) {
    const C r = step.direction(variable[i], m[i], v[i]);
    return r * r;
  });
}

template <class C>
TANDEM_INLINED void lamb_apply(cpu::LambStep<C> step, C rate, C* variable, const C* m, const C* v,
                               std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i)
    variable[i] -= rate * step.direction(variable[i], m[i], v[i]);
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
  constexpr int kGradient = 3;
  const auto& rule = c.attrs<Lamb>();
  const std::int64_t count = c.inputs[0].size();
  // The norms are summed in order in blocks of a fixed size, so that they do not depend on the
  // number of threads.
  constexpr std::int64_t kBlock = 16 * 1024;
  const std::int64_t blocks = (count + kBlock - 1) / kBlock;
  auto* norms =
      static_cast<double*>(c.scratch(static_cast<std::size_t>(2 * blocks) * sizeof(double)));
  switch_compute(c.inputs[0].dtype, [&]<class C>(C) {
    const cpu::LambStep<C> step(rule);
    C *m = c.inputs[1].as<C>(), *v = c.inputs[2].as<C>();
    parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
      Chunk<C> variable, gradient;
      for (std::int64_t b = begin; b < end; ++b) {
        RowSum<C> sums[2];
        for_chunks(c, kGradient, b * kBlock, std::min((b + 1) * kBlock, count),
                   [&](std::int64_t at, std::int64_t size) {
                     run_loop<C, lamb_moments<C>>(
                         step, variable.read(c.inputs[0], at, size), m + at, v + at,
                         gradient.read(c.inputs[kGradient], at, size), size, sums);
                   });
        for (int i = 0; i < 2; ++i) norms[2 * b + i] = static_cast<double>(sums[i].total());
      }
    });
    const C rate = static_cast<C>(rule.learning_rate * lamb_ratio(rule, norms, blocks));
    parallel_for(count, kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      Chunk<C> variable;
      for_chunks(c, kGradient, begin, end, [&](std::int64_t at, std::int64_t size) {
        C* numbers = variable.read(c.inputs[0], at, size);
        run_loop<C, lamb_apply<C>>(step, rate, numbers, m + at, v + at, size);
        write(numbers, result_of(c, kGradient), at, size);
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
const OpDef kAdagrad = update_op<cpu::AdagradStep>();
const OpDef kLamb = update_op<cpu::LambStep>(lamb_kernel, kStateful);
template <bool kAmsgrad>
const OpDef kAdam = update_op<cpu::AdamSteps<kAmsgrad>::template UpdateStep>();
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
  return list_of<kGradientDescent, kMomentum, kDampedMomentum, kAdam<false>, kAdam<true>, kAdagrad,
                 kLamb, kRmsProp<false, false>, kRmsProp<false, true>, kRmsProp<true, false>,
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
  run_rule(kAdam<false>, {&variable, &m, &v, &gradient}, rule);
}
void apply(const Adam& rule, const Tensor& variable, const Tensor& m, const Tensor& v,
           const Tensor& largest_v, const Tensor& gradient) {
  run_rule(kAdam<true>, {&variable, &m, &v, &largest_v, &gradient}, rule);
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
  if (&op != &kAdagrad) return false;
  const auto& rule = *static_cast<const Adagrad*>(attrs);
  return rule.weight_decay == 0 && rule.gradient_decay == 0;
}
Tensor scalar_of_step(const StepScalar& scalar) { return run(kStepScalar, {}, scalar); }

}  // namespace update
}  // namespace tandem
