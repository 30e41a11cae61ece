// Comparisons, logical operations, and where().
#include "op/record.h"
#include "ops/formula/functions.h"
#include "ops/math/binary_kernel.h"
#include "ops/math/unary_kernel.h"
#include "ops/op_list.h"
#include "runtime/dispatch.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

constexpr DTypeSet kBool = set_of(bool_);

template <class Op, DTypeSet kDTypes>
constexpr OpDef comparison(std::string_view name, std::uint32_t traits = kNoTraits) {
  return binary_op<Op, kDTypes, bool_>(name, nullptr, {}, traits);
}
template <class Op, DTypeSet kDTypes>
constexpr OpDef scalar_comparison(std::string_view name) {
  return scalar_op<Op, ScalarSide::kRight, kDTypes, bool_>(name);
}

const OpDef kEqual = comparison<cpu::Equal, kAnyDType>("Equal", kCommutative);
const OpDef kNotEqual = comparison<cpu::NotEqual, kAnyDType>("NotEqual", kCommutative);
const OpDef kLess = comparison<cpu::Less, kNumeric>("Less");
const OpDef kLessEqual = comparison<cpu::LessEqual, kNumeric>("LessEqual");
const OpDef kGreater = comparison<cpu::Greater, kNumeric>("Greater");
const OpDef kGreaterEqual = comparison<cpu::GreaterEqual, kNumeric>("GreaterEqual");
const OpDef kEqualScalar = scalar_comparison<cpu::Equal, kAnyDType>("EqualScalar");
const OpDef kLessScalar = scalar_comparison<cpu::Less, kNumeric>("LessScalar");
const OpDef kLessEqualScalar = scalar_comparison<cpu::LessEqual, kNumeric>("LessEqualScalar");
const OpDef kGreaterScalar = scalar_comparison<cpu::Greater, kNumeric>("GreaterScalar");
const OpDef kGreaterEqualScalar =
    scalar_comparison<cpu::GreaterEqual, kNumeric>("GreaterEqualScalar");
const OpDef kLogicalAnd = comparison<cpu::LogicalAnd, kBool>("LogicalAnd", kCommutative);
const OpDef kLogicalOr = comparison<cpu::LogicalOr, kBool>("LogicalOr", kCommutative);
const OpDef kLogicalNot = unary_op<cpu::LogicalNot, kBool>("LogicalNot");

// --- where ---

void infer_select(InferContext& c) {
  if (c.dtype(0) != bool_)
    fail<DTypeError>("[SelectV2] expected a condition of dtype bool, got {}", name_of(c.dtype(0)));
  if (c.dtype(1) != c.dtype(2))
    fail<DTypeError>("[SelectV2] expected tensors of one dtype, got {} and {}", name_of(c.dtype(1)),
                     name_of(c.dtype(2)));
  Shape shape =
      c.shape(1) == c.shape(2) ? c.shape(1) : broadcast_shape("SelectV2", c.shape(1), c.shape(2));
  if (!(shape == c.shape(0))) shape = broadcast_shape("SelectV2", c.shape(0), shape);
  c.add_output(c.dtype(1), shape);
}

// Elements are only moved, so that an unsigned integer of their size serves for any dtype.
template <class U>
inline U pick(std::uint8_t condition, U x, U y) {
  const U mask = static_cast<U>(U{0} - static_cast<U>(condition));
  return static_cast<U>((x & mask) | (y & static_cast<U>(~mask)));
}

// A stride is 1, or 0 if the operand repeats.
template <class U>
TANDEM_MULTIVERSION void select_loop(const std::uint8_t* condition, std::int64_t condition_stride,
                                     const U* a, std::int64_t a_stride, const U* b,
                                     std::int64_t b_stride, U* __restrict__ out,
                                     std::int64_t count) {
  const U x = *a, y = *b;
  if (condition_stride == 0) {
    const U* from = *condition ? a : b;
    const std::int64_t stride = *condition ? a_stride : b_stride;
    for (std::int64_t i = 0; i < count; ++i) out[i] = from[i * stride];
  } else if (a_stride == 1 && b_stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = pick(condition[i], a[i], b[i]);
  } else if (a_stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = pick(condition[i], a[i], y);
  } else if (b_stride == 1) {
    for (std::int64_t i = 0; i < count; ++i) out[i] = pick(condition[i], x, b[i]);
  } else {
    for (std::int64_t i = 0; i < count; ++i) out[i] = pick(condition[i], x, y);
  }
}

