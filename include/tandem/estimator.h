/// @file
/// Alternating training and evaluation, in one process or in the tasks of a cluster. As
/// tf.estimator.train_and_evaluate.
/// @code
/// td::estimator::Estimator estimator({.model_fn = [] { ... return model; },   // built, compiled
///                                     .model_dir = "run",
///                                     .train_distribute = [] {
///                                       return td::distribute::MultiWorkerMirroredStrategy();
///                                     },
///                                     .cluster = {{.workers = 2, .evaluator = true}}});
/// auto last = td::estimator::train_and_evaluate(
///     estimator, {.input_fn = train, .max_steps = 1000}, {.input_fn = test});
/// std::cout << last->global_step << ' ' << last->metrics.at("accuracy") << '\n';
/// @endcode
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "tandem/data.h"
#include "tandem/distribute.h"
#include "tandem/model.h"

/// Alternating training and evaluation.
namespace tandem::estimator {

/// Tasks that a stand-alone client starts on this machine.
struct ClusterSpec {
  int workers = 1;         ///< number of workers, without the chief
  bool chief = false;      ///< whether to add a chief; parameter servers need one
  int ps = 0;              ///< number of parameter servers
  bool evaluator = false;  ///< whether to add an evaluator
};

/// Options of Estimator. As tf.estimator.RunConfig.
struct EstimatorOptions {
  /// Returns the compiled model; called in the strategy's scope.
  std::function<Model()> model_fn{};
  /// Directory of checkpoints, training state and evaluations. Training resumes from the state in
  /// it.
  std::filesystem::path model_dir{};
  /// Steps between checkpoints; there is also one at the end.
  std::int64_t save_checkpoints_steps = 100;
  int keep_checkpoint_max = 5;  ///< number of checkpoints to keep; 0: all
  /// @{
  /// Return the strategy of training and of an evaluator task. Default: no strategy.
  std::function<distribute::Strategy()> train_distribute{}, eval_distribute{};
  /// @}
  /// If set, this process is a stand-alone client: it starts these tasks and waits for them, but
  /// does not train. The runtime must not have been initialized (see parallel::spawn()).
  std::optional<ClusterSpec> cluster{};
  /// How long an evaluator task waits for the next checkpoint.
  std::chrono::milliseconds evaluator_timeout = std::chrono::minutes(30);
};

/// A model function and the directory and strategies to train it with. As tf.estimator.Estimator.
class Estimator {
 public:
  /// Throws InvalidArgumentError for invalid options.
  explicit Estimator(EstimatorOptions options);
  const EstimatorOptions& options() const { return options_; }  ///< the options

 private:
  EstimatorOptions options_;
};

/// Training part of train_and_evaluate(). As tf.estimator.TrainSpec.
struct TrainSpec {
  /// Returns the training data: GLOBAL batches of (inputs, targets), the same on every worker.
  std::function<data::Dataset()> input_fn{};
  /// Total number of steps, including those of earlier runs. Default: until the data ends.
  std::optional<std::int64_t> max_steps{};
};
/// Evaluation part of train_and_evaluate(). As tf.estimator.EvalSpec.
struct EvalSpec {
  /// Returns the evaluation data: batches of (inputs, targets).
  std::function<data::Dataset()> input_fn{};
  std::optional<std::int64_t> steps = 100;  ///< number of batches; nullopt: all
  std::string name{};  ///< results are in model_dir/eval_NAME; default: model_dir/eval
};

/// Result of an evaluation.
struct Evaluation {
  std::int64_t global_step = 0;             ///< training steps of the checkpoint
  std::map<std::string, double> metrics{};  ///< metrics by name
};

/// Runs this process's task in the cluster of TF_CONFIG:
///
/// - A chief or worker trains under `train_distribute`'s strategy and saves checkpoints. If the
///   cluster has no evaluator, the workers evaluate each checkpoint together.
/// - In a cluster with parameter servers the chief alone does so, under a ParameterServerStrategy;
///   workers and servers run a distribute::Server until it ends the job.
/// - An evaluator evaluates the newest checkpoint repeatedly, up to the last one. Throws
///   DeadlineExceededError if no checkpoint appears for evaluator_timeout.
/// - Without a cluster, the process trains and evaluates in turn.
/// - With EstimatorOptions::cluster it is a stand-alone client.
///
/// Logs each evaluation and appends it to model_dir/eval/evaluations.jsonl, one line each. Returns
/// the last evaluation, or nothing in a worker of a cluster with an evaluator. Does not train if an
/// earlier run has reached max_steps.
///
/// Throws the error of this process's task. A client throws AbortedError with the failed task and
/// its reason.
std::optional<Evaluation> train_and_evaluate(const Estimator& estimator, const TrainSpec& train,
                                             const EvalSpec& evaluate);

}  // namespace tandem::estimator
