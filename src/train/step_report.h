// The results that a step of a class derived from Model returns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tandem/metrics.h"

namespace tandem {

// The names of the results, and the metrics that their statistics belong to.
struct StepReport {
  std::vector<std::string> names;
  std::vector<metrics::Metric> metrics;
  std::vector<std::size_t> sizes;  // the number of statistics of each metric
};

}  // namespace tandem
