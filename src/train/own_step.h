// The train_step() and test_step() of models of users.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nn/nested_sums.h"
#include "train/batch_loss.h"
#include "train/model_impl.h"
#include "train/step_report.h"

namespace tandem {

// A call of the train_step() or test_step() of a class derived from Model, on one replica or part.
class OwnStep {
 public:
  // `what` goes in messages ("fit"). `built_in`: the step of a class that overrides none. It adds
  // its statistics to metrics, and returns the results.
  OwnStep(std::string what, const std::function<StepResults(const data::Example&)>& built_in)
      : what_(std::move(what)), built_in_(built_in) {}

  // The step that this thread runs; null outside of steps.
  static OwnStep* current();

  // Runs `step` with `examples`, and returns the statistics of its results: float64, 0 for a
  // padding replica. Sets `report` on one replica, if it is empty; throws InvalidArgumentError if
  // the results are others than those of an earlier call.
  std::vector<Tensor> run(const data::Example& examples,
                          const std::function<StepResults(const data::Example&)>& step,
                          StepReport& report);
  StepResults run_built_in(const data::Example& examples) { return built_in_(examples); }
  // Adds the loss of the step's examples to the model's metric of that name.
  void add_loss(const Model::Impl& model, const BatchLoss& loss);
  // Updates the model's metrics. Returns their results and that of add_loss(), if it was called.
  // The tensors are those of each output.
  StepResults update_metrics(const Model::Impl& model, TensorList targets, TensorList outputs,
                             TensorList weights) const;

 private:
  // Adds the statistics of a result, and its metric to `found`.
  void add(const std::string& name, const Tensor& value, metrics::NestedSums& sums,
           std::int64_t examples, StepReport& found, std::vector<Tensor>& statistics) const;

  std::string what_;
  const std::function<StepResults(const data::Example&)>& built_in_;
  bool has_loss_ = false;
};

}  // namespace tandem
