// Makes strategies from command-line options.
#pragma once

#include <string>
#include <vector>

#include "tandem/distribute.h"

namespace tandem::tools {

struct StrategyChoice {
  std::string command;  // for messages: "train"
  // Or "one_device", "mirrored", "central_storage", "tpu", "multi_worker".
  std::string strategy = "default";
  std::string devices;  // comma-separated
};

// Throws InvalidArgumentError if strategy and devices contradict each other.
void check(const StrategyChoice& choice);
// REQUIRES: check(). Configures as many logical CPUs as the device names mention; they share the
// cores. Throws InvalidArgumentError for an unknown strategy and what the strategies throw.
distribute::Strategy make_strategy(const StrategyChoice& choice);

}  // namespace tandem::tools
