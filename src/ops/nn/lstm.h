// The operation of all steps of an LSTM's direction: S. Hochreiter and J. Schmidhuber, "Long
// short-term memory", 1997, with the forget gate of F. Gers et al., 2000.
#pragma once

#include "op/op.h"

namespace tandem {

// Sequences are [batch, steps, ...]; with `time_major` [steps, batch, ...].
struct LstmAttrs {
  bool go_backwards = false;  // the last step of a sequence comes first
  bool time_major = false;
  TANDEM_FIELDS(go_backwards, time_major)
};

// Inputs: the products of the steps' inputs, with biases, [batch, steps, 4 units]; the state before
// the first step, hidden and cell [batch, units]; and the recurrent kernel [units, 4 units], whose
// gates are input, forget, candidate and output. Outputs, at the positions of the steps: the
// activated gates [batch, steps, 4 units], and the hidden states and cells [batch, steps, units].
extern const OpDef kLstmSteps;
// Inputs: the hidden states' gradient, gates, cells, first cell, the transposed recurrent kernel,
// and optionally the gradients of cells and gates. Outputs: the gradients of the products, the
// first hidden state and the first cell.
extern const OpDef kLstmStepsGrad;

// Whether the operation computes so many steps (or an unknown number) best: on a CPU, as far as the
// calling thread knows in a trace. It has no kernel for GPUs, and no lowering. In bfloat16 that the
// CPU has instructions for, steps that are composed of operations are faster.
bool has_lstm_steps(DType dtype, std::int64_t steps);

struct LstmStates {
  Tensor hidden;                  // after each step, at the positions of the steps
  Tensor last_hidden, last_cell;  // [batch, units]
};
// If `products` is moved in, its memory is reused.
LstmStates lstm_steps(Tensor products, const Tensor& hidden, const Tensor& cell,
                      const Tensor& recurrent_kernel, const LstmAttrs& attrs);

}  // namespace tandem
