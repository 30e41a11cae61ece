#include <thread>

#include "core/log.h"
#include "core/status.h"
#include "estimator/train_and_evaluate.h"
#include "train/batch_trainer.h"
#include "train/model_impl.h"

namespace tandem::estimator {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kLook = std::chrono::milliseconds(100);

// False if the checkpoint was removed meanwhile because newer ones exist.
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

std::optional<Evaluation> run_evaluator(const TrainAndEvaluateCall& call) {
  const ModelDirectory directory(call.options.model_dir);
  const distribute::Strategy strategy =
      call.options.eval_distribute ? call.options.eval_distribute() : distribute::DefaultStrategy();
  Model model;
  {
    const auto scope = strategy.scope();
    model = call.options.model_fn();
  }
  build_for(impl_of(model, "train_and_evaluate"), call.evaluate.input_fn(), "train_and_evaluate");
  std::optional<Evaluation> last = directory.last_evaluation(call.evaluate.name);
  Clock::time_point heard = Clock::now();
  while (true) {
    const TrainingRecord record = directory.read_record();
    if (record.latest > (last ? last->global_step : 0)) {
      if (!load(model, directory, record.latest)) continue;
      last = evaluate_once(call, directory, model, record.latest, true);
      heard = Clock::now();
      continue;
    }
    if (record.finished == call.train.max_steps) return last;
    if (Clock::now() - heard >= call.options.evaluator_timeout)
      fail<DeadlineExceededError>(
          "[train_and_evaluate] no new checkpoint came to '{}' for {} ms; the last one is of step "
          "{}, max_steps is {}",
          call.options.model_dir.string(), call.options.evaluator_timeout.count(), record.latest,
          *call.train.max_steps);
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace tandem::estimator
