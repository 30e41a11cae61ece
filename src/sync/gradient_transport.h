// How the buckets of an eager step travel between the ranks: what a strategy or an API chooses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/bucket.h"
#include "comm/communicator.h"
#include "sync/rank_words.h"

namespace tandem {

// A bucket whose gradients are all there.
struct FullBucket {
  std::size_t index = 0;
  bool is_last = false;
  std::int64_t step = 0;
  std::span<const std::size_t> gradients;  // which ones it holds, array by array
  const std::vector<bool>& zeros;          // by gradient: this rank adds nothing to it
  Bucket* memory = nullptr;                // null: not packed
  std::span<const Buffer> parts;  // what is combined, in place: the bucket or the gradients
  ReduceOp op = ReduceOp::kSum;
};

// One rank's, for one list of gradients. Every rank's is called for the same buckets in the same
// order. Belongs to one thread at a time.
class GradientTransport {
 public:
  virtual ~GradientTransport() = default;
  // Whether gradients are copied into buckets and combined there, or are combined where they are.
  virtual bool packs() const = 0;
  virtual Bucket make_bucket(std::span<const std::int64_t> counts, DType dtype) = 0;
  // Starts to combine, without waiting. The memory belongs to the work until its wait() returns;
  // the reducer waits for the buckets in the order of the starts, once all have started.
  virtual std::shared_ptr<Work> start(const FullBucket& bucket) = 0;
  // Advances what is under way, without waiting.
  virtual void progress() {}
  // Replaces the order in which this rank's gradients were ready by rank 0's, where the buckets of
  // all ranks must have one order.
  virtual void share_order(std::span<std::int64_t> order) { static_cast<void>(order); }

  // After the last bucket of a step has started: tells the ranks which gradients this one had.
  virtual void tell_present(std::span<const std::uint8_t> mine) = 0;
  // Once every bucket has been waited for: which gradients some rank had.
  virtual std::vector<std::uint8_t> wait_present() = 0;
};

// All-reduces by a communicator; the ranks exchange which gradients they had.
class CommunicatorTransport : public GradientTransport {
 public:
  explicit CommunicatorTransport(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}

  bool packs() const override { return communicator_->packs(); }
  Bucket make_bucket(std::span<const std::int64_t> counts, DType dtype) override {
    return Bucket(*communicator_, counts, dtype);
  }
  std::shared_ptr<Work> start(const FullBucket& bucket) override;
  void progress() override { communicator_->progress(); }
  void share_order(std::span<std::int64_t> order) override;
  void tell_present(std::span<const std::uint8_t> mine) override;
  std::vector<std::uint8_t> wait_present() override;

  // Whether a rank had gradient `index` in the step that has finished.
  bool was_present(int rank, std::size_t index) const { return present_->of(rank)[index] != 0; }

 protected:
  // Calls the collectives of a bucket under its label.
  template <class F>
  auto labelled(std::size_t bucket, std::int64_t step, const F& call) {
    struct Label {
      Communicator& communicator;
      ~Label() { communicator.label({}, -1); }
    } label{*communicator_};
    communicator_->label("bucket " + std::to_string(bucket), step);
    return call();
  }

 private:
  std::shared_ptr<Communicator> communicator_;
  std::optional<RankWords> present_;  // from the first step on
};

}  // namespace tandem
