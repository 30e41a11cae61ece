// Runs operations eagerly: infers shapes, chooses the device, copies inputs there, allocates
// outputs, runs the kernel and records the operation for gradients.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "op/op.h"

namespace tandem {

// Runs `op`. Throws InvalidArgumentError (shapes, dtypes, device), ResourceExhaustedError.
std::vector<Tensor> run_op(const OpDef& op, std::span<const Tensor* const> inputs,
                           AttrsRef attrs = NoAttrs());
// The same for an operation with one output. Allocates nothing besides the result.
Tensor run_single(const OpDef& op, std::span<const Tensor* const> inputs, AttrsRef attrs);
// The same for an operation without outputs that writes its mutated inputs.
void run_update(const OpDef& op, std::span<const Tensor* const> inputs, AttrsRef attrs);

// The same for an operation with kInPlace whose first input is moved in. If no other tensor refers
// to its memory, output 0 is written there.
std::vector<Tensor> run_op_in_place(const OpDef& op, Tensor first,
                                    std::initializer_list<const Tensor*> rest, AttrsRef attrs);
Tensor run_in_place(const OpDef& op, Tensor first, std::initializer_list<const Tensor*> rest,
                    AttrsRef attrs);

// Short forms for implementations of operations: run(kMatMul, {&a, &b}, MatMulAttrs{...}).
inline Tensor run(const OpDef& op, std::initializer_list<const Tensor*> inputs, AttrsRef attrs) {
  return run_single(op, std::span<const Tensor* const>(inputs.begin(), inputs.size()), attrs);
}
inline Tensor run(const OpDef& op, std::initializer_list<const Tensor*> inputs) {
  static const NoAttrs none;
  return run_single(op, std::span<const Tensor* const>(inputs.begin(), inputs.size()), none);
}

}  // namespace tandem
