// Sums of metrics that a thread collects in place of the metrics' own, perhaps in a trace.
#pragma once

#include <vector>

#include "tandem/metrics.h"

namespace tandem::metrics {

// The statistics of metrics that a metric of a user's class or a step of a model updates, or the
// sums for the result() of such a metric.
struct NestedSums {
  struct Entry {
    const Metric::State* state;
    std::vector<Tensor> sums;
    Metric metric;  // in a step
  };
  // The result() of a metric in a step, where the value is not known yet.
  struct StandIn {
    Tensor tensor;
    const Metric::State* state;
  };

  std::vector<Entry> entries;  // in the order of the first update
  bool in_step = false;        // whether result() gives stand-ins
  std::vector<StandIn> stand_ins;

  Entry* find(const Metric::State& state) {
    for (Entry& entry : entries)
      if (entry.state == &state) return &entry;
    return nullptr;
  }
};

}  // namespace tandem::metrics
