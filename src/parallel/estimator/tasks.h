// What the tasks of train_and_evaluate() do.
#pragma once

#include <optional>

#include "parallel/estimator/model_directory.h"
#include "tandem/estimator.h"

namespace tandem::estimator {

// One call of train_and_evaluate().
struct Task {
  const EstimatorOptions& options;
  const TrainSpec& train;
  const EvalSpec& evaluate;
};

// Trains; where `evaluates`, also evaluates each checkpoint. The last evaluation then.
std::optional<Evaluation> run_training(const Task& task, bool evaluates);
// Evaluates what another task trains.
std::optional<Evaluation> run_evaluator(const Task& task);
// Starts the cluster's tasks and waits for them.
std::optional<Evaluation> run_client(const Task& task);

// Evaluates the model as it is now. Writes and logs the result where `writes`.
Evaluation evaluate_once(const Task& task, const ModelDirectory& directory, Model& model,
                         std::int64_t step, bool writes);

}  // namespace tandem::estimator
