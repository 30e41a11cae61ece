#include "runtime/gradient_place.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace tandem {

constinit thread_local const GradientPlaces* gradient_places = nullptr;
constinit thread_local bool gradient_place_open = false;

namespace {

thread_local Tensor open_place;

struct Places {
  std::mutex mutex;
  std::unordered_map<const Leaf*, std::function<Tensor()>> by_leaf;
  std::atomic<bool> any{false};
};
Places& places() {
  static auto& instance = *new Places;
  return instance;
}

}  // namespace

void set_gradient_place(const Leaf& leaf, std::function<Tensor()> place) {
  Places& all = places();
  const std::scoped_lock lock(all.mutex);
  if (place)
    all.by_leaf[&leaf] = std::move(place);
  else
    all.by_leaf.erase(&leaf);
  all.any.store(!all.by_leaf.empty(), std::memory_order_relaxed);
}

Tensor gradient_place_of(const Leaf& leaf) {
  Places& all = places();
  if (!all.any.load(std::memory_order_relaxed)) return {};
  std::function<Tensor()> place;
  {
    const std::scoped_lock lock(all.mutex);
    const auto found = all.by_leaf.find(&leaf);
    if (found == all.by_leaf.end()) return {};
    place = found->second;
  }
  return place();
}

GradientPlaceScope::GradientPlaceScope(const GradContext& context, int input) {
  if (!gradient_places) return;
  const auto* node = static_cast<const GradNode*>(context.edge(input).node.get());
  if (!node || node->op) return;
  open_place = (*gradient_places)(*static_cast<const Leaf*>(node));
  gradient_place_open = open_place.defined();
}

GradientPlaceScope::~GradientPlaceScope() {
  if (!gradient_place_open) return;
  gradient_place_open = false;
  open_place = {};
}

Tensor take_gradient_place(const TensorSpec& spec, const Device& device) {
  const TensorImpl& impl = impl_of(open_place);
  if (impl.dtype != spec.dtype || !(impl.shape == spec.shape) || &impl.device() != &device)
    return {};
  gradient_place_open = false;
  return std::move(open_place);
}

}  // namespace tandem
