// A training step as a program: traced once per batch size, then replayed.
#pragma once

#include <functional>
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

  // Runs `step`, and returns a function that returns its results. If the runner has remote steps,
  // only starts it: the function waits, and throws the step's error. Call it once.
  //
  // `key` identifies a trace, together with the batch's shapes. `step` itself is only called to
  // trace it, unless run_eagerly. Throws FailedPreconditionError, naming run_eagerly, for a step
  // that reads elements while it is traced.
  std::function<Results()> start(StepRunner& runner, const GlobalBatch& batch, std::string_view key,
                                 const StepRunner::Step& step);

 private:
  std::string advice_;
  bool run_eagerly_;
  detail::FunctionTraces traces_;
};

}  // namespace tandem
