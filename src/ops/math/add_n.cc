// The sum of any number of tensors in one pass over memory.
#include <array>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "core/widen.h"
#include "op/record.h"
#include "ops/formula/functions.h"
#include "ops/math/binary.h"
#include "ops/math/elementwise.h"
#include "ops/math/in_float32.h"
#include "runtime/dispatch.h"
#include "tandem/math.h"

namespace tandem {
namespace {

void infer_add_n(InferContext& c) {
  const DType dtype = c.dtype(0);
  Shape shape = c.shape(0);
  check_dtype("AddN", kNumeric, dtype);
  for (int i = 1; i < c.num_inputs(); ++i)
    if (c.dtype(i) != dtype || !dim::may_equal(c.shape(i), shape))
      fail<InvalidArgumentError>(
          "[AddN] expected tensors of one shape and dtype, {} {}, got {} {} as tensor {}",
          shape.to_string(), name_of(dtype), c.shape(i).to_string(), name_of(c.dtype(i)), i);
    else
      shape = dim::agreed(shape, c.shape(i));
  c.add_output(dtype, shape);
}

// Elements of all inputs that are summed at a time, so that the sums stay in the L1 cache.
constexpr std::int64_t kChunk = 2048;

template <class T>
TANDEM_INLINED void load_chunk(const T* x, Compute<T>* sum, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<Compute<T>>(x[i]);
}
// `sum` may be `a` or `b`.
template <class A, class T>
TANDEM_INLINED void add_chunks(const A* a, const T* b, Compute<T>* sum, std::int64_t count) {
#pragma GCC ivdep
  for (std::int64_t i = 0; i < count; ++i)
    sum[i] = cpu::Add()(static_cast<Compute<T>>(a[i]), static_cast<Compute<T>>(b[i]));
}

void add_n_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  switch_numeric(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    constexpr bool kWide = !std::is_same_v<T, Compute<T>>;
    const int last = c.inputs.size() - 1;
    T* out = c.outputs[0].as<T>();
    parallel_for(c.outputs[0].size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
      alignas(64) std::array<Compute<T>, kChunk> sums;
      for (; begin < end; begin += kChunk) {
        const std::int64_t count = std::min(kChunk, end - begin);
        const auto input = [&](int n) { return c.inputs[n].as<const T>() + begin; };
        // The output may be any of the inputs, so only the last addition writes to it.
        const auto to = [&](int n) {
          if constexpr (!kWide)
            if (n == last) return out + begin;
          return sums.data();
        };
        if (last == 0)
          run_loop<T, load_chunk<T>>(input(0), to(0), count);
        else
          run_loop<T, add_chunks<T, T>>(input(0), input(1), to(1), count);
        for (int n = 2; n <= last; ++n)
          run_loop<T, add_chunks<Compute<T>, T>>(sums.data(), input(n), to(n), count);
        if constexpr (kWide) narrow(sums.data(), out + begin, count);
      }
    });
  });
}

void add_n_gradient(GradContext& c) {
  for (int i = 0; i < c.num_inputs(); ++i)
    if (c.needs_grad(i)) c.set_grad(i, c.grad());
}

}  // namespace

const OpDef kAddN = {.name = "AddN",
                     .infer = infer_add_n,
                     .gradient = add_n_gradient,
                     .cpu_kernel = add_n_kernel,
                     .traits = kElementwise | kInPlace,
                     .autocast = kAutocastWidest,
                     .chain = {ChainOp::kAdd, ChainForm::kSum}};

Tensor add_n(TensorList tensors) {
  if (tensors.empty()) fail<InvalidArgumentError>("[AddN] expected at least one tensor, got none");
  std::vector<const Tensor*> inputs;
  inputs.reserve(tensors.size());
  for (const Tensor& tensor : tensors) inputs.push_back(&tensor);
  return run_single(kAddN, inputs, NoAttrs());
}

}  // namespace tandem
