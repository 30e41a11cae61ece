// Predictions have the weights of one state, also while another thread replaces them.
#pragma once

#include <shared_mutex>

#include "core/mutex.h"

namespace tandem {

struct ModelImpl;

// While one exists, other threads do not replace the weights. They may be nested.
class ReadsWeights {
 public:
  explicit ReadsWeights(ModelImpl& model);
  ~ReadsWeights();
  ReadsWeights(const ReadsWeights&) = delete;
  ReadsWeights& operator=(const ReadsWeights&) = delete;

  // Whether one of this thread's is of the model.
  static bool exist_for(const ModelImpl& model);

 private:
  const ModelImpl& model_;
  std::shared_lock<SharedMutex> lock_;
  const ReadsWeights* outer_;
};

// While one exists, other threads do not compute with the weights.
class ReplacesWeights {
 public:
  explicit ReplacesWeights(ModelImpl& model);

 private:
  std::unique_lock<SharedMutex> lock_;
};

}  // namespace tandem
