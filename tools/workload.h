// What a command is asked about: a model, its data, and where its training runs.
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
  std::string optimizer;              // empty: the model's own
  std::optional<std::int64_t> batch;  // not given: the model's own
  StrategyChoice placement;
};

// The options that set `workload`, which outlives the parsing. `data_help`: what --data may be.
void add_workload_options(CLI::App& command, Workload& workload, const std::string& data_help);
// Throws InvalidArgumentError for options that no model or strategy could take.
void check(const Workload& workload);

// Makes `option` take whole numbers of 64 bits alone, from `least` on: CLI11 takes "-1" for an
// unsigned number, and the largest number for one that is too large.
void require_whole_number(CLI::Option& option, std::int64_t least);

}  // namespace tandem::tools
