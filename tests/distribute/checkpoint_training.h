// Training that saves and resumes.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "distribute/multi_worker_training.h"
#include "support/files.h"

namespace tandem::testing {

inline std::vector<double> state_of(const Model& model) {
  std::vector<double> numbers;
  for (const Variable& variable : model.variables())
    for (double value : values_of(variable.value())) numbers.push_back(value);
  for (const Variable& variable : model.optimizer().variables())
    for (double value : values_of(variable.value())) numbers.push_back(value);
  return numbers;
}

struct TrainingRun {
  std::filesystem::path path;
  std::int64_t epochs = 2;
  bool resume = false;
  bool background = false;
  bool moments = false;
  DTypePolicy dtype = {};
};

// Trains to the end of `epochs`, saves, and returns the weights, slots and losses.
inline std::string train_and_save(const distribute::Strategy& strategy, const TrainingRun& run) {
  random::set_seed(4);
  Sequential model = make_model(strategy, {.moments = run.moments, .dtype = run.dtype});
  const History history = model.fit(
      batches(),
      {.epochs = run.epochs,
       .verbose = 0,
       .callbacks = {callbacks::TrainingCheckpoint(
           run.path, {.save_freq = 3, .resume = run.resume, .background = run.background})}});
  std::vector<double> numbers = state_of(model);
  for (double loss : history.at("loss")) numbers.push_back(loss);
  return text_of(numbers);
}

// Runs `body`, which may use tensors, in another process: this one starts no threads, because it
// forks workers.
inline void elsewhere(const std::function<void()>& body) {
  ChildProcess process([&] {
    body();
    return std::string(::testing::Test::HasFailure() ? "failed" : "passed");
  });
  EXPECT_EQ(process.result(), "passed");
}

}  // namespace tandem::testing
