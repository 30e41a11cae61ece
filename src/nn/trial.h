// Calls of a layer whose results are not used: they show the shape of the result and the layers
// that it uses.
#pragma once

#include <functional>
#include <span>

#include "tandem/tensor.h"

namespace tandem {

using TrialCall = std::function<Tensor(TensorList inputs)>;

// The result of `call` for symbolic tensors of these shapes, float32 or else integers, of which -1
// stays unknown. Nothing runs. Undefined if it takes none of them, or needs their elements or
// unknown sizes as numbers, or if a rank is unknown.
Tensor trace_call(std::span<const Shape> shapes, const TrialCall& call);

// The result of `call` for zeros of these shapes, float32 or else integers; -1 is `batch`. If it
// takes none of them: undefined, or the error for float32 if a result is required.
Tensor call_on_zeros(std::span<const Shape> shapes, std::int64_t batch, bool required,
                     const TrialCall& call);

// Whether no size but the first is unknown.
bool known_but_for_batch(const Shape& shape);

// The shape of the result of `call` for inputs of these shapes; -1 for sizes that depend on unknown
// ones. If the call cannot be traced and the batch size alone is unknown, it runs on batches of two
// sizes, and sizes in which the two results differ become -1. If other sizes are unknown as well,
// the shape is unknown.
Shape shape_of_call(std::span<const Shape> shapes, const TrialCall& call);

}  // namespace tandem
