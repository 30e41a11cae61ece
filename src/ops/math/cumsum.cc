// Cumulative sums.
#include <algorithm>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "op/record.h"
#include "ops/formula/functions.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/math/in_float32.h"
#include "ops/math/reduce.h"
#include "runtime/dispatch.h"

namespace tandem {
namespace {

void infer_cumsum(InferContext& c) {
  check_dtype("Cumsum", kNumeric, c.dtype(0));
  if (c.shape(0).known()) resolve_axis("Cumsum", c.attrs<CumsumAttrs>().axis, c.shape(0).rank());
  c.add_output(c.dtype(0), c.shape(0));
}

// The sums along one run of elements at distance `step`: 1, or -1 from the last to the first.
template <class T>
void sum_run(const T* x, T* out, std::int64_t length, std::int64_t step) {
  Compute<T> sum{0};
  for (std::int64_t k = 0; k < length; ++k, x += step, out += step) {
    sum = cpu::Add()(sum, static_cast<Compute<T>>(*x));
    *out = store_as<T>(sum);
  }
}

// The sums down `count` (at most kFloatChunk) columns. `step` leads from one row to the next.
template <class T>
TANDEM_INLINED void sum_columns(const T* x, T* out, std::int64_t rows, std::int64_t step,
                                std::int64_t count) {
  using C = Compute<T>;
  alignas(64) C sums[kFloatChunk];
  std::fill_n(sums, count, C{0});
  for (std::int64_t row = 0; row < rows; ++row, x += step, out += step) {
    for (std::int64_t i = 0; i < count; ++i) sums[i] = cpu::Add()(sums[i], static_cast<C>(x[i]));
    write_elements(out, count, [&](std::int64_t i) { return sums[i]; });
  }
}

void cumsum_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<CumsumAttrs>();
  const Shape& shape = c.inputs[0].shape;
  const int axis = resolve_axis("Cumsum", attrs.axis, shape.rank());
  const std::int64_t length = shape.word(axis);
  const std::int64_t inner = shape.without_leading(axis + 1).num_elements();
  if (c.inputs[0].size() == 0) return;
  const InFloat32 in_float32(c);
  switch_numeric(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    const T* x = c.inputs[0].as<const T>();
    T* out = c.outputs[0].as<T>();
    parallel_for(
        c.inputs[0].size() / length, std::max<std::int64_t>(1, kElementwiseGrain / length),
        [&](std::int64_t begin, std::int64_t end) {
          while (begin < end) {
            const std::int64_t column = begin % inner;
            const std::int64_t count = std::min({inner - column, end - begin, kFloatChunk});
            std::int64_t at = begin / inner * length * inner + column;
            if (attrs.reverse) at += (length - 1) * inner;
            const std::int64_t step = attrs.reverse ? -inner : inner;
            if (inner == 1)
              sum_run(x + at, out + at, length, step);
            else
              run_loop<T, sum_columns<T>>(x + at, out + at, length, step, count);
            begin += count;
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
