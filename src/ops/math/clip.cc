// clip_by_value.
#include "core/multiversion.h"
#include "core/parallel.h"
#include "op/record.h"
#include "ops/formula/functions.h"
#include "ops/math/binary.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/math/in_float32.h"
#include "ops/math/number.h"
#include "ops/math/scalar_attrs.h"
#include "runtime/dispatch.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

void infer_clip(InferContext& c) {
  const auto& attrs = c.attrs<ClipAttrs>();
  check_dtype("ClipByValue", kNumeric, c.dtype(0));
  if (!(attrs.low <= attrs.high))
    fail<InvalidArgumentError>("[ClipByValue] expected low <= high, got {} and {}", attrs.low,
                               attrs.high);
  check_number("ClipByValue", c.dtype(0), attrs.low);
  check_number("ClipByValue", c.dtype(0), attrs.high);
  c.add_output(c.dtype(0), c.shape(0));
}

template <class T>
TANDEM_INLINED void clip_range(const T* x, Compute<T> low, Compute<T> high, T* out,
                               std::int64_t count) {
  write_elements(out, count,
                 [=](std::int64_t i) { return cpu::Clip()(element_of(x, i), low, high); });
}

void clip_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<ClipAttrs>();
  const DType dtype = c.inputs[0].dtype;
  const InFloat32 in_float32(c);
  switch_numeric(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    const T* x = c.inputs[0].as<const T>();
    T* out = c.outputs[0].as<T>();
    const auto low = static_cast<Compute<T>>(to_element<T>(rounded(dtype, attrs.low)));
    const auto high = static_cast<Compute<T>>(to_element<T>(rounded(dtype, attrs.high)));
    parallel_for(c.inputs[0].size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      run_loop<T, clip_range<T>>(x + begin, low, high, out + begin, end - begin);
    });
  });
}

void clip_gradient(GradContext& c) {
  const auto& attrs = c.attrs<ClipAttrs>();
  const Tensor inside =
      logical_and(greater_equal(c.input(0), attrs.low), less_equal(c.input(0), attrs.high));
  c.set_grad(0, where(inside, c.grad(), full(Shape::scalar(), 0.0, {.dtype = c.grad().dtype()})));
}

}  // namespace

const OpDef kClipByValue = {.name = "ClipByValue",
                            .attrs = attrs_type<ClipAttrs>,
                            .infer = infer_clip,
                            .gradient = clip_gradient,
                            .cpu_kernel = clip_kernel,
                            .traits = kElementwise | kInPlace,
                            .chain = {ChainOp::kClip, ChainForm::kClip},
                            .saved_inputs = 0b1};

Tensor clip_by_value(const Tensor& x, double low, double high) {
  return run(kClipByValue, {&x}, ClipAttrs{low, high});
}

}  // namespace tandem
