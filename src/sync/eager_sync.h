// Gradient synchronisation of steps that run operation by operation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sync/gradient_sync.h"
#include "sync/gradient_views.h"
#include "sync/reducer.h"
#include "tandem/variable.h"

namespace tandem {

// One rank's part in reducing the gradients of one list of variables. Buckets are assigned once.
// Every rank creates it with the same variables and takes the same steps. Not thread-safe.
class EagerSync {
 public:
  // Gradients are reduced on `device`. If the transport packs, it must be the transport's device.
  EagerSync(std::shared_ptr<GradientTransport> transport, Device& device,
            const std::vector<Variable>& variables, ReducerOptions options = {});

  const std::vector<RefPtr<VariableImpl>>& variables() const { return variables_; }

  // --- a step ---
  void begin();
  // Sets the operation that reduces this step's buckets; kSum by default. Every rank sets the same
  // one, before the step's first gradient. A transport may ignore it.
  void set_reduce_op(ReduceOp op) { reducer_.set_reduce_op(op); }
  // The view of the bucket into which gradient `index` is best computed, to save a copy. Undefined
  // if any memory will do.
  Tensor gradient_buffer(std::size_t index);
  // Whether ready() or zeros() has been called for gradient `index` in this step.
  bool contributed(std::size_t index) const { return reducer_.contributed()[index]; }
  // Gradient `index` is final; it is multiplied by `weight` before it is reduced. A tensor that
  // nothing else refers to may be reduced in place.
  void ready(std::size_t index, Tensor gradient, double weight = 1.0);
  void zeros(std::size_t index);
  // Contributes zeros for the remaining gradients, waits for all buckets, and returns the reduced
  // gradients on the devices of the rank's variables. A gradient that no rank had is undefined.
  // `present[i]` is nonzero if this rank had gradient i.
  std::vector<Tensor> finish(const std::vector<std::uint8_t>& present);

  // --- the same, as the GradientSync of one backward pass ---
  // If `inactive`, the rank runs the pass on another rank's examples and contributes zeros.
  std::unique_ptr<GradientSync> start(bool inactive, ReduceOp op = ReduceOp::kSum);

 private:
  std::shared_ptr<GradientTransport> transport_;
  Device& device_;
  std::vector<RefPtr<VariableImpl>> variables_;
  Reducer reducer_;
  std::optional<GradientViews> views_;  // if the reducer packs
  std::vector<Tensor> gradients_;       // otherwise
};

}  // namespace tandem
