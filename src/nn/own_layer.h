// Calls of other layers in the call() of a layers::Layer.
#pragma once

#include "tandem/layers.h"

namespace tandem {

// The call of a layers::Layer that the thread is in.
class CallOfOwnLayer {
 public:
  virtual ~CallOfOwnLayer() = default;
  // Makes the layer a child, if children may still be added.
  virtual void before_child(const Layer& child) const = 0;
  // Throws FailedPreconditionError for a layer with variables that is not a child.
  virtual void after_building_child(const Layer& child) const = 0;
};

}  // namespace tandem
