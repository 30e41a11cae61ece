// GPU kernels of update.cc. Each takes one pass over the memory of a variable, or of all variables
// that a program updates by the same rule. LAMB, which computes two norms first, is in lamb.cu.
#include <array>
#include <string>

#include "graph/passes/grouped_update.h"
#include "ops/cuda/elements.cuh"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/per_run_arg.cuh"
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

// The table of variables that one launch updates, passed as a kernel argument. Each block finds its
// variable in the table and updates a chunk of it, one pack per thread.
template <class T, int kSlots>
struct Variables {
  // As many variables as fit into the 4096 bytes of a launch's arguments.
  static constexpr int kMost =
      3584 / ((kSlots + 2) * sizeof(void*) + sizeof(std::int64_t) + sizeof(unsigned));
  T* memory[kSlots + 1][kMost];  // the variables, then their slots
  const T* gradient[kMost];
  std::int64_t size[kMost];
  unsigned end_block[kMost];  // the block after each variable's last one
  int count;
};

template <class T, class Step>
__global__ void __launch_bounds__(kThreads)
    update_variables(Variables<T, Step::kSlots> all,
                     PerRunArg<ScaledStep<ComputeOf<T>, Step>> step_arg) {
  using C = ComputeOf<T>;
  constexpr int kCount = kPackOf<T>;
  constexpr int kSlots = Step::kSlots;
  int mine = 0;
  for (int end = all.count - 1; mine < end;) {
    const int middle = (mine + end) / 2;
    if (blockIdx.x < all.end_block[middle])
      end = middle;
    else
      mine = middle + 1;
  }
  const unsigned chunk = blockIdx.x - (mine == 0 ? 0u : all.end_block[mine - 1]);
  const std::int64_t begin = (std::int64_t{chunk} * kThreads + threadIdx.x) * kCount;
  const std::int64_t left = all.size[mine] - begin;
  if (left <= 0) return;
  const int count = static_cast<int>(left < kCount ? left : kCount);

  const auto rule = step_arg();
  auto variable = load_pack<kCount>(all.memory[0][mine], begin, count);
  const auto gradient = load_pack<kCount>(all.gradient[mine], begin, count);
  Pack<T, kCount> slots[kSlots + 1];  // one more, because an array must not be empty
#pragma unroll
  for (int n = 0; n < kSlots; ++n)
    slots[n] = load_pack<kCount>(all.memory[n + 1][mine], begin, count);
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    C values[kSlots + 1];
#pragma unroll
    for (int n = 0; n < kSlots; ++n) values[n] = load_as(slots[n].at[i]);
    variable.at[i] = store_as<T>(
        rule.step(load_as(variable.at[i]), load_as(gradient.at[i]) * rule.grad_scale, values));
#pragma unroll
    for (int n = 0; n < kSlots; ++n) slots[n].at[i] = store_as<T>(values[n]);
  }
  store_pack(all.memory[0][mine], begin, count, variable);
#pragma unroll
  for (int n = 0; n < kSlots; ++n) store_pack(all.memory[n + 1][mine], begin, count, slots[n]);
}

// The two kinds of attributes: the rule itself, and those of a grouped update, which hold the rule.
template <class Rule>
struct OneVariable {
  using Attrs = Rule;
  static const Rule& rule_of(const Attrs& attrs) { return attrs; }
};
template <class Rule>
struct ManyVariables {
  using Attrs = GroupedUpdateAttrs;
  static const Rule& rule_of(const Attrs& attrs) {
    return *static_cast<const Rule*>(attrs.rule.attrs.get());
  }
};

// The inputs per variable are the variable, its slots and its gradient. All have one dtype.
template <class Of, template <class> class StepOf>
void update_kernel(KernelContext& c) {
  switch_floating(c.inputs[0].dtype, [&]<class T>(Type<T>) {
    using C = ComputeOf<T>;
    using Step = StepOf<C>;
    using Attrs = typename Of::Attrs;
    constexpr int kEach = Step::kSlots + 2;
    const auto rule = per_run_arg<Attrs>(
        c, [](const Attrs& attrs) { return ScaledStep<C, Step>(Of::rule_of(attrs)); });
    Variables<T, Step::kSlots> some{};
    static_assert(sizeof(some) + sizeof(rule) <= 4096);
    unsigned blocks = 0;
    const auto launch_some = [&] {
      if (some.count > 0) launch(c, {.blocks = blocks}, update_variables<T, Step>, some, rule);
      some.count = 0;
      blocks = 0;
    };
    for (int first = 0; first < c.inputs.size(); first += kEach) {
      const std::int64_t size = c.inputs[first].size();
      if (size == 0) continue;
      const int at = some.count++;
      for (int n = 0; n <= Step::kSlots; ++n)
        some.memory[n][at] = c.inputs[first + n].template as<T>();
      some.gradient[at] = c.inputs[first + kEach - 1].template as<const T>();
      some.size[at] = size;
      blocks += blocks_for((size + kPackOf<T> - 1) / kPackOf<T>);
      some.end_block[at] = blocks;
      if (some.count == some.kMost) launch_some();
    }
    launch_some();
  });
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
                                     update_by<AdamStep>(),
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
