// What an epoch's loss and metrics are made of, summed where the replicas are.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tandem/callbacks.h"
#include "tandem/metrics.h"

namespace tandem {

// Sums in float64 on each replica's device, so that adding a batch waits for no device and a split
// over batches loses nothing. Of one thread.
class Statistics {
 public:
  Statistics(int replicas, std::vector<metrics::Metric> metrics)
      : metrics_(std::move(metrics)), replicas_(static_cast<std::size_t>(replicas)) {}

  // What one replica has of a batch: its examples, the sum of their losses (a scalar), and for each
  // metric what MetricBase::statistics() gave.
  void add(int replica, std::int64_t examples, const Tensor& loss,
           const std::vector<std::vector<Tensor>>& metrics);
  void clear();
  bool empty() const { return examples() == 0; }
  std::int64_t examples() const;

  // "loss" and the metrics, each under prefix + its name; sets the metrics' own states. Waits for
  // the devices.
  callbacks::Logs logs(const std::string& prefix = {});

  // For checkpoints: the sums themselves, so that going on from them gives the same bits on as many
  // replicas, and the same figures on another number of them.
  std::map<std::string, Tensor> state() const;
  // Throws DataLossError for a state of other metrics.
  void restore(const std::map<std::string, Tensor>& state);

 private:
  struct Replica {
    std::int64_t examples = 0;
    Tensor loss;
    std::vector<std::vector<Tensor>> metrics;
  };

  std::vector<metrics::Metric> metrics_;
  std::vector<Replica> replicas_;
};

}  // namespace tandem
