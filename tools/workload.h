// The options that `train` and `explain` share: model, data, strategy, batch size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "strategies.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tandem::tools {

struct Workload {
  std::string model = "lenet", data = "synthetic";
  std::string optimizer;              // empty: the model's default
  std::string dtype = "float32";      // the dtype policy
  std::optional<std::int64_t> batch;  // not given: the model's default
  StrategyChoice placement;
};

// Adds the options that set `workload`, which must outlive parsing. `data_help`: help of --data.
void add_workload_options(CLI::App& command, Workload& workload, const std::string& data_help);
// Throws InvalidArgumentError for options that contradict each other.
void check(const Workload& workload);

// Restricts `option` to 64-bit integers of at least `least`. CLI11 itself parses "-1" as an
// unsigned number, and clamps numbers that are too large.
void require_whole_number(CLI::Option& option, std::int64_t least);

}  // namespace tandem::tools
