// The error for stages of a pipeline that other programs cannot run.
#pragma once

#include <string_view>

#include "core/status.h"

namespace tandem::data {

[[noreturn]] inline void refuse_stage(std::string_view stage, std::string_view reason) {
  fail<UnimplementedError>(
      "[{}] a dataset with this stage cannot be sent to workers, because {}. Register the dataset "
      "in the workers' program, data::register_dataset(NAME, ...), and use "
      "data::registered_dataset(NAME)",
      stage, reason);
}

}  // namespace tandem::data
