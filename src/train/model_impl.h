// The implementation of Model.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "core/mutex.h"
#include "runtime/variable_impl.h"
#include "tandem/model.h"
#include "train/step_program.h"
#include "train/step_report.h"
#include "train/step_runner.h"

namespace tandem {

class OwnModelLayer;
struct TrainingProgress;

// The loss and the metrics of outputs, set by compile().
struct OutputLoss {
  losses::Loss loss;  // undefined if it is not trained
  double weight = 1.0;
};
struct OutputMetric {
  metrics::Metric metric;
  std::size_t output = 0;
  bool weighted = false;
  std::string name;  // in logs
};

struct ModelImpl {
  Layer layer;
  // `layer`, if it calls an object of a class derived from Model; else null.
  std::shared_ptr<OwnModelLayer> own;
  // The layers of a Sequential in order; for other models the layers inside `layer`.
  std::vector<Layer> layers;
  bool sequential = false;
  // The Input() of a sequential model without layers.
  Layer first;
  // The input shapes that the model was built for (batch axis -1); empty before build().
  std::vector<Shape> input_shapes;
  // The strategy in whose scope it was built; null if there was none, or before build().
  std::shared_ptr<StepRunner> built_under;
  VariableCreator* built_by = nullptr;
  std::size_t num_inputs = 1;
  // Empty if there is one output.
  std::vector<std::string> output_names;
  // That of compile(), also for layers that a class of the user's finds when it is built.
  DTypePolicy policy;

  // Set by compile().
  bool compiled = false;
  optimizers::Optimizer optimizer;
  std::vector<OutputLoss> losses;  // one for each output; empty if compile() got none
  std::vector<OutputMetric> metrics;
  // The strategy that the model trains under. The runner keeps the creator alive.
  std::shared_ptr<StepRunner> runner;
  VariableCreator* creator = nullptr;
  // The programs of the steps; compile() makes new ones.
  std::unique_ptr<StepProgram> train_step, test_step, predict_step;
  std::int64_t steps_per_execution = 1;
  // The results of the built-in steps besides the loss: the losses of several outputs, then the
  // metrics. The sizes are empty before the first step.
  StepReport reported;
  // If `own` is set: the mean of the losses, and what its steps report, from the first step on.
  metrics::Metric mean_loss = metrics::Mean("loss");
  StepReport trained, tested;

  // The number of passes over the data that fit() has begun. Later calls continue the count, so
  // that shuffles and random maps do not repeat.
  std::int64_t passes = 0;

  // Used while fit() runs.
  bool stop = false;
  TrainingProgress* progress = nullptr;

  // predict() and evaluate() of several threads take turns, for the programs are not thread-safe.
  RecursiveMutex programs{"Model"};
  // ReadsWeights holds it shared, ReplacesWeights alone.
  SharedMutex weights{"Model"};

  // The names of inputs and outputs of a functional model, and tensors in their order.
  std::vector<std::string> input_names, target_names;
  std::vector<Tensor> inputs_of(const ModelTensors& inputs) const {
    return inputs.in_order(input_names, "input");
  }
  std::vector<Tensor> targets_of(const ModelTensors& targets) const {
    return targets.in_order(target_names, "output");
  }

  // Whether this process writes checkpoints and logs; one process does.
  bool is_chief() const { return !runner || !runner->workers() || runner->workers()->is_chief(); }
  std::size_t num_outputs() const { return output_names.empty() ? 1 : output_names.size(); }
  // Sets `losses`, `metrics` and `reported`. Throws InvalidArgumentError for options that do not
  // fit the outputs.
  void compile_outputs(const CompileOptions& options);
  void build(std::vector<Shape> shapes);
  // Builds the model if it is not built, for a call with `inputs`.
  void build_at_call(TensorList inputs);
  // Sets `num_inputs`, before build(), of a model that may take any number.
  void expect_inputs(std::size_t count) {
    if (own && input_shapes.empty()) num_inputs = count;
  }
  // Makes `layer` of a sequential model's `layers`, and builds it if the model was built or the
  // input shape is declared. `options`: of the model.
  void stack(const std::vector<Layer>& all, const std::string& name);
  // The output shape of each of `layers`; unknown where it cannot be inferred. Empty before
  // build().
  std::vector<Shape> layer_output_shapes() const;
};

// The model's implementation. Throws FailedPreconditionError "[what] ..." for an undefined model.
Model::Impl& impl_of(const Model& model, const char* what);
// ... and for one that is not compiled.
Model::Impl& compiled_impl_of(const Model& model, const char* what);
// ... and for one without variables yet.
Model::Impl& built_impl_of(const Model& model, const char* what);

}  // namespace tandem
