#include "core/log.h"
#include "core/status.h"
#include "parallel/estimator/tasks.h"
#include "train/model_impl.h"

namespace tandem::estimator {
namespace {

// Checkpoints for the evaluator, and evaluations where there is none.
class Checkpoints final : public callbacks::CallbackBase {
 public:
  Checkpoints(const Task& task, const ModelDirectory& directory, TrainingRecord record,
              bool evaluates)
      : task_(task),
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

  void on_batch_end(Model& model, std::int64_t batch, const callbacks::Logs&) override {
    step_ = begin_ + batch + 1;
    if ((batch + 1) % task_.options.save_checkpoints_steps == 0) save(model);
  }

  void on_epoch_end(Model& model, std::int64_t, const callbacks::Logs&) override {
    if (step_ > record_.latest) save(model);
  }

  // Behind what the state of training says of the end.
  void on_train_end(Model&) override {
    record_.rounds.push_back(step_);
    record_.finished = task_.train.max_steps.value_or(0);
    if (writes_) directory_.write_record(record_);
  }

  const std::optional<Evaluation>& last() const { return last_; }

 private:
  void save(Model& model) {
    model.save_weights(directory_.weights(step_));
    record_.latest = step_;
    if (writes_) {
      directory_.write_record(record_);
      if (task_.options.keep_checkpoint_max > 0)
        directory_.remove_old_weights(static_cast<std::size_t>(task_.options.keep_checkpoint_max));
    }
    if (evaluates_) last_ = evaluate_once(task_, directory_, model, step_, writes_);
  }

  const Task& task_;
  const ModelDirectory& directory_;
  TrainingRecord record_;
  const bool evaluates_;
  std::int64_t step_;         // of all runs together
  const std::int64_t begin_;  // the step at which the data was begun
  bool writes_ = false;
  std::optional<Evaluation> last_;
};

}  // namespace

Evaluation evaluate_once(const Task& task, const ModelDirectory& directory, Model& model,
                         std::int64_t step, bool writes) {
  const Evaluation result{
      .global_step = step,
      .metrics = model.evaluate(task.evaluate.input_fn(), {.steps = task.evaluate.steps})};
  if (!writes) return result;
  std::string figures;
  for (const auto& [name, value] : result.metrics)
    figures += fmt::format("{}{} = {:.6g}", figures.empty() ? "" : ", ", name, value);
  logging::info("[train_and_evaluate] step {}: {}", step, figures);
  directory.append(task.evaluate.name, result);
  return result;
}

std::optional<Evaluation> run_training(const Task& task, bool evaluates) {
  const ModelDirectory directory(task.options.model_dir);
  const distribute::Strategy strategy = task.options.train_distribute
                                            ? task.options.train_distribute()
                                            : distribute::DefaultStrategy();
  const TrainingRecord record = directory.read_record();
  const std::int64_t done = record.rounds.empty() ? 0 : record.rounds.back();
  if (task.train.max_steps && done >= *task.train.max_steps) {
    logging::info("[train_and_evaluate] Skipping training since max_steps has already saved.");
    return evaluates ? directory.last_evaluation(task.evaluate.name) : std::nullopt;
  }
  Model model;
  {
    const auto scope = strategy.scope();
    model = task.options.model_fn();
  }
  const auto checkpoints = std::make_shared<Checkpoints>(task, directory, record, evaluates);
  // The data is gone through once more where training has come to an end before.
  const auto round = static_cast<std::int64_t>(record.rounds.size());
  FitOptions fit{.epochs = round + 1, .initial_epoch = round, .verbose = 0};
  data::Dataset data = task.train.input_fn();
  if (task.train.max_steps && data.defined()) data = data.take(*task.train.max_steps - done);
  fit.callbacks = {callbacks::Callback(checkpoints),
                   callbacks::BackupAndRestore(directory.state(),
                                               {.save_freq = task.options.save_checkpoints_steps,
                                                .delete_checkpoint = false})};
  model.fit(data, std::move(fit));
  if (!evaluates) return std::nullopt;
  return checkpoints->last() ? checkpoints->last() : directory.last_evaluation(task.evaluate.name);
}

}  // namespace tandem::estimator
