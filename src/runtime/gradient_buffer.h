// Buffers that gradients are computed in, such as a bucket that will be all-reduced.
#pragma once

#include <functional>

#include "op/record.h"

namespace tandem {

// In a backward() pass, `buffer` provides memory for the leaf's gradient: a tensor of the leaf's
// spec that is not read before the gradient is complete, or an undefined tensor. The pass may leave
// the gradient elsewhere. Null removes the function. Thread-safe.
void set_gradient_buffer(const Leaf& leaf, std::function<Tensor()> buffer);
// The buffer from the function of set_gradient_buffer(); undefined if there is none.
Tensor gradient_buffer_of(const Leaf& leaf);
// Whether set_gradient_buffer() has given the leaf a function.
bool has_gradient_buffer(const Leaf& leaf);

// For gradient functions: while it lives, the next operation whose first result has the spec of
// input `input` writes the result to the gradient buffer of that input.
class GradientBufferScope {
 public:
  GradientBufferScope(const GradContext& gradient, int input);

 private:
  Tensor buffer_;
  Scoped<Tensor*> open_;
};

// For dispatch: takes the buffer if it matches the spec and the device of a result. Each buffer is
// taken once. REQUIRES: context.open_buffer.
Tensor take_gradient_buffer(const TensorType& spec, const DeviceImpl& device);

}  // namespace tandem
