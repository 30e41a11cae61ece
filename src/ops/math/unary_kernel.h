// Shape rule and CPU kernel of element-wise operations on one tensor.
//
// An operation is a type that is called with an element in its compute type
// (ops/formula/functions.h).
#pragma once

#include <array>

#include "core/multiversion.h"
#include "core/parallel.h"
#include "ops/math/chain_ops.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/math/in_float32.h"

namespace tandem {

// kResult: the result's dtype; by default the input's.
template <DTypeSet kDTypes, DType... kResult>
void infer_unary(InferContext& c) {
  check_dtype(c.op().name, kDTypes, c.dtype(0));
  c.add_output(std::array{kResult..., c.dtype(0)}[0], c.shape(0));
}

namespace unary_detail {

// `out` may be `x`.
template <class Op, class T, class Out>
TANDEM_INLINED void plain_loop(const T* x, Out* out, std::int64_t count) {
  write_elements(out, count, [=](std::int64_t i) { return Op()(element_of(x, i)); });
}

template <class Op, class T, class Out>
void loop(const T* x, Out* out, std::int64_t count) {
  if constexpr (is_16_bit_floating<T> && ChangesSign<Op>)
    run_loop<T, plain_loop<typename SignOf<Op>::Bits, std::uint16_t, std::uint16_t>>(
        reinterpret_cast<const std::uint16_t*>(x), reinterpret_cast<std::uint16_t*>(out), count);
  else if constexpr (std::is_same_v<T, bool>)  // GCC does not vectorise the negation of bools
    plain_loop<Op>(reinterpret_cast<const std::uint8_t*>(x), out, count);
  else if constexpr (needs_chunks<Op, T>)
    loop_on_floats(
        [](const float* wide, auto* result, std::int64_t n) { loop<Op>(wide, result, n); }, out,
        count, x);
  else if constexpr (has_float_range<Op, T>)
    loop_in_range<Op>([](const T* in, Out* result,
                         std::int64_t n) { run_loop<T, plain_loop<Op, T, Out>>(in, result, n); },
                      out, count, x);
  else
    run_loop<T, plain_loop<Op, T, Out>>(x, out, count);
}

}  // namespace unary_detail

// Result: the result's type; void for the input's type. kDTypes: as in the shape rule.
template <class Op, DTypeSet kDTypes, class Result>
void unary_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  switch_computed(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    if constexpr ((kDTypes & set_of(dtype_of<T>)) != 0) {
      using Out = std::conditional_t<std::is_void_v<Result>, T, Result>;
      const T* x = c.inputs[0].as<const T>();
      Out* out = c.outputs[0].as<Out>();
      parallel_for(c.inputs[0].size(), kElementwiseGrain,
                   [&](std::int64_t begin, std::int64_t end) {
                     unary_detail::loop<Op>(x + begin, out + begin, end - begin);
                   });
    }
  });
}

// The operation. kResult: as in the shape rule; if given, it is bool.
template <class Op, DTypeSet kDTypes, DType... kResult>
constexpr OpDef unary_op(std::string_view name, GradFn gradient = nullptr,
                         SavedTensors saved = {}) {
  using Result = std::conditional_t<sizeof...(kResult) == 0, void, bool>;
  return {.name = name,
          .infer = infer_unary<kDTypes, kResult...>,
          .gradient = gradient,
          .cpu_kernel = unary_kernel<Op, kDTypes, Result>,
          .traits = kElementwise | kInPlace,
          .chain = {kChainOp<Op>},
          .saved_inputs = saved.inputs,
          .saved_outputs = saved.outputs};
}

}  // namespace tandem
