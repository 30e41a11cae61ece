// Running an operation, eagerly: infer its shape, choose its device, move its inputs, allocate, run
// the kernel, record for gradients.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "op/op.h"

namespace tandem {

// Runs `op`. Throws InvalidArgumentError (shapes, dtypes, device), ResourceExhaustedError.
std::vector<Tensor> run_op(const OpDef& op, std::span<const Tensor* const> inputs,
                           AttrsRef attrs = NoAttrs());
// The same for an operation of one output; no allocation besides the result's.
Tensor run_single(const OpDef& op, std::span<const Tensor* const> inputs, AttrsRef attrs);
// The same for an operation that writes its mutated inputs and has no output.
void run_update(const OpDef& op, std::span<const Tensor* const> inputs, AttrsRef attrs);

// The same for an operation with kInPlace whose caller gives its first input away (moved in: then
// nobody can see it change). Where nothing else holds that memory, output 0 is written there.
std::vector<Tensor> run_op_in_place(const OpDef& op, Tensor first,
                                    std::initializer_list<const Tensor*> rest, AttrsRef attrs);
Tensor run_in_place(const OpDef& op, Tensor first, std::initializer_list<const Tensor*> rest,
                    AttrsRef attrs);

// As the operations call it: run(kMatMul, {&a, &b}, MatMulAttrs{...}).
inline Tensor run(const OpDef& op, std::initializer_list<const Tensor*> inputs, AttrsRef attrs) {
  return run_single(op, std::span<const Tensor* const>(inputs.begin(), inputs.size()), attrs);
}
inline Tensor run(const OpDef& op, std::initializer_list<const Tensor*> inputs) {
  static const NoAttrs none;
  return run_single(op, std::span<const Tensor* const>(inputs.begin(), inputs.size()), none);
}

}  // namespace tandem
