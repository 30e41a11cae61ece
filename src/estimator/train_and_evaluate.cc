#include "estimator/train_and_evaluate.h"

#include "comm/rendezvous/tf_config.h"
#include "core/status.h"
#include "tandem/cluster.h"

namespace tandem::estimator {
namespace {

template <class... Args>
[[noreturn]] void reject(fmt::format_string<Args...> format, Args&&... args) {
  throw InvalidArgumentError("[train_and_evaluate] " +
                             fmt::format(format, std::forward<Args>(args)...));
}

void check(const TrainSpec& train, const EvalSpec& evaluate, bool with_evaluator) {
  if (!train.input_fn || !evaluate.input_fn) reject("expected an input_fn in both specs");
  if (train.max_steps && *train.max_steps < 1)
    reject("Must specify max_steps > 0, given: {}", *train.max_steps);
  if (evaluate.steps && *evaluate.steps < 1)
    reject("Must specify steps > 0, given: {}", *evaluate.steps);
  if (with_evaluator && !train.max_steps)
    reject("a cluster with an evaluator needs max_steps, which tell the evaluator the end");
}

}  // namespace

Estimator::Estimator(EstimatorOptions options) : options_(std::move(options)) {
  if (!options_.model_fn) reject("expected a model_fn");
  if (options_.model_dir.empty()) reject("expected a model_dir");
  if (options_.save_checkpoints_steps < 1)
    reject("expected save_checkpoints_steps of at least 1, got {}",
           options_.save_checkpoints_steps);
  if (options_.keep_checkpoint_max < 0)
    reject("expected keep_checkpoint_max of at least 0, got {}", options_.keep_checkpoint_max);
  if (options_.cluster && options_.cluster->workers < (options_.cluster->chief ? 0 : 1))
    reject("expected a cluster of at least one chief or worker, got {} workers",
           options_.cluster->workers);
  if (options_.cluster && options_.cluster->ps > 0 &&
      !(options_.cluster->chief && options_.cluster->workers > 0))
    reject("expected a chief and at least one worker in a cluster with parameter servers");
}

std::optional<Evaluation> train_and_evaluate(const Estimator& estimator, const TrainSpec& train,
                                             const EvalSpec& evaluate) {
  const EstimatorOptions& options = estimator.options();
  const TrainAndEvaluateCall call{options, train, evaluate};
  if (options.cluster) {
    check(train, evaluate, options.cluster->evaluator);
    return run_client(call);
  }
  const std::optional<TfConfig> cluster = tf_config_of_environment();
  const bool has_evaluator = cluster && cluster->count("evaluator") > 0;
  check(train, evaluate, has_evaluator);
  if (cluster && cluster->type == "evaluator") return run_evaluator(call);
  if (cluster && cluster->count("ps") > 0) {
    if (cluster->count("chief") == 0) reject("a cluster with parameter servers needs a chief");
    if (cluster->type != "chief") {
      distribute::Server(distribute::TFConfigClusterResolver()).join();
      return std::nullopt;
    }
  }
  return run_training(call, !has_evaluator);
}

}  // namespace tandem::estimator
