// Saves and loads the complete state of training, in one checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/model.h"
#include "train/checkpoint/saver.h"
#include "train/statistics.h"

namespace tandem {

// A position in the data. Passes are numbered over all of a model's calls of fit().
struct DataPosition {
  std::int64_t pass = 0;
  std::int64_t batch = 0;  // number of the pass's batches that were trained on
};

// The progress of a call of fit().
struct TrainingProgress {
  std::int64_t epoch = 0;  // the present one
  std::int64_t step = 0;   // completed steps of the epoch
  DataPosition data;
  Statistics& statistics;              // of those steps
  std::function<void()> finish_steps;  // waits for steps that run in other processes
  History history;                     // of the epochs before
  std::vector<callbacks::Callback> callbacks;
  std::vector<std::string> log_names;           // of the metrics of an epoch, sorted
  std::optional<std::int64_t> steps_per_epoch;  // if it is known before the first epoch
};

// TrainingProgress::log_names; empty outside fit().
std::vector<std::string> log_names(const Model& model);

// Saves the variables of the model and its optimizer, the random generator, the callbacks' states
// and the progress of fit(). Saves every replica's copy of variables whose copies differ, so that
// the same strategy resumes with the same bits; another strategy starts from their aggregate.
// `config`: values that must be equal when training resumes. Throws FailedPreconditionError outside
// fit(), and the errors of CheckpointSaver::save(). Every worker calls it.
void save_training_state(const Model& model, const std::filesystem::path& path,
                         const std::map<std::string, std::string>& config, CheckpointSaver& saver);
// The inverse. Returns false if there is no file and `must_exist` is false. Throws
// InvalidArgumentError if `config` differs (naming the differences), and the errors of
// CheckpointReader and restore_variables(); the model is unchanged then. Every worker calls it
// and gets the contents of the chief's checkpoint.
bool load_training_state(Model& model, const std::filesystem::path& path,
                         const std::map<std::string, std::string>& config, bool must_exist);

// The prefix of the names of these variables in a checkpoint: "model/" in a training state and in a
// Checkpoint with such a group, else none.
std::string weights_prefix(const CheckpointReader& checkpoint,
                           const std::vector<Variable>& variables);

}  // namespace tandem
