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

// One rank's side, for one list of variables: buckets are assigned once. Every rank makes it with
// the same variables and takes the same steps. Belongs to one thread at a time.
class EagerSync {
 public:
  // `device`: where gradients are combined; the transport's, where that packs.
  EagerSync(std::shared_ptr<GradientTransport> transport, Device& device,
            const std::vector<Variable>& variables, ReducerOptions options = {});

  const std::vector<RefPtr<VariableImpl>>& variables() const { return variables_; }

  // --- a step ---
  void begin();
  // How the step's buckets are reduced, unless the transport has a way of its own; kSum unless set.
  // Every rank sets the same, before any gradient.
  void reduce_by(ReduceOp op) { reducer_.combine_by(op); }
  // Where gradient `index` is best computed: in its bucket; undefined: anywhere.
  Tensor place(std::size_t index);
  // Whether the gradient has been given, as zeros or not.
  bool settled(std::size_t index) const { return reducer_.settled()[index]; }
  // Gradient `index` is final, and counts `weight` times. A tensor that nothing else refers to may
  // be reduced in place.
  void ready(std::size_t index, Tensor gradient, double weight = 1.0);
  void zeros(std::size_t index);
  // Waits for the step's end. What has not been given counts as zeros. `present`: which gradients
  // this rank had. The reduced gradients, where the rank's variables are; undefined where no rank
  // had one.
  std::vector<Tensor> finish(const std::vector<std::uint8_t>& present);

  // --- the same as one pass ---
  // `inactive`: the rank runs the pass on another rank's examples, and contributes zeros.
  std::unique_ptr<GradientSync> start(bool inactive, ReduceOp op = ReduceOp::kSum);

 private:
  std::shared_ptr<GradientTransport> transport_;
  Device& device_;
  std::vector<RefPtr<VariableImpl>> variables_;
  Reducer reducer_;
  std::optional<GradientViews> views_;  // where the reducer packs
  std::vector<Tensor> gradients_;       // where it does not
};

}  // namespace tandem
