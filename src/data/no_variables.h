// Refuses variables in functions that describe data.
#pragma once

#include "core/status.h"
#include "runtime/variable_impl.h"

namespace tandem::data {

// While an object of this class lives, the thread makes no variables: InvalidArgumentError.
class NoVariablesScope {
 public:
  NoVariablesScope() : scope_(context.creator, &creator_) {}

 private:
  class Creator final : public VariableCreator {
   public:
    RefPtr<VariableImpl> create(const Tensor&, VariableOptions options) override {
      fail<InvalidArgumentError>(
          "Creating variables in `dataset_fn` is not allowed. Variable '{}' was made by a function "
          "of a dataset",
          options.name);
    }
  };

  Creator creator_;
  Scoped<VariableCreator*> scope_;
};

}  // namespace tandem::data
