// The tasks of a cluster under train_and_evaluate().
#pragma once

#include <optional>

#include "estimator/model_directory.h"
#include "tandem/estimator.h"

namespace tandem::estimator {

// The arguments of one call of train_and_evaluate().
struct TrainAndEvaluateCall {
  const EstimatorOptions& options;
  const TrainSpec& train;
  const EvalSpec& evaluate;
};

// Trains, and with `evaluates` also evaluates each checkpoint. Returns the last evaluation.
std::optional<Evaluation> run_training(const TrainAndEvaluateCall& call, bool evaluates);
// Evaluates the checkpoints that another task writes.
std::optional<Evaluation> run_evaluator(const TrainAndEvaluateCall& call);
// Starts the cluster's tasks and waits for them.
std::optional<Evaluation> run_client(const TrainAndEvaluateCall& call);

// Evaluates the model as it is now. With `writes`, writes and logs the result.
Evaluation evaluate_once(const TrainAndEvaluateCall& call, const ModelDirectory& directory,
                         Model& model, std::int64_t step, bool writes);

}  // namespace tandem::estimator
