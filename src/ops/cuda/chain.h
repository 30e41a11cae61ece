// Chains of element-wise operations (graph/passes/element_chain.h) as code that a GPU kernel
// interprets step by step. An operation by itself is a chain of one step. Each thread keeps a few
// elements in registers, so intermediate results never reach memory. Interpreting needs no compiler
// at run time, and tests run the kernel like any other. It costs one branch per step and pack of
// elements, which is uniform over all threads.
#pragma once

#include <cstdint>
#include <span>

#include "graph/passes/element_chain.h"
#include "op/chain_role.h"
#include "op/op.h"

namespace tandem::cuda {

inline constexpr int kChainSteps = 24;
inline constexpr int kChainSlots = 4;   // registers for results that a later step uses
inline constexpr int kChainInputs = 6;  // of a chain with its own kernel
inline constexpr int kTileInputs = 3;   // of a chain inside another kernel

// The location of an operand: number i is kNumber + i, slot i is kSlot + i, input i is kInput + i.
enum ChainPlace : std::uint8_t {
  kNowhere,
  kLast,
  kNumber,
  kSlot = kNumber + 2,
  kInput = kSlot + kChainSlots
};

struct ChainStep {
  ChainOp op = ChainOp::kMove;
  std::uint8_t operands[3] = {kNowhere, kNowhere, kNowhere};
  std::uint8_t slot = kNowhere;     // the slot that also keeps the result
  DType rounded = DType::kFloat32;  // the dtype that the result is rounded to
  double numbers[2] = {};           // that the compute type holds
};

struct ChainInput {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  bool repeats = false;  // a single element, used for all
};

// The argument of a kernel. Without steps the result is input 0. Everything is computed in one
// type: float (bool is 0 or 1); operations by themselves also in double and int64.
struct Chain {
  int steps = 0, inputs = 0;
  ChainStep step[kChainSteps] = {};
  ChainInput input[kChainInputs] = {};
};

// Whether chains of several operations support this dtype.
inline bool in_chains(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 ||
         dtype == DType::kBool;
}

// Whether chains of several operations support this operation.
bool takes(const BlockOperation& operation);
// Whether a chain of supported operations fits into a kernel, or, if `within`, into another kernel.
bool fits(const ElementChain& chain, std::size_t externals, bool within);
// The code of a chain with these external inputs. If `given` is not null, it is the first external
// input. An empty chain gives no steps. REQUIRES: it fits.
Chain chain_of(const ElementChain& chain, const TensorView* given,
               std::span<const TensorView> externals, bool within);

// Whether the operation by itself is a chain. AddN takes more tensors than chains have inputs, and
// SelectV2 only moves elements: they have other kernels.
inline bool is_one_step(const ChainRole& role) {
  return role.op != ChainOp::kNone && role.op != ChainOp::kSelect && role.form != ChainForm::kSum;
}
// The code of an operation by itself. REQUIRES: is_one_step(c.op->chain).
Chain chain_of(const KernelContext& c);

}  // namespace tandem::cuda
