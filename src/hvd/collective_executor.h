// Runs the collectives of operations that all ranks have submitted, in the same order on every
// rank.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/bucket.h"
#include "comm/communicator.h"
#include "comm/process/scratch.h"
#include "hvd/fusion.h"
#include "hvd/operation.h"

namespace tandem::hvd {

class Timeline;

// Not thread-safe. After an exception the communicator is not usable.
class CollectiveExecutor {
 public:
  // Finds this rank's operation of that name; null if the rank has joined.
  using Take = std::function<OperationRef(const std::string& name)>;
  // Called when an operation ends; the error is null on success.
  using Complete = std::function<void(const OperationRef&, std::exception_ptr)>;

  // `backend`: prefix of the timeline's phases.
  CollectiveExecutor(Communicator& communicator, Timeline& timeline, std::string backend,
                     Complete complete);

  // Launches all of them. Operations of earlier calls may still be in progress.
  void start(std::span<const AgreementRef> ready, const FusionOptions& options, const Take& take);
  // Completes operations that have finished, in the order of their launch. Returns whether all
  // have.
  bool advance(bool may_wait);
  bool idle() const { return pending_.empty(); }

  std::int64_t bytes() const { return bytes_; }  // of the last start()

 private:
  struct Item {
    std::size_t ready = 0;
    const Request* mine = nullptr;  // another rank's request if this one has joined
    std::size_t tensor = 0;
  };
  // A launched collective.
  struct LaunchedCollective {
    std::shared_ptr<CollectiveWork> work;  // null once done
    std::function<void()> finish;
    std::string name;  // of its first operation
    std::int64_t begun = 0;
    RequestKind kind = RequestKind::kBarrier;
  };
  struct ReadyOperation {
    AgreementRef agreement;
    OperationRef operation;  // null if this rank has joined
    std::size_t open = 0;    // batches that still hold tensors of it
  };

  using ReadyList = std::shared_ptr<std::vector<ReadyOperation>>;  // of one call of start()
  struct PooledBucket {
    Bucket bucket;
    bool busy = false;
  };

  // Tensors that one collective reduces, in a fusion buffer or in place.
  struct Batch {
    ReadyList ready;
    std::vector<Item> items;
    DType dtype = float32;
    PooledBucket* pooled = nullptr;  // null: reduced in place

    const OperationRef& operation_of(const Item& item) const {
      return (*ready)[item.ready].operation;
    }
    bool is_contiguous() const;
    Buffer array(std::size_t index) const;
    Buffer whole() const;
  };

  void start_batch(const ReadyList& ready, const std::vector<FusionUnit>& units);
  void finish_batch(const Batch& batch);
  void start_single(const AgreementRef& agreement, const OperationRef& operation);
  std::shared_ptr<CollectiveWork> start_allgather(const Agreement& agreement,
                                                  Handle::State& operation);
  std::shared_ptr<CollectiveWork> start_broadcast(const Agreement& agreement,
                                                  Handle::State& operation);
  std::shared_ptr<CollectiveWork> start_alltoall(const Agreement& agreement,
                                                 Handle::State& operation);
  std::shared_ptr<CollectiveWork> start_reducescatter(const Agreement& agreement,
                                                      Handle::State& operation,
                                                      std::function<void()>& finish);
  void add_pending(std::shared_ptr<CollectiveWork> work, RequestKind kind, const std::string& name,
                   std::function<void()> finish);
  // A free fusion buffer. It stays busy until its collective has finished.
  PooledBucket& take_bucket(std::span<const std::int64_t> counts, DType dtype);
  std::size_t rank() const { return static_cast<std::size_t>(communicator_.rank()); }
  std::size_t size() const { return static_cast<std::size_t>(communicator_.size()); }

  Communicator& communicator_;
  Timeline& timeline_;
  std::string backend_;
  Complete complete_;
  Scratch scratch_;  // for Adasum
  std::deque<LaunchedCollective> pending_;
  std::deque<PooledBucket> buckets_;
  std::int64_t bytes_ = 0;
};

}  // namespace tandem::hvd
