// Going over the layers of a model.
#pragma once

#include <functional>

#include "tandem/layers.h"

namespace tandem {

// Calls `visit` once for each layer, parents first: `root` and the layers inside it. `trainable`:
// whether the layer and all that it is inside of are.
void for_each_layer(const Layer& root,
                    const std::function<void(const LayerBase& layer, bool trainable)>& visit);

}  // namespace tandem
