#include "tandem/sidecar_evaluator.h"

#include <thread>

#include "core/log.h"
#include "core/status.h"
#include "train/batch_trainer.h"
#include "train/checkpoint/index.h"
#include "train/fit_data.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

SidecarEvaluator::SidecarEvaluator(Model model, data::Dataset data, std::filesystem::path directory,
                                   SidecarEvaluatorOptions options)
    : model_(std::move(model)),
      data_(std::move(data)),
      directory_(std::move(directory)),
      options_(std::move(options)) {
  Model::Impl& impl = compiled_impl_of(model_, "SidecarEvaluator");
  if (!data_.defined())
    throw InvalidArgumentError("[SidecarEvaluator] expected a dataset, got an undefined one");
  require_end(data_, options_.steps.has_value(), "SidecarEvaluator", "steps");
  build_for(impl, data_, "SidecarEvaluator");
}

std::optional<SidecarEvaluator::Found> SidecarEvaluator::newest() const {
  std::error_code none;  // the training makes the directory
  if (!std::filesystem::is_directory(directory_, none)) return std::nullopt;
  const auto files = numbered_files(directory_, options_.name);
  if (files.empty()) return std::nullopt;
  return Found{files.back().first, files.back().second};
}

SidecarEvaluation SidecarEvaluator::evaluate(const Found& found) {
  SidecarEvaluation result{.number = found.number,
                           .metrics = model_.evaluate(data_, {.steps = options_.steps})};
  std::string text;
  for (const auto& [name, value] : result.metrics) text += fmt::format(" {}: {:.6g}", name, value);
  logging::info("[SidecarEvaluator] checkpoint {}:{}", found.number, text);
  for (const callbacks::Callback& callback : options_.callbacks)
    callback->on_epoch_end(model_, found.number, result.metrics);
  if (options_.on_evaluation) options_.on_evaluation(result);
  return result;
}

SidecarEvaluation SidecarEvaluator::start() {
  for (const callbacks::Callback& callback : options_.callbacks) callback->on_train_begin(model_);
  std::optional<SidecarEvaluation> last;
  std::string problem;
  Clock::time_point since = Clock::now();
  while (!last || !options_.max_evaluations || last->number < *options_.max_evaluations) {
    const std::optional<Found> found = newest();
    if (found && (!last || found->number > last->number)) {
      bool loaded = false;
      try {
        model_.load_weights(found->path);
        loaded = true;
      } catch (const DataLossError& error) {
        problem = error.what();
      } catch (const NotFoundError& error) {  // it was removed, because there are newer ones
        problem = error.what();
      }
      if (loaded) {
        last = evaluate(*found);
        problem.clear();
        since = Clock::now();
        continue;
      }
    }
    if (Clock::now() - since >= options_.timeout)
      fail<DeadlineExceededError>(
          "[SidecarEvaluator] no new checkpoint came to '{}' for {} ms; the last one was {}{}",
          directory_.string(), options_.timeout.count(),
          last ? fmt::format("number {}", last->number) : "none",
          problem.empty() ? "" : ". One cannot be read: " + problem);
    std::this_thread::sleep_for(options_.poll_interval);
  }
  for (const callbacks::Callback& callback : options_.callbacks) callback->on_train_end(model_);
  return *last;
}

}  // namespace tandem
