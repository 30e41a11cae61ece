#include "core/log.h"
#include "core/status.h"
#include "estimator/train_and_evaluate.h"
#include "train/model_impl.h"
#include "train/training_state.h"

namespace tandem::estimator {
namespace {

// Writes checkpoints for the evaluator, and evaluates them if there is no evaluator.
class Checkpoints final : public callbacks::CallbackBase {
 public:
  Checkpoints(const TrainAndEvaluateCall& call, const ModelDirectory& directory,
              TrainingRecord record, bool evaluates)
      : call_(call),
        directory_(directory),
        record_(std::move(record)),
        evaluates_(evaluates),
        step_(record_.latest),
        begin_(record_.rounds.empty() ? 0 : record_.rounds.back()) {}

  void on_train_begin(Model& model) override {
    writes_ = impl_of(model, "train_and_evaluate").is_chief();
    record_.finished.reset();
    if (writes_) directory_.write_record(record_);
  }

  void on_train_batch_end(Model& model, std::int64_t batch, const callbacks::Logs&) override {
    step_ = begin_ + batch + 1;
    if ((batch + 1) % call_.options.save_checkpoints_steps == 0) save(model);
  }

  void on_epoch_end(Model& model, std::int64_t, const callbacks::Logs&) override {
    if (step_ > record_.latest) save(model);
  }

  // Runs after BackupAndRestore, whose file records the end of training first.
  void on_train_end(Model&) override {
    record_.rounds.push_back(step_);
    record_.finished = call_.train.max_steps.value_or(0);
    if (writes_) directory_.write_record(record_);
  }

  const std::optional<Evaluation>& last() const { return last_; }

 private:
  void save(Model& model) {
    impl_of(model, "train_and_evaluate").progress->finish_steps();
    model.save_weights(directory_.weights(step_));
    record_.latest = step_;
    if (writes_) {
      directory_.write_record(record_);
      if (call_.options.keep_checkpoint_max > 0)
        directory_.remove_old_weights(static_cast<std::size_t>(call_.options.keep_checkpoint_max));
    }
    if (evaluates_) last_ = evaluate_once(call_, directory_, model, step_, writes_);
  }

  const TrainAndEvaluateCall& call_;
  const ModelDirectory& directory_;
  TrainingRecord record_;
  const bool evaluates_;
  std::int64_t step_;         // over all runs
  const std::int64_t begin_;  // the step at which this pass over the data began
  bool writes_ = false;
  std::optional<Evaluation> last_;
};

}  // namespace

Evaluation evaluate_once(const TrainAndEvaluateCall& call, const ModelDirectory& directory,
                         Model& model, std::int64_t step, bool writes) {
  const Evaluation result{
      .global_step = step,
      .metrics = model.evaluate(call.evaluate.input_fn(), {.steps = call.evaluate.steps})};
  if (!writes) return result;
  std::string metrics;
  for (const auto& [name, value] : result.metrics)
    metrics += fmt::format("{}{} = {:.6g}", metrics.empty() ? "" : ", ", name, value);
  logging::info("[train_and_evaluate] step {}: {}", step, metrics);
  directory.append(call.evaluate.name, result);
  return result;
}

std::optional<Evaluation> run_training(const TrainAndEvaluateCall& call, bool evaluates) {
  const ModelDirectory directory(call.options.model_dir);
  const distribute::Strategy strategy = call.options.train_distribute
                                            ? call.options.train_distribute()
                                            : distribute::DefaultStrategy();
  const TrainingRecord record = directory.read_record();
  const std::int64_t done = record.rounds.empty() ? 0 : record.rounds.back();
  if (call.train.max_steps && done >= *call.train.max_steps) {
    logging::info("[train_and_evaluate] Skipping training since max_steps has already saved.");
    return evaluates ? directory.last_evaluation(call.evaluate.name) : std::nullopt;
  }
  Model model;
  {
    const auto scope = strategy.scope();
    model = call.options.model_fn();
  }
  const auto checkpoints = std::make_shared<Checkpoints>(call, directory, record, evaluates);
  // Starts another pass over the data if an earlier run has ended.
  const auto round = static_cast<std::int64_t>(record.rounds.size());
  FitOptions fit{.epochs = round + 1, .initial_epoch = round, .verbose = 0};
  data::Dataset data = call.train.input_fn();
  if (call.train.max_steps && data.defined()) data = data.take(*call.train.max_steps - done);
  fit.callbacks = {callbacks::Callback(checkpoints),
                   callbacks::BackupAndRestore(directory.state(),
                                               {.save_freq = call.options.save_checkpoints_steps,
                                                .delete_checkpoint = false})};
  model.fit(data, std::move(fit));
  if (!evaluates) return std::nullopt;
  return checkpoints->last() ? checkpoints->last() : directory.last_evaluation(call.evaluate.name);
}

}  // namespace tandem::estimator
