// Visits the layers of a model.
#pragma once

#include <functional>

#include "tandem/layers.h"

namespace tandem {

// Calls `visit` once for `root` and for each layer inside it, parents first. `trainable` is true if
// the layer and all of its parents are trainable.
void for_each_layer(const Layer& root,
                    const std::function<void(const LayerBase& layer, bool trainable)>& visit);

}  // namespace tandem
