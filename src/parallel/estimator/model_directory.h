// What training leaves in a directory, for its next run and for an evaluator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tandem/estimator.h"

namespace tandem::estimator {

// The file `checkpoint`.
struct TrainingRecord {
  std::int64_t latest = 0;  // the newest checkpoint's step; 0: there is none
  std::vector<std::int64_t>
      rounds;  // the step at the end of each time that the data was gone through
  // The max_steps of a run that has come to its end, 0 where it had none; nothing while one is on.
  std::optional<std::int64_t> finished{};
};

// Of the text of that file, and of a line of evaluations.jsonl. Throw DataLossError, naming `what`,
// for text that nobody has written there.
TrainingRecord parse_record(const std::string& text, const std::string& what);
Evaluation parse_evaluation(const std::string& text, const std::string& what);

// Throws DataLossError as these do.
class ModelDirectory {
 public:
  // Made if need be (FailedPreconditionError).
  explicit ModelDirectory(std::filesystem::path path);

  std::filesystem::path weights(std::int64_t step) const;
  std::filesystem::path state() const { return path_ / "training"; }

  TrainingRecord read_record() const;
  void write_record(const TrainingRecord& record) const;
  // All checkpoints but the newest `keep`.
  void remove_old_weights(std::size_t keep) const;

  // Of evaluations named `name`.
  void append(const std::string& name, const Evaluation& evaluation) const;
  std::optional<Evaluation> last_evaluation(const std::string& name) const;

 private:
  std::filesystem::path evaluations(const std::string& name) const;
  std::filesystem::path path_;
};

}  // namespace tandem::estimator
