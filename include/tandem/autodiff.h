// Gradients, in two faces over one record: GradientTape (as in TensorFlow) and backward() / grad()
// (as in PyTorch, on Tensor and Variable).
//
// An operation is recorded when one of its inputs is tracked: a trainable variable, a tensor that a
// live tape watches or that set_requires_grad() marked, or the result of a recorded operation.
// Recording belongs to the calling thread; what is recorded is freed by the first backward pass
// over it unless it is asked to stay.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

struct GradientTapeOptions {
  bool persistent = false;               // several gradient() calls
  bool watch_accessed_variables = true;  // false: only what watch() names
};

enum class UnconnectedGradients { kNone, kZero };

struct GradientOptions {
  Tensor output_gradient{};  // of the final value with respect to the target; ones when undefined
  // What a source that the target does not depend on gets: an undefined tensor, or zeros.
  UnconnectedGradients unconnected_gradients = UnconnectedGradients::kNone;
};

// Records while it lives. Tapes nest: the gradient that an inner tape computes is recorded for the
// outer ones, which gives higher orders.
// Not thread-safe: belongs to the thread that made it.
class GradientTape {
 public:
  explicit GradientTape(GradientTapeOptions options = {});
  ~GradientTape();
  GradientTape(const GradientTape&) = delete;
  GradientTape& operator=(const GradientTape&) = delete;

  // Tracks a tensor (floating types only: InvalidArgumentError otherwise) or a variable.
  void watch(const Tensor& tensor);
  void watch(const Variable& variable);
  // The gradient of `target` (summed over its elements) with respect to each source, shaped like
  // the source. A tape that is not persistent can do this once (RuntimeError afterwards).
  Tensor gradient(const Tensor& target, const Tensor& source, const GradientOptions& options = {});
  std::vector<Tensor> gradient(const Tensor& target, TensorList sources,
                               const GradientOptions& options = {});
  std::vector<Tensor> gradient(const Tensor& target, const std::vector<Variable>& sources,
                               const GradientOptions& options = {});
  Tensor gradient(const Tensor& target, const Variable& source,
                  const GradientOptions& options = {});
  // Forgets what was watched.
  void reset();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// While it lives, nothing that this thread runs is recorded.
class NoGradScope {
 public:
  NoGradScope();
  ~NoGradScope();
  NoGradScope(const NoGradScope&) = delete;
  NoGradScope& operator=(const NoGradScope&) = delete;

 private:
  bool previous_;
};

// Whether this thread records at all.
bool grad_enabled();

}  // namespace tandem
