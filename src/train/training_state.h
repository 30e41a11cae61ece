// All that training needs to go on where it stopped, in one file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tandem/model.h"
#include "train/statistics.h"

namespace tandem {

// A place in the passes over the data, which are numbered through all of a model's fit()s.
struct DataPosition {
  std::int64_t pass = 0;
  std::int64_t batch = 0;  // of its batches, how many were trained on
};

// Where a fit() stands.
struct TrainingProgress {
  std::int64_t epoch = 0;  // the present one
  std::int64_t step = 0;   // of its steps, how many are done
  DataPosition data;
  Statistics& statistics;  // of those steps
  History history;         // of the epochs before
  std::vector<callbacks::Callback> callbacks;
};

// Saves the model's variables, the optimizer's, the random stream, the callbacks' states and the
// progress of the model's fit(). Every copy of a variable that replicas keep apart is saved, so
// that the same strategy goes on with the same bits; another strategy starts from the copies'
// aggregate. `config`: what must be the same when training goes on. Throws FailedPreconditionError
// outside fit(), and what save_safetensors() throws. Where several workers train together each of
// them calls it, and the chief writes.
void save_training_state(const Model& model, const std::filesystem::path& path,
                         const std::map<std::string, std::string>& config);
// The inverse. False where there is no file and none `must_exist`. Throws InvalidArgumentError when
// `config` differs (naming what does), and what load_safetensors() and restore_variables() throw;
// the model is as it was then. Every worker calls it, and gets what the chief's file holds.
bool load_training_state(Model& model, const std::filesystem::path& path,
                         const std::map<std::string, std::string>& config, bool must_exist);

}  // namespace tandem
