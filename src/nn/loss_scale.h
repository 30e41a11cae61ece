// The scale of a loss in float16, and how it changes with the gradients.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/mutex.h"

#include "tandem/optimizers.h"

namespace tandem::optimizers {

// The state is one float32 scalar and one int32 scalar on the host per replica of this process. All
// replicas see the same reduced gradients, so their states stay equal. Each replica uses its own.
class LossScale {
 public:
  // Throws InvalidArgumentError for options out of range. `what`: in messages. `number`: among the
  // scales of an optimizer, for the variables' names.
  LossScale(const char* what, const LossScaleOptions& options, int number = 0);

  // Replaces the options. Throws as the constructor, and FailedPreconditionError for other factors
  // or another interval after an update was traced.
  void configure(const LossScaleOptions& options);
  // The scale of the calling replica, a float32 scalar. In a graph, the value in each run.
  Tensor scale() { return scale_of(copy()); }
  // `tensor` times the scale, in its dtype.
  Tensor scaled(const Tensor& tensor);
  // Divides by the scale. Undefined gradients stay undefined.
  void unscale(std::vector<Tensor>& gradients);
  // Changes the state after a step. `finite`: a bool scalar, whether the gradients were finite.
  void update(const Tensor& finite);
  // Replaces the state, in a graph in each of its runs: of the calling replica, and outside of
  // replicas of all.
  void set(double scale, std::optional<std::int64_t> good_steps = {});
  // Outside graphs.
  double value() { return scale().item<float>(); }
  std::int64_t good_steps();

  // "loss_scale" and "good_steps", for checkpoints; "loss_scale_1" and so on of a further scale.
  std::vector<Variable> variables();

 private:
  Tensor scale_of(std::size_t copy);
  // The copy of the calling replica. Creates the state at the first use.
  std::size_t copy();

  const char* what_;
  std::string suffix_;  // of its variables' names
  LossScaleOptions options_;
  std::atomic<bool> traced_ = false;  // an update of it
  Mutex mutex_{"LossScale"};          // guards the creation
  Variable scale_;
  Variable good_steps_;
};

// Whether all elements of all gradients are finite, a bool scalar; undefined if no gradient is
// defined.
Tensor are_finite(std::span<const Tensor> gradients);

// Makes a gradient NaN unless `finite`, a bool scalar, so that the other ranks and replicas see the
// overflow in the sum.
void spread_overflow(const Tensor& finite, std::vector<Tensor>& gradients);

}  // namespace tandem::optimizers
