// What an epoch's loss and metrics are made of, summed where the replicas are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/workers.h"
#include "tandem/callbacks.h"
#include "tandem/metrics.h"

namespace tandem {

// Where sums are kept apart: on each replica of this process, for each part of its examples
// (runtime/replica_invariance.h), of which there is one unless the mode is on.
struct StatisticsPlaces {
  int replicas = 1;
  int parts = 1;  // of each replica
};
struct StatisticsPlace {
  int replica = 0;
  int part = 0;
};

// Sums in float64 on each replica's device, so that adding a batch waits for no device and a split
// over batches loses nothing. Of one thread.
class Statistics {
 public:
  // `workers`: the processes that train together; null: this one.
  Statistics(const StatisticsPlaces& places, std::vector<metrics::Metric> metrics,
             std::shared_ptr<Workers> workers)
      : metrics_(std::move(metrics)),
        parts_(static_cast<std::size_t>(places.parts)),
        sums_(static_cast<std::size_t>(places.replicas) * parts_),
        workers_(std::move(workers)) {}

  // What is at one place of a batch: its examples, the sum of their losses (a scalar), and for each
  // metric what MetricBase::statistics() gave.
  void add(const StatisticsPlace& place, std::int64_t examples, const Tensor& loss,
           const std::vector<std::vector<Tensor>>& metrics);
  void clear();
  // Whether nothing was added.
  bool empty() const;

  // "loss" and the metrics over all workers, each under prefix + its name; sets the metrics' own
  // states. Waits for the devices. Called by every worker.
  callbacks::Logs logs(const std::string& prefix = {});
  // The same over this worker's replicas, called by any.
  callbacks::Logs own_logs() const;

  // For checkpoints: the sums themselves, so that going on from them gives the same bits on as many
  // replicas, and the same figures on another number of them.
  std::map<std::string, Tensor> state() const;
  // Throws DataLossError for a state of other metrics.
  void restore(const std::map<std::string, Tensor>& state);

 private:
  struct Sums {
    std::int64_t examples = 0;
    Tensor loss;  // undefined: nothing was added
    std::vector<std::vector<Tensor>> metrics;
  };
  // Over several places, on the host.
  struct Totals {
    double examples = 0.0;
    double loss = 0.0;
    std::vector<std::vector<Tensor>> metrics;
  };

  Totals totals() const;
  Totals over_workers(const Totals& mine) const;
  callbacks::Logs figures(const Totals& totals, const std::string& prefix) const;
  std::size_t first_place() const;
  std::size_t num_places() const;  // of all workers

  std::vector<metrics::Metric> metrics_;
  std::size_t parts_;
  std::vector<Sums> sums_;  // by place
  std::shared_ptr<Workers> workers_;
};

}  // namespace tandem
