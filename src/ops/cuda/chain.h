// Chains of element-wise operations (graph/passes/element_chain.h) as code that a kernel follows
// step by step, with a few elements a thread in registers: what the operations hand to each other
// never reaches memory. Interpreted, not compiled: no compiler is needed where a program runs, and
// the tests run the kernel as they run others. The price is a branch a step, which all threads take
// alike, for eight elements each.
#pragma once

#include <cstdint>
#include <span>

#include "graph/passes/element_chain.h"
#include "op/chain_role.h"
#include "op/op.h"

namespace tandem::cuda {

inline constexpr int kChainSteps = 24;
inline constexpr int kChainSlots = 4;   // results that are not used by the next step
inline constexpr int kChainInputs = 6;  // of a kernel of its own
inline constexpr int kTileInputs = 3;   // of a chain within another kernel

// Where an operand is; an input i is kInput + i, a slot kSlot + i.
enum ChainPlace : std::uint8_t { kNowhere, kLast, kNumber, kSlot, kInput = kSlot + kChainSlots };

struct ChainStep {
  ChainOp op = ChainOp::kMove;
  std::uint8_t operands[3] = {kNowhere, kNowhere, kNowhere};
  std::uint8_t slot = kNowhere;     // where the result is kept, too
  DType rounded = DType::kFloat32;  // to what the result is rounded
  float number = 0;
};

struct ChainInput {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  bool repeats = false;  // one element for all
};

// What a kernel is given. Without steps the result is input 0. Everything is computed in float;
// bool is 0 or 1.
struct Chain {
  int steps = 0, inputs = 0;
  ChainStep step[kChainSteps];
  ChainInput input[kChainInputs];
};

// The dtypes that chains have.
inline bool in_chains(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 ||
         dtype == DType::kBool;
}

// Whether a chain may have this operation.
bool takes(const BlockOperation& operation);
// Whether a chain of such operations fits into a kernel; `within`: into a part of another one.
bool fits(const ElementChain& chain, std::size_t externals, bool within);
// The chain with these externals, the first of them `given` unless that is null; without operations
// where it is empty. REQUIRES: it fits.
Chain chain_of(const ElementChain& chain, const TensorView* given,
               std::span<const TensorView> externals, bool within);

}  // namespace tandem::cuda
