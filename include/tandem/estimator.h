// Training and evaluating in turn, in one process or in the tasks of a cluster. After TensorFlow's
// tf.estimator.train_and_evaluate.
//
//   td::estimator::Estimator estimator({.model_fn = [] { ... return model; },   // built, compiled
//                                       .model_dir = "run",
//                                       .train_distribute = [] {
//                                         return td::distribute::MultiWorkerMirroredStrategy();
//                                       },
//                                       .cluster = {{.workers = 2, .evaluator = true}}});
//   auto last = td::estimator::train_and_evaluate(
//       estimator, {.input_fn = train, .max_steps = 1000}, {.input_fn = test});
//   std::cout << last->global_step << ' ' << last->metrics.at("accuracy") << '\n';
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

namespace tandem::estimator {

// Tasks that a stand-alone client starts, all on this machine.
struct ClusterSpec {
  int workers = 1;  // that train in step
  bool chief = false;
  bool evaluator = false;
};

struct EstimatorOptions {
  // Makes the model, compiled; called under the strategy's scope.
  std::function<Model()> model_fn{};
  // What training leaves: checkpoints, the state to go on from, the evaluations. Training that
  // finds some of it goes on from there.
  std::filesystem::path model_dir{};
  std::int64_t save_checkpoints_steps = 100;  // and one at the end
  int keep_checkpoint_max = 5;                // 0: all
  // Make the strategies of training and of an evaluator task; not given: none.
  std::function<distribute::Strategy()> train_distribute{}, eval_distribute{};
  // This process is a client that starts these tasks, waits for them and takes no part: it must not
  // have initialised the runtime (see parallel::spawn).
  std::optional<ClusterSpec> cluster{};
  // Of an evaluator task: how long it waits for the next checkpoint.
  std::chrono::milliseconds evaluator_timeout = std::chrono::minutes(30);
};

// Throws InvalidArgumentError for options that make no sense.
class Estimator {
 public:
  explicit Estimator(EstimatorOptions options);
  const EstimatorOptions& options() const { return options_; }

 private:
  EstimatorOptions options_;
};

struct TrainSpec {
  // GLOBAL batches of (inputs, targets); every worker makes the same.
  std::function<data::Dataset()> input_fn{};
  std::optional<std::int64_t>
      max_steps{};  // in all, over resumed runs; not given: to the data's end
};
struct EvalSpec {
  std::function<data::Dataset()> input_fn{};
  std::optional<std::int64_t> steps = 100;  // batches; not given: all
  std::string name{};                       // results are in model_dir/eval_NAME, or eval
};

struct Evaluation {
  std::int64_t global_step = 0;
  std::map<std::string, double> metrics{};
};

// What this process does is its task in the cluster of TF_CONFIG:
//
// - A chief or worker trains, under `train_distribute`'s strategy, and saves a checkpoint every so
//   many steps. Where the cluster has no evaluator the workers evaluate each checkpoint together
//   before they go on.
// - An evaluator trains nothing: it evaluates the newest checkpoint again and again until that of
//   the end. DeadlineExceededError when none comes for evaluator_timeout.
// - Without a cluster it does both, in turn.
// - With options.cluster it is a stand-alone client.
//
// Evaluations are told in the log and kept in model_dir/eval/evaluations.jsonl, a line each.
// Returns the last one; nothing in a worker of a cluster that has an evaluator. A run that has
// reached max_steps before trains no more.
//
// Throws what goes wrong in a task; a client AbortedError that tells which task failed and why.
std::optional<Evaluation> train_and_evaluate(const Estimator& estimator, const TrainSpec& train,
                                             const EvalSpec& evaluate);

}  // namespace tandem::estimator
