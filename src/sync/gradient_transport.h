// The interface through which an EagerSync reduces its buckets over the ranks. Each strategy or
// API (tf.distribute, DDP, Horovod) supplies an implementation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "comm/bucket.h"
#include "comm/communicator.h"

namespace tandem {

// A bucket whose gradients are all ready.
struct FullBucket {
  std::size_t index = 0;
  bool is_last = false;
  std::int64_t step = 0;
  std::span<const std::size_t> gradients;  // indices of its gradients, in the bucket's order
  const std::vector<bool>& zeros;          // per gradient of the step: this rank contributes zeros
  Bucket* memory = nullptr;                // null if gradients are not packed
  // Memory to reduce in place: the whole bucket if packed, otherwise one buffer per gradient.
  std::span<const Buffer> buffers;
  ReduceOp op = ReduceOp::kSum;
};

// One rank's transport for one list of gradients. Every rank calls it for the same buckets in the
// same order. Not thread-safe.
class GradientTransport {
 public:
  virtual ~GradientTransport() = default;
  // Whether gradients are copied into buckets and reduced there; otherwise they are reduced in
  // their own memory.
  virtual bool packs() const = 0;
  virtual Bucket make_bucket(std::span<const std::int64_t> counts, DType dtype) = 0;
  // Launches the reduction of a bucket, without waiting. The memory belongs to the work until its
  // wait() returns. EagerSync waits for the buckets in launch order, after all are launched.
  virtual std::shared_ptr<CollectiveWork> start(const FullBucket& bucket) = 0;
  // Advances launched reductions, without waiting.
  virtual void progress() {}
  // Replaces `order`, in which this rank's gradients became ready, by rank 0's. A transport whose
  // ranks may have different buckets need not do so.
  virtual void broadcast_order(std::span<std::int64_t> order) { static_cast<void>(order); }

  // Called after the last bucket of a step is launched. Starts to send the other ranks `mine`,
  // which is nonzero for each gradient that this rank had. The function that it returns is called
  // after all buckets are waited for. Its result is nonzero for each gradient that any rank had.
  virtual std::function<std::vector<std::uint8_t>()> exchange_presence(
      std::span<const std::uint8_t> mine) = 0;
};

// A small all-gather per step, for the bookkeeping that ranks exchange besides gradients. It uses
// the same host memory in every step.
class ByteExchange {
 public:
  ByteExchange(Communicator& communicator, std::size_t bytes)
      : communicator_(communicator),
        mine_(bytes),
        all_(bytes * static_cast<std::size_t>(communicator.size())) {}

  std::size_t size() const { return mine_.size(); }  // bytes per rank
  std::uint8_t* mine() { return mine_.data(); }
  // Sends mine(), which must not be written to before wait() returns.
  void start() { work_ = communicator_.start_exchange(mine_.data(), mine_.size(), all_.data()); }
  bool test() { return !work_ || work_->test(); }
  void wait() {
    if (const auto work = std::exchange(work_, nullptr)) work->wait();
  }
  // The bytes that `rank` sent.
  const std::uint8_t* of(int rank) const {
    return all_.data() + static_cast<std::size_t>(rank) * mine_.size();
  }

 private:
  Communicator& communicator_;
  std::vector<std::uint8_t> mine_, all_;
  std::shared_ptr<CollectiveWork> work_;
};

// All-reduces buckets by a communicator.
class CommunicatorTransport : public GradientTransport {
 public:
  explicit CommunicatorTransport(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  bool packs() const override { return communicator_->packs(); }
  Bucket make_bucket(std::span<const std::int64_t> counts, DType dtype) override {
    return Bucket(*communicator_, counts, dtype);
  }
  std::shared_ptr<CollectiveWork> start(const FullBucket& bucket) override;
  void progress() override { communicator_->progress(); }
  void broadcast_order(std::span<std::int64_t> order) override;
  std::function<std::vector<std::uint8_t>()> exchange_presence(
      std::span<const std::uint8_t> mine) override;

  // Whether `rank` had gradient `index` in the last finished step.
  bool was_present(int rank, std::size_t index) const { return present_->of(rank)[index] != 0; }

 protected:
  // Calls `call` while the communicator's collectives are labelled with the bucket, for messages
  // and profiles.
  template <class F>
  auto labelled(std::size_t bucket, std::int64_t step, const F& call) {
    struct LabelScope {
      Communicator& communicator;
      ~LabelScope() { communicator.label({}, -1); }
    } label{*communicator_};
    communicator_->label("bucket " + std::to_string(bucket), step);
    return call();
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  std::optional<ByteExchange> present_;  // created by the first step
};

}  // namespace tandem
