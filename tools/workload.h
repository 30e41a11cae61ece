// The options that `train` and `explain` share: model, data, strategy, batch size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "options.h"
#include "strategies.h"

namespace tandem::tools {

struct Workload {
  std::string model = "lenet", data = "synthetic";
  std::string optimizer;              // empty: the model's default
  std::string dtype = "float32";      // the dtype policy
  std::optional<std::int64_t> batch;  // not given: the model's default
  StrategyChoice placement;
};

// Adds the options that set `workload`, which must outlive parsing. `data_help`: help of --data.
void add_workload_options(Command command, Workload& workload, const std::string& data_help);
// Throws InvalidArgumentError for options that contradict each other.
void check(const Workload& workload);

}  // namespace tandem::tools
