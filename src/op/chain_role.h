// The role of an element-wise operation in a chain, which a GPU runs as one kernel
// (ops/cuda/chain.h). It is part of OpDef, so that no other list names operations.
#pragma once

#include <cstdint>

namespace tandem {

// The formulas (ops/formula/) of chains: unary, binary, and activations with their gradients. The
// FEW of each can also be in chains that are fused into another kernel. The FEW and all binary ones
// also take integers.
// clang-format off
#define TANDEM_CHAIN_UNARY_FEW(X) X(Neg) X(Abs) X(Sign) X(Square) X(Cube) X(LogicalNot)
#define TANDEM_CHAIN_UNARY_MORE(X) \
  X(Sqrt) X(Rsqrt) X(Reciprocal) X(Exp) X(Expm1) X(Log) X(Log1p) X(Sin) X(Cos) X(Tanh) X(Sigmoid) \
  X(Erf) X(Floor) X(Ceil) X(Round) X(IsNan) X(IsFinite)
#define TANDEM_CHAIN_BINARY_FEW(X) \
  X(Add) X(Sub) X(Mul) X(Div) X(Maximum) X(Minimum) X(SquaredDifference) X(TanhGrad) \
  X(SigmoidGrad) X(Equal) X(NotEqual) X(Less) X(LessEqual) X(Greater) X(GreaterEqual) \
  X(LogicalAnd) X(LogicalOr)
#define TANDEM_CHAIN_BINARY_MORE(X) X(Pow) X(FloorDiv) X(FloorMod)
#define TANDEM_CHAIN_ACTIVATION_FEW(X) X(Relu) X(Relu6) X(LeakyRelu)
#define TANDEM_CHAIN_ACTIVATION_MORE(X) X(Elu) X(Selu) X(Softplus) X(Swish) X(Gelu) X(GeluTanh)

enum class ChainOp : std::uint8_t {
  kNone,  // not in chains
  kMove,
  kSelect,  // operand 0 ? operand 1 : operand 2
  kClip,    // operand 0, between operands 1 and 2
#define TANDEM_CHAIN_OP(Name) k##Name,
#define TANDEM_CHAIN_OPS(Name) k##Name, k##Name##Grad,
  TANDEM_CHAIN_UNARY_FEW(TANDEM_CHAIN_OP) TANDEM_CHAIN_BINARY_FEW(TANDEM_CHAIN_OP)
  TANDEM_CHAIN_ACTIVATION_FEW(TANDEM_CHAIN_OPS)
  kEndOfFew,  // a separator: the following are only in chains that are separate kernels
  kSigmoidCrossEntropy,
  kSigmoidCrossEntropyGrad,
  TANDEM_CHAIN_UNARY_MORE(TANDEM_CHAIN_OP) TANDEM_CHAIN_BINARY_MORE(TANDEM_CHAIN_OP)
  TANDEM_CHAIN_ACTIVATION_MORE(TANDEM_CHAIN_OPS)
#undef TANDEM_CHAIN_OP
#undef TANDEM_CHAIN_OPS
};
// clang-format on

// How an operation is converted to steps of a chain.
enum class ChainForm : std::uint8_t {
  kPlain,        // its inputs are the operands
  kNumberRight,  // operand 1 comes from ScalarAttrs
  kNumberLeft,   // operand 0 comes from ScalarAttrs
  kActivation,   // the step's number comes from ActivationAttrs
  kCast,
  kClip,   // operands 1 and 2 come from ClipAttrs
  kPower,  // as kNumberRight; the exponents 2 and 3 are multiplications
  kSum,    // of all inputs, rounded once at the end
};

struct ChainRole {
  ChainOp op = ChainOp::kNone;
  ChainForm form = ChainForm::kPlain;
};

}  // namespace tandem
