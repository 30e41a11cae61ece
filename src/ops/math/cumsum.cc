// Cumulative sums.
#include "core/parallel.h"
#include "op/record.h"
#include "ops/formula/functions.h"
#include "ops/math/elementwise.h"
#include "ops/math/reduce.h"
#include "runtime/dispatch.h"

namespace tandem {
namespace {

void infer_cumsum(InferContext& c) {
  check_dtype("Cumsum", kNumeric, c.dtype(0));
  if (c.shape(0).known()) resolve_axis("Cumsum", c.attrs<CumsumAttrs>().axis, c.shape(0).rank());
  c.add_output(c.dtype(0), c.shape(0));
}

void cumsum_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<CumsumAttrs>();
  const Shape& shape = c.inputs[0].shape;
  const int axis = resolve_axis("Cumsum", attrs.axis, shape.rank());
  const std::int64_t length = shape[axis];
  const std::int64_t inner = shape.without_leading(axis + 1).num_elements();
  if (c.inputs[0].size() == 0) return;
  const std::int64_t step = attrs.reverse ? -inner : inner;
  switch_numeric(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    using C = Compute<T>;
    parallel_for(c.inputs[0].size() / length, std::max<std::int64_t>(1, kElementwiseGrain / length),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i) {
                     std::int64_t at = i / inner * length * inner + i % inner;
                     if (attrs.reverse) at += (length - 1) * inner;
                     C sum{0};
                     for (std::int64_t k = 0; k < length; ++k, at += step) {
                       sum = cpu::Add()(sum, static_cast<C>(c.inputs[0].as<const T>()[at]));
                       c.outputs[0].as<T>()[at] = store_as<T>(sum);
                     }
                   }
                 });
  });
}

void cumsum_gradient(GradContext& c) {
  CumsumAttrs attrs = c.attrs<CumsumAttrs>();
  attrs.reverse = !attrs.reverse;
  c.set_grad(0, run(kCumsum, {&c.grad()}, attrs));
}

}  // namespace

const OpDef kCumsum = {.name = "Cumsum",
                       .attrs = attrs_type<CumsumAttrs>,
                       .infer = infer_cumsum,
                       .gradient = cumsum_gradient,
                       .cpu_kernel = cumsum_kernel,
                       .autocast = kAutocastFloat32OnGpus};

Tensor cumsum(const Tensor& x, std::int64_t axis) { return run(kCumsum, {&x}, CumsumAttrs{axis}); }

}  // namespace tandem
