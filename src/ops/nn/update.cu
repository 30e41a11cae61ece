// GPU kernels of update.cc. Each takes one pass over the memory of a variable, or of all variables
// that a program updates by the same rule. LAMB, which computes two norms first, is in lamb.cu.
#include <array>
#include <string>

#include "graph/passes/grouped_update.h"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/per_run_arg.cuh"
#include "ops/cuda/tensor_table.cuh"
#include "ops/nn/update_steps.h"

namespace tandem::cuda {
namespace {

template <class C, class Step>
struct ScaledStep {
  Step step;
  C grad_scale;

  explicit ScaledStep(const typename Step::Rule& rule)
      : step(rule), grad_scale(C(rule.grad_scale)) {}
};

// The 16-bit copies of variables without such copies.
struct NoCopy {};

// The table of variables that one launch updates, passed as a kernel argument. Each block finds its
// variable in the table and updates a chunk of it, one pack per thread.
template <class T, class Gradient, class Copy, int kSlots>
struct Variables {
  static constexpr bool kCopies = !std::is_same_v<Copy, NoCopy>;
  static constexpr int kRows = kSlots > 0 ? kSlots : 1;  // an array must not be empty
  // As many variables as fit into the 4096 bytes of a launch's arguments.
  static constexpr int kMost =
      3584 / ((kRows + 2 + kCopies) * sizeof(void*) + sizeof(std::int64_t) + sizeof(unsigned));
  T* variable[kMost];
  ComputeOf<T>* slots[kRows][kMost];
  const Gradient* gradient[kMost];
  Copy* copy[kCopies ? kMost : 1];
  std::int64_t size[kMost];
  unsigned end_block[kMost];  // the block after each variable's last one
  int count;
};

template <class T, class Gradient, class Copy, class Step>
__global__ void __launch_bounds__(kThreads)
    update_variables(Variables<T, Gradient, Copy, Step::kSlots> all,
                     PerRunArg<ScaledStep<ComputeOf<T>, Step>> step_arg) {
  using C = ComputeOf<T>;
  constexpr int kCount = kPackOf<T, C>;
  constexpr int kSlots = Step::kSlots;
  const auto [mine, chunk] = TableChunk(all.end_block, all.count);
  const std::int64_t begin = (std::int64_t{chunk} * kThreads + threadIdx.x) * kCount;
  const std::int64_t left = all.size[mine] - begin;
  if (left <= 0) return;
  const int count = static_cast<int>(left < kCount ? left : kCount);

  const auto rule = step_arg();
  auto variable = load_pack<kCount>(all.variable[mine], begin, count);
  const auto gradient = load_pack<kCount>(all.gradient[mine], begin, count);
  [[maybe_unused]] Pack<Copy, kCount> copy;
  Pack<C, kCount> slots[kSlots + 1];
#pragma unroll
  for (int n = 0; n < kSlots; ++n) slots[n] = load_pack<kCount>(all.slots[n][mine], begin, count);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    C values[kSlots + 1];
#pragma unroll
    for (int n = 0; n < kSlots; ++n) values[n] = slots[n].at[i];
    const C updated =
        rule.step(load_as(variable.at[i]), load_as(gradient.at[i]) * rule.grad_scale, values);
    variable.at[i] = store_as<T>(updated);
    if constexpr (all.kCopies) copy.at[i] = store_as<Copy>(updated);
#pragma unroll
    for (int n = 0; n < kSlots; ++n) slots[n].at[i] = values[n];
  }
  store_pack(all.variable[mine], begin, count, variable);
  if constexpr (all.kCopies) store_pack(all.copy[mine], begin, count, copy);
#pragma unroll
  for (int n = 0; n < kSlots; ++n) store_pack(all.slots[n][mine], begin, count, slots[n]);
}

// The two kinds of attributes: the rule itself, and those of a grouped update, which hold the rule.
template <class Rule>
struct OneVariable {
  using Attrs = Rule;
  static const Rule& rule_of(const Attrs& attrs) { return attrs; }
  static int inputs_each(const KernelContext& c) { return c.inputs.size(); }
};
template <class Rule>
struct ManyVariables {
  using Attrs = GroupedUpdateAttrs;
  static const Rule& rule_of(const Attrs& attrs) {
    return *static_cast<const Rule*>(attrs.rule.attrs.get());
  }
  static int inputs_each(const KernelContext& c) {
    return c.attrs<GroupedUpdateAttrs>().inputs_each;
  }
};

template <class Of, template <class> class StepOf, class T, class Gradient, class Copy>
void update_all(KernelContext& c) {
  using C = ComputeOf<T>;
  using Step = StepOf<C>;
  using Attrs = typename Of::Attrs;
  constexpr int kGradient = Step::kSlots + 1, kCount = kPackOf<T, C>;
  const auto rule = per_run_arg<Attrs>(
      c, [](const Attrs& attrs) { return ScaledStep<C, Step>(Of::rule_of(attrs)); });
  Variables<T, Gradient, Copy, Step::kSlots> some{};
  static_assert(sizeof(some) + sizeof(rule) <= 4096);
  unsigned blocks = 0;
  const auto launch_some = [&] {
    if (some.count > 0)
      launch(c, {.blocks = blocks}, update_variables<T, Gradient, Copy, Step>, some, rule);
    some.count = 0;
    blocks = 0;
  };
  const int each = Of::inputs_each(c);
  for (int first = 0; first < c.inputs.size(); first += each) {
    const std::int64_t size = c.inputs[first].size();
    if (size == 0) continue;
    const int at = some.count++;
    some.variable[at] = c.inputs[first].template as<T>();
    for (int n = 0; n < Step::kSlots; ++n)
      some.slots[n][at] = c.inputs[first + 1 + n].template as<C>();
    some.gradient[at] = c.inputs[first + kGradient].template as<const Gradient>();
    if constexpr (some.kCopies) some.copy[at] = c.inputs[first + kGradient + 1].template as<Copy>();
    some.size[at] = size;
    blocks += blocks_for((size + kCount - 1) / kCount);
    some.end_block[at] = blocks;
    if (some.count == some.kMost) launch_some();
  }
  launch_some();
}

// The inputs per variable are the variable, its slots, its gradient and, if it is kept, its 16-bit
// copy. All variables have the same dtypes.
template <class Of, template <class> class StepOf>
void update_kernel(KernelContext& c) {
  constexpr int kGradient = StepOf<float>::kSlots + 1;
  const auto with_copy = [&]<class Copy>(Type<Copy>) {
    if (c.inputs[kGradient].dtype == DType::kFloat32)
      update_all<Of, StepOf, float, float, Copy>(c);
    else
      update_all<Of, StepOf, float, Copy, Copy>(c);
  };
  if (Of::inputs_each(c) == kGradient + 1)
    switch_floating(c.inputs[0].dtype,
                    [&]<class T>(Type<T>) { update_all<Of, StepOf, T, T, NoCopy>(c); });
  else if (c.inputs[kGradient + 1].dtype == DType::kBFloat16)
    with_copy(Type<__nv_bfloat16>());
  else
    with_copy(Type<__half>());
}

// The kernels of a rule for one variable and for many.
struct UpdateKernel {
  CudaKernel one;
  KernelFn many;
};
template <template <class> class StepOf>
constexpr UpdateKernel update_by() {
  using Rule = typename StepOf<float>::Rule;
  return {{StepOf<float>::kOp, on_gpu<update_kernel<OneVariable<Rule>, StepOf>>},
          update_kernel<ManyVariables<Rule>, StepOf>};
}

constexpr UpdateKernel kUpdates[] = {update_by<DescentStep>(),
                                     update_by<MomentumStep>(),
                                     update_by<DampedMomentumStep>(),
                                     update_by<AdamSteps<false>::UpdateStep>(),
                                     update_by<AdamSteps<true>::UpdateStep>(),
                                     update_by<AdagradStep>(),
                                     update_by<RmsPropSteps<false, false>::UpdateStep>(),
                                     update_by<RmsPropSteps<false, true>::UpdateStep>(),
                                     update_by<RmsPropSteps<true, false>::UpdateStep>(),
                                     update_by<RmsPropSteps<true, true>::UpdateStep>()};

void grouped_update(KernelContext& c) {
  const std::string_view op = c.attrs<GroupedUpdateAttrs>().rule.op->name;
  for (const UpdateKernel& update : kUpdates)
    if (update.one.op == op) return update.many(c);
  throw InternalError("[cuda] no kernel for many variables at once: " + std::string(op));
}

}  // namespace

KernelList update_kernels() {
  static constexpr auto kernels = [] {
    std::array<CudaKernel, std::size(kUpdates)> list{};
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = kUpdates[i].one;
    return list;
  }();
  return kernels;
}

void register_grouped_update() { register_cuda_kernel(kGroupedUpdate, on_gpu<grouped_update>); }

}  // namespace tandem::cuda
