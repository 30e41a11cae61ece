// Gradient synchronisation of steps that run operation by operation.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sync/gradient_sync.h"
#include "sync/gradient_views.h"
#include "sync/rank_words.h"
#include "sync/reducer.h"
#include "tandem/variable.h"

namespace tandem {

// One rank's side, for one list of variables: buckets are assigned once. Every rank makes it with
// the same variables and takes the same steps. Belongs to one thread at a time.
class EagerSync {
 public:
  // `device`: the rank's, where reduced gradients are.
  EagerSync(std::shared_ptr<Communicator> communicator, Device& device,
            const std::vector<Variable>& variables, ReducerOptions options);

  const std::vector<RefPtr<VariableImpl>>& variables() const { return variables_; }

  // --- a step ---
  void begin();
  // How the step's buckets are reduced where no hook does it; kSum unless set. Every rank sets the
  // same, before any gradient.
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
  // this rank had. The reduced gradients; undefined where no rank had one.
  std::vector<Tensor> finish(const std::vector<std::uint8_t>& present);
  // Whether a rank had gradient `index` in the step that has finished.
  bool was_present(int rank, std::size_t index) const { return present_.of(rank)[index] != 0; }

  // --- the same as one pass ---
  // `inactive`: the rank runs the pass on another rank's examples, and contributes zeros.
  std::unique_ptr<GradientSync> start(bool inactive, ReduceOp op = ReduceOp::kSum);

 private:
  std::shared_ptr<Communicator> communicator_;
  Device& device_;
  std::vector<RefPtr<VariableImpl>> variables_;
  Reducer reducer_;
  std::optional<GradientViews> views_;  // where the reducer packs
  RankWords present_;
  std::vector<Tensor> gradients_;  // where it does not
};

}  // namespace tandem
