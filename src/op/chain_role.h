// What an element-wise operation is in a chain of them that a GPU runs as one kernel
// (ops/cuda/chain.h). It is a part of OpDef, so that no list elsewhere names operations.
#pragma once

#include <cstdint>

namespace tandem {

// The formulas (ops/formula/) of chains: on one operand, on two, activations and their gradients.
// The first of each may be in chains within another kernel, too.
// clang-format off
#define TANDEM_CHAIN_UNARY_FEW(X) X(Neg) X(Abs) X(Sign) X(Square) X(LogicalNot)
#define TANDEM_CHAIN_UNARY_MORE(X) \
  X(Sqrt) X(Rsqrt) X(Reciprocal) X(Exp) X(Expm1) X(Log) X(Log1p) X(Tanh) X(Sigmoid) X(Erf) \
  X(Floor) X(Ceil) X(Round) X(IsNan) X(IsFinite)
#define TANDEM_CHAIN_BINARY_FEW(X) \
  X(Add) X(Sub) X(Mul) X(Div) X(Maximum) X(Minimum) X(AtLeast) X(AtMost) X(SquaredDifference) \
  X(TanhGrad) X(SigmoidGrad) X(Equal) X(NotEqual) X(Less) X(LessEqual) X(Greater) \
  X(GreaterEqual) X(LogicalAnd) X(LogicalOr)
#define TANDEM_CHAIN_BINARY_MORE(X) X(SigmoidCrossEntropy)
#define TANDEM_CHAIN_ACTIVATION_FEW(X) X(Relu) X(Relu6) X(LeakyRelu)
#define TANDEM_CHAIN_ACTIVATION_MORE(X) X(Elu) X(Selu) X(Softplus) X(Swish) X(Gelu) X(GeluTanh)

enum class ChainOp : std::uint8_t {
  kNone,  // in no chain
  kMove,
  kSelect,  // operand 0 ? operand 1 : operand 2
#define TANDEM_CHAIN_OP(Name) k##Name,
#define TANDEM_CHAIN_OPS(Name) k##Name, k##Name##Grad,
  TANDEM_CHAIN_UNARY_FEW(TANDEM_CHAIN_OP) TANDEM_CHAIN_BINARY_FEW(TANDEM_CHAIN_OP)
  TANDEM_CHAIN_ACTIVATION_FEW(TANDEM_CHAIN_OPS)
  kEndOfFew,  // no operation: from here on, those of chains that are kernels of their own
  TANDEM_CHAIN_UNARY_MORE(TANDEM_CHAIN_OP) TANDEM_CHAIN_BINARY_MORE(TANDEM_CHAIN_OP)
  TANDEM_CHAIN_ACTIVATION_MORE(TANDEM_CHAIN_OPS)
#undef TANDEM_CHAIN_OP
#undef TANDEM_CHAIN_OPS
};
// clang-format on

// How an operation becomes steps of a chain.
enum class ChainForm : std::uint8_t {
  kPlain,        // its inputs are the operands
  kNumberRight,  // ScalarAttrs are operand 1
  kNumberLeft,   // or operand 0
  kActivation,   // ActivationAttrs are the step's number
  kCast,
  kClip,
  kSum,  // of all inputs, rounded at the end
};

struct ChainRole {
  ChainOp op = ChainOp::kNone;
  ChainForm form = ChainForm::kPlain;
};

}  // namespace tandem
