// The positions of extrema.
#include "core/parallel.h"
#include "ops/math/elementwise.h"
#include "ops/math/reduce.h"
#include "runtime/dispatch.h"

namespace tandem {
namespace {

struct AxisAttrs {
  std::int64_t axis = 0;
  template <class F>
  void fields(F&& f) const {
    f("axis", axis);
  }
};

void infer_arg_reduce(InferContext& c) {
  check_dtype(c.op().name, kNumeric, c.dtype(0));
  const Shape& shape = c.shape(0);
  if (!shape.known()) {
    c.add_output(int64, Shape());
    return;
  }
  const int axis = resolve_axis(c.op().name, c.attrs<AxisAttrs>().axis, shape.rank());
  const Shape result = reduced_shape(shape, 1u << axis, false);
  if (shape[axis] == 0 && result.num_elements() != 0)
    fail<InvalidArgumentError>("[{}] expected at least one element along axis {}, got shape {}",
                               c.op().name, axis, shape.to_string());
  c.add_output(int64, result);
}

// NaN beats every number, and the first NaN the others.
struct Above {
  template <class C>
  static bool beats(C challenger, C best) {
    return challenger > best || (challenger != challenger && best == best);
  }
};
struct Below {
  template <class C>
  static bool beats(C challenger, C best) {
    return challenger < best || (challenger != challenger && best == best);
  }
};

template <class Op>
void arg_reduce_kernel(KernelContext& c) {
  const Shape& shape = c.inputs[0].shape;
  const int axis = resolve_axis(c.op->name, c.attrs<AxisAttrs>().axis, shape.rank());
  const std::int64_t length = shape[axis];
  const std::int64_t inner = shape.without_leading(axis + 1).num_elements();
  auto* out = c.outputs[0].as<std::int64_t>();
  switch_numeric(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    const T* x = c.inputs[0].as<const T>();
    const std::int64_t grain =
        std::max<std::int64_t>(1, kElementwiseGrain / std::max<std::int64_t>(length, 1));
    parallel_for(c.outputs[0].size(), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const T* run = x + i / inner * length * inner + i % inner;
        auto best = static_cast<Compute<T>>(run[0]);
        std::int64_t at = 0;
        for (std::int64_t k = 1; k < length; ++k) {
          const auto value = static_cast<Compute<T>>(run[k * inner]);
          if (!Op::beats(value, best)) continue;
          best = value;
          at = k;
        }
        out[i] = at;
      }
    });
  });
}

}  // namespace

const OpDef kArgMax = {.name = "ArgMax",
                       .attrs = attrs_type<AxisAttrs>,
                       .infer = infer_arg_reduce,
                       .cpu_kernel = arg_reduce_kernel<Above>};
const OpDef kArgMin = {.name = "ArgMin",
                       .attrs = attrs_type<AxisAttrs>,
                       .infer = infer_arg_reduce,
                       .cpu_kernel = arg_reduce_kernel<Below>};

Tensor argmax(const Tensor& x, std::int64_t axis) { return run(kArgMax, {&x}, AxisAttrs{axis}); }
Tensor argmin(const Tensor& x, std::int64_t axis) { return run(kArgMin, {&x}, AxisAttrs{axis}); }

}  // namespace tandem
