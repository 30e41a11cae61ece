// This process as one of the workers that train together under a strategy.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "comm/communicator.h"
#include "comm/rendezvous/rendezvous.h"
#include "runtime/worker_collectives.h"
#include "sync/traced_sync.h"

namespace tandem::distribute {

// Keeps this worker in the job while it lives, and gives it the workers' collectives. Its
// destructor leaves the job in good order, or reports the cause to the other workers if an
// exception destroys it.
class JobMembership final : public WorkerCollectives,
                            public std::enable_shared_from_this<JobMembership> {
 public:
  // `host`: a communicator of all workers on host memory. `local_replicas`: this worker's number of
  // replicas, which may differ between workers. `owns_job`: this object ends this rank's
  // membership.
  JobMembership(std::shared_ptr<Job> job, bool owns_job, std::unique_ptr<Communicator> host,
                int local_replicas);
  ~JobMembership() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int num_replicas() const override { return num_replicas_; }
  int first_replica() const override { return first_replica_; }

  Tensor all_reduce(const Tensor& mine, ReduceOp op, const std::string& what) override;
  Tensor broadcast(const Tensor& mine, const std::string& what) override;
  Tensor gather(const Tensor& mine, std::int64_t axis, const std::string& what) override;
  std::vector<std::string> gather_bytes(const std::string& mine, const std::string& what) override;
  std::string broadcast_bytes(const std::string& mine, const std::string& what) override;

  // Throws the error that ended the job: another worker's failure, or this one's own.
  void check() const;
  // Reports that this worker has failed: the others' waits throw AbortedError. Thread-safe.
  void abort(const std::string& reason);

 private:
  // This worker's rank in the collectives of a trace.
  TracedRank traced();
  // Runs `collective` and remembers its error, so that the destructor can report it to the
  // other workers.
  template <class F>
  void attempt(const F& collective);
  // Throws if this worker has failed. Collectives report the failures of others, with a better
  // reason.
  void check_own() const;
  // The shape of each worker's value. Throws InvalidArgumentError if they cannot be
  // concatenated along `axis`.
  std::vector<Shape> exchange_shapes(const Tensor& mine, std::int64_t axis,
                                     const std::string& what);

  std::shared_ptr<Job> job_;
  bool owns_job_;
  std::shared_ptr<Communicator> host_;
  std::weak_ptr<CollectiveGroup> traced_;  // shared by the traces that exist now
  int num_replicas_ = 0;
  int first_replica_ = 0;
  std::int64_t calls_ = 0;
  std::string cause_;  // the error of a collective; empty if all have succeeded
  mutable std::mutex mutex_;
  std::string abort_reason_;  // guarded by mutex_; empty if this worker has not failed
};

}  // namespace tandem::distribute
