// Shape rules and CPU kernels of element-wise operations on two operands: two tensors that
// broadcast, or a tensor and a number.
//
// An operation is a type that is called with two elements in their compute type
// (ops/formula/functions.h). If it refuses some integers as right operand, it has refuses(right)
// and kExpected, the description of valid operands for messages.
#pragma once

#include <algorithm>
#include <array>

#include "core/multiversion.h"
#include "op/context.h"
#include "ops/math/broadcast.h"
#include "ops/math/chain_ops.h"
#include "ops/math/elementwise.h"
#include "ops/math/float_chunks.h"
#include "ops/math/in_float32.h"
#include "ops/math/number.h"
#include "ops/math/scalar_attrs.h"

namespace tandem {

// kResult: the result's dtype; by default that of the operands.
template <DTypeSet kDTypes, DType... kResult>
void infer_binary(InferContext& c) {
  const Shape &a = c.shape(0), &b = c.shape(1);
  const DType dtype = c.dtype(0);
  if (dtype != c.dtype(1)) [[unlikely]]
    fail<DTypeError>("[{}] expected tensors of one dtype, got {} and {}", c.op().name,
                     name_of(dtype), name_of(c.dtype(1)));
  check_dtype(c.op().name, kDTypes, dtype);
  const DType result = std::array{kResult..., dtype}[0];
  if (a == b) [[likely]]
    c.add_output(result, a);
  else
    c.add_output(result, broadcast_shape(c.op().name, a, b));
}

enum class ScalarSide { kLeft, kRight };

template <class Op, ScalarSide kSide, DTypeSet kDTypes, DType... kResult>
void infer_scalar(InferContext& c) {
  const DType dtype = c.dtype(0);
  const double scalar = c.attrs<ScalarAttrs>().scalar;
  check_dtype(c.op().name, kDTypes, dtype);
  check_number(c.op().name, dtype, scalar);
  if constexpr (kSide == ScalarSide::kRight && requires { Op::kExpected; })
    if (is_integer(dtype) && Op::refuses(static_cast<std::int64_t>(scalar)))
      fail<InvalidArgumentError>("[{}] expected {}, got {}", c.op().name, Op::kExpected, scalar);
  c.add_output(std::array{kResult..., dtype}[0], c.shape(0));
}

// The loops of one operation on one element type. `a`, `b` and `out` point to elements. In
// functions with `number` in their name, that operand is a single element.
struct BinaryLoops {
  using Loop = void (*)(const void* a, const void* b, void* out, std::int64_t count);
  Loop tensor_tensor;
  Loop tensor_number;
  Loop number_tensor;
  // Throws InvalidArgumentError for the first refused right operand. Null if all are valid.
  void (*check_right)(const OpDef& op, const void* b, std::int64_t count);
  std::size_t input_size;  // bytes per element
  std::size_t output_size;
};

// Runs the loops over the context's two inputs.
void run_binary(KernelContext& c, const BinaryLoops& loops);
// Runs them over its single input, with `number` (an element) as the right or left operand.
void run_binary_with_number(KernelContext& c, const BinaryLoops& loops, const void* number,
                            bool number_is_left);

namespace binary_detail {

// Output element i depends only on input elements i, so `out` may be `a`.
template <class Op, class A, class B, class Out>
TANDEM_INLINED void plain_loop(A a, B b, Out* out, std::int64_t count) {
  write_elements(out, count,
                 [=](std::int64_t i) { return Op()(element_of(a, i), element_of(b, i)); });
}

// Pointers are tensors; the others are numbers.
template <class Op, class A, class B, class Out>
void loop(A a, B b, Out* out, std::int64_t count) {
  using T = std::remove_cv_t<std::remove_pointer_t<std::conditional_t<std::is_pointer_v<A>, A, B>>>;
  constexpr bool kTensors = std::is_pointer_v<A> && std::is_pointer_v<B>;
  constexpr bool kRange = has_float_range<Op, T>;
  if constexpr (kTensors && kRange) {
    loop_in_range<Op>(
        [](const T* x, const T* y, Out* z, std::int64_t n) {
          run_loop<T, plain_loop<Op, const T*, const T*, Out>>(x, y, z, n);
        },
        out, count, a, b);
  } else if constexpr (kTensors || !(kRange || needs_tensors<Op>)) {
    run_loop<T, plain_loop<Op, A, B, Out>>(a, b, out, count);
  } else {
    alignas(64) T numbers[kFloatChunk];
    for (std::int64_t begin = 0; begin < count; begin += kFloatChunk) {
      const std::int64_t size = std::min(kFloatChunk, count - begin);
      if constexpr (std::is_pointer_v<A>) {
        if (begin == 0) std::fill_n(numbers, size, static_cast<T>(b));
        loop<Op, const T*, const T*>(a + begin, numbers, out + begin, size);
      } else {
        if (begin == 0) std::fill_n(numbers, size, static_cast<T>(a));
        loop<Op, const T*, const T*>(numbers, b + begin, out + begin, size);
      }
    }
  }
}

template <class Op, class T, class Out>
void tensor_tensor(const void* left, const void* right, void* result, std::int64_t count) {
  const T *a = static_cast<const T*>(left), *b = static_cast<const T*>(right);
  Out* out = static_cast<Out*>(result);
  if constexpr (needs_chunks<Op, T>)
    loop_on_floats(
        [](const float* x, const float* y, auto* z, std::int64_t n) { loop<Op>(x, y, z, n); }, out,
        count, a, b);
  else
    loop<Op>(a, b, out, count);
}

template <class Op, class T, class Out>
void tensor_number(const void* left, const void* right, void* result, std::int64_t count) {
  const T* a = static_cast<const T*>(left);
  const auto b = static_cast<Compute<T>>(*static_cast<const T*>(right));
  Out* out = static_cast<Out*>(result);
  if constexpr (needs_chunks<Op, T>)
    loop_on_floats([b](const float* x, auto* z, std::int64_t n) { loop<Op>(x, b, z, n); }, out,
                   count, a);
  else
    loop<Op>(a, b, out, count);
}

template <class Op, class T, class Out>
void number_tensor(const void* left, const void* right, void* result, std::int64_t count) {
  const auto a = static_cast<Compute<T>>(*static_cast<const T*>(left));
  const T* b = static_cast<const T*>(right);
  Out* out = static_cast<Out*>(result);
  if constexpr (needs_chunks<Op, T>)
    loop_on_floats([a](const float* y, auto* z, std::int64_t n) { loop<Op>(a, y, z, n); }, out,
                   count, b);
  else
    loop<Op>(a, b, out, count);
}

template <class Op, class T>
void check_right(const OpDef& op, const void* right, std::int64_t count) {
  const T* b = static_cast<const T*>(right);
  for (std::int64_t i = 0; i < count; ++i)
    if (Op::refuses(b[i])) [[unlikely]]
      fail<InvalidArgumentError>("[{}] expected {}, got {} at element {}", op.name, Op::kExpected,
                                 b[i], context.first_element + i);
}

template <class Op, class T, class Out>
constexpr BinaryLoops make_loops() {
  BinaryLoops loops = {tensor_tensor<Op, T, Out>,
                       tensor_number<Op, T, Out>,
                       number_tensor<Op, T, Out>,
                       nullptr,
                       sizeof(T),
                       sizeof(Out)};
  if constexpr (std::integral<T> && requires { Op::kExpected; })
    loops.check_right = check_right<Op, T>;
  return loops;
}

// Result: the result's type; void for the operands' type.
template <class Op, class T, class Result>
inline constexpr BinaryLoops loops_of =
    make_loops<Op, T, std::conditional_t<std::is_void_v<Result>, T, Result>>();

}  // namespace binary_detail

// Result: void for the operands' type, or bool. kDTypes: as in the shape rule.
template <class Op, class Result, DTypeSet kDTypes>
void binary_kernel(KernelContext& c) {
  const InFloat32 in_float32(c);
  switch_computed(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    if constexpr ((kDTypes & set_of(dtype_of<T>)) != 0)
      run_binary(c, binary_detail::loops_of<Op, T, Result>);
  });
}

