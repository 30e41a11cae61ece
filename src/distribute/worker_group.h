// The processes that train in step under one strategy.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "comm/communicator.h"
#include "comm/rendezvous/rendezvous.h"
#include "runtime/workers.h"
#include "sync/traced_sync.h"

namespace tandem::distribute {

// This process among them. Keeps it in the job while it lives: leaves in good order where it goes
// normally, and tells the others why where an exception takes it.
class WorkerGroup final : public Workers, public std::enable_shared_from_this<WorkerGroup> {
 public:
  // `host`: a communicator of all workers on the host's memory. `local_replicas`: this worker's;
  // the others may have other numbers. `owns_job`: nobody else ends this rank's part in it.
  WorkerGroup(std::shared_ptr<Job> job, bool owns_job, std::unique_ptr<Communicator> host,
              int local_replicas);
  ~WorkerGroup() override;

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }
  int num_replicas() const override { return num_replicas_; }
  int first_replica() const override { return first_replica_; }

  Tensor all_reduce(const Tensor& mine, ReduceOp op, const std::string& what) override;
  Tensor broadcast(const Tensor& mine, const std::string& what) override;
  Tensor gather(const Tensor& mine, std::int64_t axis, const std::string& what) override;
  std::vector<std::string> gather_bytes(const std::string& mine, const std::string& what) override;
  std::string broadcast_bytes(const std::string& mine, const std::string& what) override;

  // Throws what has ended the job: another worker's failure, or this one's own.
  void check() const;
  // This worker has failed: the others' waits throw AbortedError. Thread-safe.
  void give_up(const std::string& reason);

 private:
  // On behalf of this worker, for a trace.
  TracedRank traced();
  // Calls it, and remembers what it throws, for the others to be told where that ends this worker.
  template <class F>
  void attempt(const F& collective);
  // Throws where this worker has given up. Collectives tell of others, and know more of why.
  void check_own() const;
  // Of each worker's value; InvalidArgumentError where they cannot be joined along `axis`.
  std::vector<Shape> exchange_shapes(const Tensor& mine, std::int64_t axis,
                                     const std::string& what);

  std::shared_ptr<Job> job_;
  bool owns_job_;
  std::shared_ptr<Communicator> host_;
  std::weak_ptr<CollectiveGroup> traced_;  // as the traces of the moment have it
  int num_replicas_ = 0;
  int first_replica_ = 0;
  std::int64_t calls_ = 0;
  std::string cause_;  // empty: every collective has ended well
  mutable std::mutex mutex_;
  std::string gave_up_;  // under mutex_; empty: it has not
};

}  // namespace tandem::distribute
