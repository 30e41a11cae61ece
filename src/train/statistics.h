// The sums from which an epoch's loss and metrics are computed, kept on the replicas' devices.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/worker_collectives.h"
#include "tandem/callbacks.h"
#include "tandem/metrics.h"
#include "train/step_report.h"

namespace tandem {

// How many sums are kept: one per replica of this process and per part of its examples
// (runtime/replica_invariance.h). There is one part unless the replica-invariant mode is on.
struct ReplicaPartCounts {
  int replicas = 1;
  int parts = 1;  // of each replica
};
struct ReplicaPartIndex {
  int replica = 0;
  int part = 0;
};

// Sums in float64 on each replica's device: adding a batch does not wait for the device, and
// splitting data into batches loses no precision. Not thread-safe.
class Statistics {
 public:
  // `workers`: the processes that train together; null if there is only this one.
  Statistics(const ReplicaPartCounts& places, std::shared_ptr<WorkerCollectives> workers)
      : parts_(static_cast<std::size_t>(places.parts)),
        sums_(static_cast<std::size_t>(places.replicas) * parts_),
        workers_(std::move(workers)) {}

  // Names the sums: those of `results`, and "loss" if there is one besides. Call it before add().
  void report(const StepReport& results, bool with_loss);

  // Adds one part of a batch: its number of examples, the sum of their losses (a scalar), and for
  // each metric the results of MetricBase::statistics().
  void add(const ReplicaPartIndex& place, std::int64_t examples, const Tensor& loss,
           const std::vector<std::vector<Tensor>>& metrics);
  void clear();
  // Whether no batch was added.
  bool empty() const;

  // The loss and the metrics over all workers, each named prefix + name. Sets the metrics' own
  // states and waits for the devices. Every worker must call it.
  callbacks::Logs logs(const std::string& prefix = {});
  // The same over this worker's replicas only; any worker may call it.
  callbacks::Logs own_logs() const;

  // The sums, for checkpoints. Training that resumes from them gets the same bits on equally many
  // replicas, and the same metrics on another number of replicas.
  std::map<std::string, Tensor> state() const;
  // Throws DataLossError if the state belongs to other metrics; if they are not known yet, in
  // report().
  void restore(const std::map<std::string, Tensor>& state);

 private:
  struct PartSums {
    std::int64_t examples = 0;
    Tensor loss;  // undefined before the first add()
    std::vector<std::vector<Tensor>> metrics;
  };
  // Sums over several parts, on the host.
  struct Totals {
    double examples = 0.0;
    double loss = 0.0;
    std::vector<std::vector<Tensor>> metrics;
  };

  Totals totals() const;
  Totals over_workers(const Totals& mine) const;
  callbacks::Logs compute_logs(const Totals& totals, const std::string& prefix) const;
  std::size_t first_place() const;
  std::size_t num_places() const;  // over all workers

  bool known_ = false;     // whether report() was called
  bool has_loss_ = false;  // besides the metrics
  std::vector<metrics::Metric> metrics_;
  std::vector<std::string> names_;  // of the metrics
  std::map<std::string, Tensor> to_restore_;
  std::size_t parts_;
  std::vector<PartSums> sums_;  // by replica and part
  std::shared_ptr<WorkerCollectives> workers_;
};

}  // namespace tandem
