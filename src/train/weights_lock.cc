#include "train/weights_lock.h"

#include "train/model_impl.h"

namespace tandem {
namespace {

thread_local const ReadsWeights* innermost = nullptr;

}  // namespace

ReadsWeights::ReadsWeights(ModelImpl& model) : model_(model), outer_(innermost) {
  if (!exist_for(model)) lock_ = std::shared_lock(model.weights);
  innermost = this;
}

ReadsWeights::~ReadsWeights() { innermost = outer_; }

bool ReadsWeights::exist_for(const ModelImpl& model) {
  for (const ReadsWeights* each = innermost; each; each = each->outer_)
    if (&each->model_ == &model) return true;
  return false;
}

// A callback of a prediction may replace the weights that it has.
ReplacesWeights::ReplacesWeights(ModelImpl& model) {
  if (!ReadsWeights::exist_for(model)) lock_ = std::unique_lock(model.weights);
}

}  // namespace tandem
