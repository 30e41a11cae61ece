// The chain operation that computes a formula; ChainOp::kNone if there is none.
#pragma once

#include "op/chain_role.h"
#include "ops/formula/activations.h"
#include "ops/formula/functions.h"

namespace tandem {

template <class Formula>
inline constexpr ChainOp kChainOp = ChainOp::kNone;
template <class Activation>
inline constexpr ChainOp kChainGradOp = ChainOp::kNone;

#define TANDEM_CHAIN_OP(Name) \
  template <>                 \
  inline constexpr ChainOp kChainOp<cpu::Name> = ChainOp::k##Name;
#define TANDEM_CHAIN_OPS(Name) \
  TANDEM_CHAIN_OP(Name)        \
  template <>                  \
  inline constexpr ChainOp kChainGradOp<cpu::Name> = ChainOp::k##Name##Grad;
TANDEM_CHAIN_UNARY_FEW(TANDEM_CHAIN_OP)
TANDEM_CHAIN_UNARY_MORE(TANDEM_CHAIN_OP)
TANDEM_CHAIN_BINARY_FEW(TANDEM_CHAIN_OP)
TANDEM_CHAIN_BINARY_MORE(TANDEM_CHAIN_OP)
TANDEM_CHAIN_ACTIVATION_FEW(TANDEM_CHAIN_OPS)
TANDEM_CHAIN_ACTIVATION_MORE(TANDEM_CHAIN_OPS)
#undef TANDEM_CHAIN_OP
#undef TANDEM_CHAIN_OPS

}  // namespace tandem