template <class U>
void select(KernelContext& c) {
  const TensorView &condition = c.inputs[0], &a = c.inputs[1], &b = c.inputs[2];
  const std::int64_t size = c.outputs[0].size();
  if (size == 0) return;
  const BroadcastPlan plan(c.outputs[0].shape, std::array{&condition.shape, &a.shape, &b.shape});
  const std::int64_t strides[] = {plan.inner_stride(0), plan.inner_stride(1), plan.inner_stride(2)};
  parallel_for(size, kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    plan.for_runs(begin, end,
                  [&](std::int64_t at, const BroadcastPlan::Offsets& from, std::int64_t length) {
                    select_loop(condition.as<const std::uint8_t>() + from[0], strides[0],
                                a.as<const U>() + from[1], strides[1], b.as<const U>() + from[2],
                                strides[2], c.outputs[0].as<U>() + at, length);
                  });
  });
}

void select_kernel(KernelContext& c) {
  switch (size_of(c.inputs[1].dtype)) {
    case 1: return select<std::uint8_t>(c);
    case 2: return select<std::uint16_t>(c);
    case 4: return select<std::uint32_t>(c);
    default: return select<std::uint64_t>(c);
  }
}

void select_gradient(GradContext& c) {
  const Tensor zero = full(Shape::scalar(), 0.0, {.dtype = c.grad().dtype()});
  if (c.needs_grad(1))
    c.set_grad(1, sum_to_shape(where(c.input(0), c.grad(), zero), c.input_spec(1).shape));
  if (c.needs_grad(2))
    c.set_grad(2, sum_to_shape(where(c.input(0), zero, c.grad()), c.input_spec(2).shape));
}

const OpDef kSelect = {.name = "SelectV2",
                       .infer = infer_select,
                       .gradient = select_gradient,
                       .cpu_kernel = select_kernel,
                       .traits = kElementwise,
                       .autocast = kAutocastWidest,
                       .chain = {ChainOp::kSelect},
                       .saved_inputs = 0b1};

}  // namespace

Tensor equal(const Tensor& a, const Tensor& b) { return run(kEqual, {&a, &b}); }
Tensor not_equal(const Tensor& a, const Tensor& b) { return run(kNotEqual, {&a, &b}); }
Tensor less(const Tensor& a, const Tensor& b) { return run(kLess, {&a, &b}); }
Tensor less_equal(const Tensor& a, const Tensor& b) { return run(kLessEqual, {&a, &b}); }
Tensor greater(const Tensor& a, const Tensor& b) { return run(kGreater, {&a, &b}); }
Tensor greater_equal(const Tensor& a, const Tensor& b) { return run(kGreaterEqual, {&a, &b}); }
Tensor equal(const Tensor& a, double b) { return run(kEqualScalar, {&a}, ScalarAttrs{b}); }
Tensor not_equal(const Tensor& a, double b) { return logical_not(equal(a, b)); }
Tensor less(const Tensor& a, double b) { return run(kLessScalar, {&a}, ScalarAttrs{b}); }
Tensor less_equal(const Tensor& a, double b) { return run(kLessEqualScalar, {&a}, ScalarAttrs{b}); }
Tensor greater(const Tensor& a, double b) { return run(kGreaterScalar, {&a}, ScalarAttrs{b}); }
Tensor greater_equal(const Tensor& a, double b) {
  return run(kGreaterEqualScalar, {&a}, ScalarAttrs{b});
}
Tensor logical_and(const Tensor& a, const Tensor& b) { return run(kLogicalAnd, {&a, &b}); }
Tensor logical_or(const Tensor& a, const Tensor& b) { return run(kLogicalOr, {&a, &b}); }
Tensor logical_not(const Tensor& x) { return run(kLogicalNot, {&x}); }
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  return run(kSelect, {&condition, &a, &b});
}

OpList compare_ops() {
  return list_of<kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kEqualScalar,
                 kLessScalar, kLessEqualScalar, kGreaterScalar, kGreaterEqualScalar, kLogicalAnd,
                 kLogicalOr, kLogicalNot, kSelect>();
}

}  // namespace tandem
