// Calls of a layer on zeros, which show the shape of its result and the layers that it uses.
#pragma once

#include <functional>
#include <span>

#include "tandem/tensor.h"

namespace tandem {

using TrialCall = std::function<Tensor(TensorList inputs)>;

// Whether all sizes but the first are known.
bool known_but_for_batch(const Shape& shape);

// The result of `call` for zeros of these shapes, float32 or else integers. If it takes none of
// them: undefined, or the error for float32 if a result is required.
Tensor try_on_zeros(std::span<const Shape> shapes, bool required, const TrialCall& call);

// The shape of the result of `call` for inputs of these shapes, whose unknown sizes stay unknown in
// the result. An unknown shape if unknown sizes besides the batch are not possible.
Shape shape_on_zeros(std::span<const Shape> shapes, const TrialCall& call);

}  // namespace tandem
