// What a Model handle points to.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/variable_impl.h"
#include "tandem/model.h"
#include "train/replica_runner.h"
#include "train/step_program.h"

namespace tandem {

struct TrainingProgress;

struct Model::Impl {
  Layer layer;
  // The parts of a Sequential, in order; of other models those inside the layer.
  std::vector<Layer> layers;
  bool sequential = false;
  // Of what the model was built for (batch axis -1); empty before.
  std::vector<Shape> input_shapes;
  // The strategy whose scope it was built in; null: none, or it is not built.
  std::shared_ptr<ReplicaRunner> built_under;
  VariableCreator* built_by = nullptr;
  std::size_t num_inputs = 1;

  // From compile() on.
  bool compiled = false;
  optimizers::Optimizer optimizer;
  losses::Loss loss;
  std::vector<metrics::Metric> metrics;
  std::size_t weighted_from = 0;  // the first of the metrics that takes sample weights
  // The strategy that the model trains under. The runner keeps the creator alive.
  std::shared_ptr<ReplicaRunner> runner;
  VariableCreator* creator = nullptr;
  // Their traces, for this compile().
  std::unique_ptr<StepProgram> train_step, test_step, predict_step;
  // How many statistics each metric has, once a step was run or traced.
  std::vector<std::size_t> metric_sizes;

  // Passes over the data that fit() has begun: the next call goes on with the next one, so that
  // shuffles and random maps do not repeat.
  std::int64_t passes = 0;

  // While fit() runs.
  bool stop = false;
  TrainingProgress* progress = nullptr;

  // Whether this process writes what there is to be one of.
  bool is_chief() const { return !runner || !runner->workers() || runner->workers()->is_chief(); }
  void build(std::vector<Shape> shapes);
  // The result's shape of each of `layers`; unknown where it cannot be told. Empty before building.
  std::vector<Shape> layer_output_shapes() const;
};

// The model's implementation. Throws FailedPreconditionError "[what] ..." for an undefined model.
Model::Impl& impl_of(const Model& model, const char* what);
// ... and for one that is not compiled.
Model::Impl& compiled_impl_of(const Model& model, const char* what);
// ... and for one without variables yet.
Model::Impl& built_impl_of(const Model& model, const char* what);

}  // namespace tandem
