// The strategies that the commands know, from the text of their options.
#pragma once

#include <string>
#include <vector>

#include "tandem/distribute.h"

namespace tandem::tools {

struct StrategyChoice {
  std::string command;               // for messages: "train"
  std::string strategy = "default";  // or "one_device", "mirrored", "multi_worker"
  std::string devices;               // separated by commas
};

// Throws InvalidArgumentError where strategy and devices do not suit each other.
void check(const StrategyChoice& choice);
// REQUIRES: check(). Makes as many logical CPUs as the devices' names speak of, sharing the cores.
// Throws InvalidArgumentError for an unknown strategy and what the strategies throw.
distribute::Strategy make_strategy(const StrategyChoice& choice);

}  // namespace tandem::tools