// The operation on a tensor and the number in its ScalarAttrs.
template <class Op, ScalarSide kSide, class Result, DTypeSet kDTypes>
void scalar_kernel(KernelContext& c) {
  const double scalar = rounded(c.inputs[0].dtype, c.attrs<ScalarAttrs>().scalar);
  const InFloat32 in_float32(c);
  switch_computed(c.inputs[0].dtype, [&]<class T>(TypeTag<T>) {
    if constexpr ((kDTypes & set_of(dtype_of<T>)) != 0) {
      const T number = to_element<T>(scalar);
      run_binary_with_number(c, binary_detail::loops_of<Op, T, Result>, &number,
                             kSide == ScalarSide::kLeft);
    }
  });
}

// The operation on two tensors. kResult: as in the shape rule; if given, it is bool.
template <class Op, DTypeSet kDTypes = kNumeric, DType... kResult>
constexpr OpDef binary_op(std::string_view name, GradFn gradient = nullptr, SavedTensors saved = {},
                          std::uint32_t traits = kNoTraits) {
  using Result = std::conditional_t<sizeof...(kResult) == 0, void, bool>;
  return {.name = name,
          .infer = infer_binary<kDTypes, kResult...>,
          .gradient = gradient,
          .cpu_kernel = binary_kernel<Op, Result, kDTypes>,
          .traits = kElementwise | kInPlace | traits,
          .autocast = kAutocastWidest,
          .chain = {kChainOp<Op>},
          .saved_inputs = saved.inputs,
          .saved_outputs = saved.outputs};
}

// The operation on a tensor and a number, which is the operand on the side kSide.
template <class Op, ScalarSide kSide = ScalarSide::kRight, DTypeSet kDTypes = kNumeric,
          DType... kResult>
constexpr OpDef scalar_op(std::string_view name, GradFn gradient = nullptr,
                          SavedTensors saved = {}) {
  using Result = std::conditional_t<sizeof...(kResult) == 0, void, bool>;
  return {.name = name,
          .attrs = attrs_type<ScalarAttrs>,
          .infer = infer_scalar<Op, kSide, kDTypes, kResult...>,
          .gradient = gradient,
          .cpu_kernel = scalar_kernel<Op, kSide, Result, kDTypes>,
          .traits = kElementwise | kInPlace,
          .chain = {kChainOp<Op>,
                    kSide == ScalarSide::kRight ? ChainForm::kNumberRight : ChainForm::kNumberLeft},
          .saved_inputs = saved.inputs,
          .saved_outputs = saved.outputs};
}

}  // namespace tandem
