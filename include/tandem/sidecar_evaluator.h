/// @file
/// Evaluation of a training's checkpoints in another process. As tf.keras.utils.SidecarEvaluator.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/callbacks.h"
#include "tandem/data.h"
#include "tandem/model.h"

namespace tandem {

/// The result of evaluating one checkpoint.
struct SidecarEvaluation {
  std::int64_t number = 0;                  ///< number in the name of the checkpoint's file
  std::map<std::string, double> metrics{};  ///< loss and metrics by name
};

/// Options of SidecarEvaluator.
struct SidecarEvaluatorOptions {
  /// Checkpoints are the files NAME-NUMBER.safetensors of the directory, as CheckpointManager and
  /// callbacks::ModelCheckpoint("DIRECTORY/ckpt-{epoch}.safetensors") write them.
  std::string name = "ckpt";
  std::optional<std::int64_t> steps{};  ///< batches per evaluation; default: all of the data
  /// start() returns after a checkpoint of at least this number. Default: it does not return.
  std::optional<std::int64_t> max_evaluations{};
  /// on_train_begin(), on_epoch_end() with the checkpoint's number and the metrics, and
  /// on_train_end() are called, so that loggers such as callbacks::CSVLogger can be used.
  std::vector<callbacks::Callback> callbacks{};
  /// Called after each evaluation.
  std::function<void(const SidecarEvaluation&)> on_evaluation{};
  /// How often the directory is read.
  std::chrono::milliseconds poll_interval = std::chrono::seconds(1);
  /// How long start() waits for the next checkpoint.
  std::chrono::milliseconds timeout = std::chrono::hours(24);
};

/// Evaluates the checkpoints that another process writes. Put it in the task of the evaluator. As
/// tf.keras.utils.SidecarEvaluator.
/// @code
/// td::SidecarEvaluator evaluator(model, test_data, "run/checkpoints", {.max_evaluations = 10});
/// auto last = evaluator.start();
/// @endcode
class SidecarEvaluator {
 public:
  /// `model`: compiled, of the same architecture as the one that is trained. `data`: batches of
  /// (inputs, targets). Throws InvalidArgumentError for an infinite dataset without `steps`.
  SidecarEvaluator(Model model, data::Dataset data, std::filesystem::path directory,
                   SidecarEvaluatorOptions options = {});

  /// Evaluates the newest checkpoint, again and again when there is a newer one. Checkpoints that
  /// come faster than they are evaluated are left out. Loads the weights of a weights file, of a
  /// training state, and of a Checkpoint with a group "model". Returns the last evaluation.
  ///
  /// A checkpoint that cannot be read is tried again until there is a newer one. Throws
  /// DeadlineExceededError after `timeout` without a new checkpoint; it names the last error of
  /// reading one. Throws the errors of Model::evaluate().
  SidecarEvaluation start();

 private:
  struct Found {
    std::int64_t number;
    std::filesystem::path path;
  };
  std::optional<Found> newest() const;
  SidecarEvaluation evaluate(const Found& found);

  Model model_;
  data::Dataset data_;
  std::filesystem::path directory_;
  SidecarEvaluatorOptions options_;
};

}  // namespace tandem
