// The one gradient reducer: buckets of gradients that are all-reduced while backward still runs.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sync/gradient_transport.h"
#include "tandem/variable.h"

namespace tandem {

struct GradientInfo {
  std::int64_t count = 0;  // elements
  DType dtype = float32;
};
std::vector<GradientInfo> gradient_infos(const std::vector<Variable>& variables);

// A bucket is closed when its size reaches the limit, so it may exceed it (as in PyTorch). The
// first is small, so that the first collective starts early.
struct BucketSizes {
  std::size_t first = std::size_t{1} << 20;    // bytes
  std::size_t others = std::size_t{25} << 20;  // bytes
};

struct ReducerOptions {
  BucketSizes sizes{};
  // From the second step on the buckets follow the order in which rank 0's gradients were ready in
  // the first one.
  bool rebuild = false;
};

// Which gradients share a bucket, in the order of the launches: they are taken in `order`, or last
// to first, as backward makes them; one dtype a bucket.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<GradientInfo>& gradients,
                                                     const BucketSizes& sizes,
                                                     std::span<const std::size_t> order = {});

// The same buckets, filled by gradients that come one by one.
class BucketFill {
 public:
  struct Place {
    std::size_t bucket = 0;
    std::size_t array = 0;  // of the bucket
  };

  BucketFill(const std::vector<GradientInfo>& gradients, const BucketSizes& sizes,
             std::span<const std::size_t> order = {});

  std::size_t size() const { return buckets_.size(); }
  const std::vector<std::size_t>& gradients(std::size_t bucket) const { return buckets_[bucket]; }
  Place place(std::size_t index) const { return places_[index]; }
  // Gradient `index` has come.
  void add(std::size_t index) { --missing_[places_[index].bucket]; }
  bool full(std::size_t bucket) const { return missing_[bucket] == 0; }
  // No gradient has come.
  void reset();

 private:
  std::vector<std::vector<std::size_t>> buckets_;
  std::vector<std::size_t> missing_;
  std::vector<Place> places_;
};

// One rank's side. Every rank makes it with the same gradients. Belongs to one thread at a time.
//
// Where the transport packs, gradients are copied into buckets of its memory, and the results
// are there (result()). Where it does not, they are combined where they are.
class Reducer {
 public:
  Reducer(GradientTransport& transport, std::vector<GradientInfo> gradients,
          ReducerOptions options = {});

  bool packs() const { return packs_; }
  // How the buckets of this step are combined, unless the transport has a way of its own; kSum
  // unless told. Every rank says the same, before any gradient.
  void combine_by(ReduceOp op) { op_ = op; }
  // Gradient `index` is final in `data`. Packed: it is copied, times `scale`, where it is not in
  // its place (result()) already, and `data` is the caller's again. Else the memory belongs to the
  // reducer until finish(), and `scale` is 1. A bucket whose gradients are all there sets out, in
  // the order of the buckets.
  void ready(std::size_t index, void* data, double scale = 1.0);
  // This rank adds nothing to gradient `index`. REQUIRES: packs().
  void zeros(std::size_t index);
  const std::vector<bool>& settled() const { return settled_; }
  // Waits for every bucket; the buffers then hold the sums. REQUIRES: every gradient is ready or
  // zeros. The reducer is fresh for the next step afterwards, also when this throws.
  void finish();
  void reset();

  // Where the last step's gradient `index` is, until the next step's first one comes, and what
  // keeps that memory. REQUIRES: packs().
  Buffer result(std::size_t index) const;
  const std::shared_ptr<void>& memory(std::size_t index) const;
  // What has been read of the bucket of `index` must stay as it is: the next step goes into other
  // memory. REQUIRES: packs(), and nothing of the bucket is settled.
  void renew(std::size_t index);
  // The gradients that share a bucket with `index`.
  const std::vector<std::size_t>& bucket_members(std::size_t index) const {
    return buckets_.gradients(buckets_.place(index).bucket);
  }
  // Grows when the buckets are made anew, which is when a step's first gradient comes, or here.
  std::size_t generation() const { return generation_; }
  void prepare();

 private:
  void make_memory();
  void settle(std::size_t index);
  void launch();
  void start(std::size_t bucket);
  void agree_on_order();

  GradientTransport& transport_;
  bool packs_;
  ReducerOptions options_;
  std::vector<GradientInfo> gradients_;
  BucketFill buckets_;
  std::vector<Bucket> memory_;  // packed: of each bucket
  std::vector<void*> data_;     // not packed; null: not there yet
  std::vector<bool> settled_;
  std::vector<bool> zeros_;               // of the step: this rank adds nothing
  std::vector<std::size_t> ready_order_;  // of the first step, where the buckets are to follow it
  bool order_known_ = false;              // and every rank's is rank 0's
  std::size_t generation_ = 0;
  std::int64_t step_ = 0;
  ReduceOp op_ = ReduceOp::kSum;
  std::size_t next_ = 0;                          // the first bucket that has not set out
  std::vector<std::shared_ptr<Work>> under_way_;  // a bucket each
};

}  // namespace tandem
