// Errors of operations inside a layer's call, as errors of the layer.
#pragma once

#include <span>

#include "tandem/errors.h"
#include "tandem/layers.h"

namespace tandem {

// Throws `error` again, which is being handled and came from calling `layer` with `inputs`: where
// it is of bad input or of missing resources, and no layer inside has done so, under the layer's
// path and with what the layer was called with.
[[noreturn]] void rethrow_from(const LayerBase& layer, std::span<const Tensor> inputs,
                               const Error& error);

}  // namespace tandem
