#include "nn/naming.h"

#include <unordered_set>

namespace tandem {

void assign_unique_names(std::span<const Layer> siblings, const std::string& parent) {
  std::unordered_set<const void*> seen;
  std::unordered_set<std::string> taken;
  std::vector<LayerBase*> unnamed;
  for (const Layer& sibling : siblings) {
    LayerBase& layer = sibling.base();
    if (!seen.insert(layer.identity()).second) continue;
    if (layer.name().empty())
      unnamed.push_back(&layer);
    else if (!taken.insert(layer.name()).second)
      fail<InvalidArgumentError>(
          "[{}] expected layers with unique names, got two named '{}': give one of them another "
          "name",
          parent, layer.name());
  }
  for (LayerBase* layer : unnamed) {
    const std::string kind = layer->kind();
    std::string name = kind;
    for (int number = 1; !taken.insert(name).second; ++number)
      name = kind + "_" + std::to_string(number);
    layer->set_name(std::move(name));
  }
}

}  // namespace tandem
