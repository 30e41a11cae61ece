// The replicas' step as a program that is traced once for each size of batches and then replayed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/function.h"
#include "train/replica_runner.h"

namespace tandem {

// One thread at a time.
class StepProgram {
 public:
  // `what` goes in messages ("fit").
  // `memory`: shared with the other steps of the model, which do not run at the same time.
  StepProgram(std::string what, bool run_eagerly, std::shared_ptr<ProgramMemory> memory);

  // The results of `step` on each replica that has examples, in order. `key`: what, beside the
  // batch's shapes, tells one trace from another. `step` itself runs only to be traced, unless
  // run_eagerly. Throws FailedPreconditionError, naming run_eagerly, for a step that asks for
  // elements while it is traced.
  std::vector<std::vector<Tensor>> run(ReplicaRunner& runner, const GlobalBatch& batch,
                                       std::string_view key, const ReplicaRunner::Step& step);

 private:
  std::string advice_;
  bool run_eagerly_;
  detail::FunctionTraces traces_;
};

}  // namespace tandem
