// Turns errors of operations inside a layer's call into errors of the layer.
#pragma once

#include <span>

#include "tandem/errors.h"
#include "tandem/layers.h"

namespace tandem {

// Rethrows `error`, which is being handled and was thrown by a call of `layer` with `inputs`. The
// message of an error about bad input or missing resources is changed: it begins with the layer's
// path and describes the inputs. Errors that an inner layer has changed are rethrown as they are.
[[noreturn]] void rethrow_from(const LayerBase& layer, std::span<const Tensor> inputs,
                               const Error& error);

}  // namespace tandem
