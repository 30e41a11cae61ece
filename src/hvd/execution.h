// Runs what is due: the same on every rank, in the same order.
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

// Belongs to one thread at a time. What throws leaves the communicator of no use.
class Execution {
 public:
  // This rank's operation of that name; null: the rank has joined.
  using Take = std::function<OperationRef(const std::string& name)>;
  // Its end, with an error or without.
  using Complete = std::function<void(const OperationRef&, std::exception_ptr)>;

  // `backend`: what the timeline calls its work.
  Execution(Communicator& communicator, Timeline& timeline, std::string backend, Complete complete);

  // Starts all of it; what was started before may still be under way.
  void start(std::span<const AgreementRef> due, const FusionOptions& options, const Take& take);
  // Ends what has come back, in the order of the starts; whether all has.
  bool advance(bool may_wait);
  bool at_rest() const { return steps_.empty(); }

  std::int64_t bytes() const { return bytes_; }  // of the last start()

 private:
  struct Item {
    std::size_t due = 0;
    const Request* mine = nullptr;  // another rank's where this one has joined
    std::size_t tensor = 0;
  };
  // Under way.
  struct Step {
    std::shared_ptr<Work> work;  // null: done
    std::function<void()> finish;
    std::string name;  // of its first operation
    std::int64_t begun = 0;
    Kind kind = Kind::kBarrier;
  };
  struct Due {
    AgreementRef agreement;
    OperationRef operation;  // null: this rank has joined
    std::size_t open = 0;    // batches that it has a part in
  };

  using DueList = std::shared_ptr<std::vector<Due>>;  // of one start()
  struct PooledBucket {
    Bucket bucket;
    bool busy = false;
  };

  // What travels as one, in a bucket or where it is.
  struct Batch {
    DueList due;
    std::vector<Item> items;
    DType dtype = float32;
    PooledBucket* pooled = nullptr;  // null: in place

    const OperationRef& operation_of(const Item& item) const { return (*due)[item.due].operation; }
    bool lies_in_a_row() const;
    Buffer array(std::size_t index) const;
    Buffer whole() const;
  };

  void start_batch(const DueList& due, const std::vector<FusionUnit>& units);
  void finish_batch(const Batch& batch);
  void start_single(const AgreementRef& agreement, const OperationRef& operation);
  std::shared_ptr<Work> start_allgather(const Agreement& agreement, Handle::State& operation);
  std::shared_ptr<Work> start_broadcast(const Agreement& agreement, Handle::State& operation);
  std::shared_ptr<Work> start_alltoall(const Agreement& agreement, Handle::State& operation);
  std::shared_ptr<Work> start_reducescatter(const Agreement& agreement, Handle::State& operation,
                                            std::function<void()>& finish);
  void add_step(std::shared_ptr<Work> work, Kind kind, const std::string& name,
                std::function<void()> finish);
  // For what travels together; busy until its step has finished.
  PooledBucket& take_bucket(std::span<const std::int64_t> counts, DType dtype);
  std::size_t rank() const { return static_cast<std::size_t>(communicator_.rank()); }
  std::size_t size() const { return static_cast<std::size_t>(communicator_.size()); }

  Communicator& communicator_;
  Timeline& timeline_;
  std::string backend_;
  Complete complete_;
  Scratch scratch_;  // of Adasum
  std::deque<Step> steps_;
  std::deque<PooledBucket> buckets_;
  std::int64_t bytes_ = 0;
};

}  // namespace tandem::hvd
