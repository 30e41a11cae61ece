#include <thread>

#include "core/log.h"
#include "core/status.h"
#include "parallel/estimator/tasks.h"
#include "train/model_impl.h"
#include "train/step.h"

namespace tandem::estimator {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(100);

// False where the checkpoint has made room for newer ones meanwhile.
bool load(Model& model, const ModelDirectory& directory, std::int64_t step) {
  try {
    model.load_weights(directory.weights(step));
    return true;
  } catch (const NotFoundError&) {
    if (std::filesystem::exists(directory.weights(step))) throw;
    return false;
  }
}

}  // namespace

std::optional<Evaluation> run_evaluator(const Task& task) {
  const ModelDirectory directory(task.options.model_dir);
  const distribute::Strategy strategy =
      task.options.eval_distribute ? task.options.eval_distribute() : distribute::DefaultStrategy();
  Model model;
  {
    const auto scope = strategy.scope();
    model = task.options.model_fn();
  }
  build_for(impl_of(model, "train_and_evaluate"), task.evaluate.input_fn(), "train_and_evaluate");
  std::optional<Evaluation> last = directory.last_evaluation(task.evaluate.name);
  Clock::time_point heard = Clock::now();
  while (true) {
    const TrainingRecord record = directory.read_record();
    if (record.latest > (last ? last->global_step : 0)) {
      if (!load(model, directory, record.latest)) continue;
      last = evaluate_once(task, directory, model, record.latest, true);
      heard = Clock::now();
      continue;
    }
    if (record.finished == task.train.max_steps) return last;
    if (Clock::now() - heard >= task.options.evaluator_timeout)
      fail<DeadlineExceededError>(
          "[train_and_evaluate] no new checkpoint came to '{}' for {} ms; the last one is of step "
          "{}, max_steps is {}",
          task.options.model_dir.string(), task.options.evaluator_timeout.count(), record.latest,
          *task.train.max_steps);
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace tandem::estimator
