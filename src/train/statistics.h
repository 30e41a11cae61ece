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

// Sums in float64 on each replica's device, so that adding a batch waits for no device and a split
// over batches loses nothing. Of one thread.
class Statistics {
 public:
  // `replicas`: of this process. `workers`: the processes that train together; null: this one.
  Statistics(int replicas, std::vector<metrics::Metric> metrics, Workers* workers)
      : metrics_(std::move(metrics)),
        replicas_(static_cast<std::size_t>(replicas)),
        workers_(workers) {}

  // What one replica has of a batch: its examples, the sum of their losses (a scalar), and for each
  // metric what MetricBase::statistics() gave.
  void add(int replica, std::int64_t examples, const Tensor& loss,
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
  struct Replica {
    std::int64_t examples = 0;
    Tensor loss;  // undefined: nothing was added
    std::vector<std::vector<Tensor>> metrics;
  };
  // Over several replicas, on the host.
  struct Totals {
    double examples = 0.0;
    double loss = 0.0;
    std::vector<std::vector<Tensor>> metrics;
  };

  Totals totals() const;
  Totals over_workers(const Totals& mine) const;
  callbacks::Logs figures(const Totals& totals, const std::string& prefix) const;
  std::size_t first_replica() const;
  std::size_t num_replicas() const;  // of all workers

  std::vector<metrics::Metric> metrics_;
  std::vector<Replica> replicas_;
  Workers* workers_;
};

}  // namespace tandem
