// A training step as a program: traced once per batch size, then replayed.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/function.h"
#include "train/step_runner.h"

namespace tandem {

// Not thread-safe.
class StepProgram {
 public:
  // `what` goes in messages ("fit"). `memory`: shared with the model's other steps, which
  // never run at the same time.
  StepProgram(std::string what, bool run_eagerly, std::shared_ptr<ProgramMemory> memory);

  // The results of a step on each replica that has examples, in order.
  using Results = std::vector<std::vector<Tensor>>;

  // Runs `step` on each batch in turn, and returns a function for each that returns its results.
  // Consecutive batches of the same sizes are one execution, see CompileOptions. If the runner has
  // remote steps, only starts them: the functions wait, and throw the step's error. Call them once.
  //
  // `key` identifies a trace, together with the batch's shapes. `step` itself is only called to
  // trace it, unless run_eagerly. Throws FailedPreconditionError, naming run_eagerly, for a step
  // that reads elements while it is traced.
  std::vector<std::function<Results()>> start(StepRunner& runner,
                                              std::span<const GlobalBatch> batches,
                                              std::string_view key, const StepRunner::Step& step);

 private:
  // The same for batches of one signature, with the call of each.
  std::vector<std::function<Results()>> start(StepRunner& runner,
                                              std::span<const GlobalBatch> batches,
                                              std::span<detail::FunctionCall> calls,
                                              const StepRunner::Step& step);

  std::string advice_;
  bool run_eagerly_;
  detail::FunctionTraces traces_;
};

}  // namespace tandem
