// Visits the layers of a model.
#pragma once

#include <functional>

#include "tandem/layers.h"

namespace tandem {

// Calls `visit` once for `root` and for each layer inside it, parents first.
void for_each_layer(const Layer& root, const std::function<void(const LayerBase& layer)>& visit);

}  // namespace tandem
