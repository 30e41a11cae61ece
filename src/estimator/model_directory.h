// The files that training keeps in a directory, for its next run and for an evaluator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tandem/estimator.h"

namespace tandem::estimator {

// The contents of the file `checkpoint`.
struct TrainingRecord {
  std::int64_t latest = 0;           // step of the newest checkpoint; 0 if there is none
  std::vector<std::int64_t> rounds;  // the step at the end of each pass over the data
  // Set once a run has ended: its max_steps, or 0 if it had none.
  std::optional<std::int64_t> finished{};
};

// Parse the contents of that file, and a line of evaluations.jsonl. Throw DataLossError, naming
// `what`, for anything that this class does not write.
TrainingRecord parse_record(const std::string& text, const std::string& what);
Evaluation parse_evaluation(const std::string& text, const std::string& what);

// Reading throws DataLossError for damaged files.
class ModelDirectory {
 public:
  // Makes the directory if it does not exist. Throws FailedPreconditionError if it cannot be made.
  explicit ModelDirectory(std::filesystem::path path);

  std::filesystem::path weights(std::int64_t step) const;
  std::filesystem::path state() const { return path_ / "training"; }

  TrainingRecord read_record() const;
  void write_record(const TrainingRecord& record) const;
  // Removes all but the newest `keep` checkpoints.
  void remove_old_weights(std::size_t keep) const;

  // `name`: of the EvalSpec.
  void append(const std::string& name, const Evaluation& evaluation) const;
  std::optional<Evaluation> last_evaluation(const std::string& name) const;

 private:
  std::filesystem::path evaluations(const std::string& name) const;
  std::filesystem::path path_;
};

}  // namespace tandem::estimator
