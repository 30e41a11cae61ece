// The gradient reducer of all eager strategies: it groups gradients into buckets and launches the
// reduction of each bucket while the backward pass still runs (as PyTorch's DDP does).
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

// A bucket is closed when its size reaches the limit, so its last gradient may exceed the limit (as
// in PyTorch). The first bucket is small, so that the first collective starts early.
struct BucketSizes {
  std::size_t first = std::size_t{1} << 20;
  std::size_t others = std::size_t{25} << 20;
  bool in_elements = false;  // the sizes are numbers of elements instead of bytes
};

struct ReducerOptions {
  BucketSizes sizes{};
  // From the second step on, assigns buckets in the order in which rank 0's gradients became ready
  // in the first step.
  bool rebuild = false;
};

// Assigns gradients to buckets and returns the indices per bucket, in launch order. Gradients are
// taken in `order`; if it is empty, last to first, which is about the order of a backward pass. A
// bucket holds gradients of one dtype.
std::vector<std::vector<std::size_t>> assign_buckets(const std::vector<GradientInfo>& gradients,
                                                     const BucketSizes& sizes,
                                                     std::span<const std::size_t> order = {});

// The buckets of assign_buckets(), and how many gradients each still waits for in this step.
class BucketFill {
 public:
  struct Position {
    std::size_t bucket = 0;
    std::size_t array = 0;  // index within the bucket
  };

  BucketFill(const std::vector<GradientInfo>& gradients, const BucketSizes& sizes,
             std::span<const std::size_t> order = {});

  std::size_t size() const { return buckets_.size(); }
  const std::vector<std::size_t>& gradients(std::size_t bucket) const { return buckets_[bucket]; }
  Position position(std::size_t index) const { return positions_[index]; }
  // Counts gradient `index` as ready.
  void add(std::size_t index) { --missing_[positions_[index].bucket]; }
  bool full(std::size_t bucket) const { return missing_[bucket] == 0; }
  // Begins a step: no gradient is ready.
  void reset();

 private:
  std::vector<std::vector<std::size_t>> buckets_;
  std::vector<std::size_t> missing_;  // per bucket: gradients that are not ready
  std::vector<Position> positions_;   // per gradient
};

// One rank's reducer. Every rank creates it with the same gradients. Not thread-safe.
//
// If the transport packs, gradients are copied into buckets that it allocates, and the results are
// there (result()). Otherwise each gradient is reduced in its own memory.
//
// Within a step, each gradient and each bucket changes its state like this:
//
//   gradient:  missing --ready() or zeros()--> contributed
//   bucket:    filling --last gradient contributed--> full --launch()--> in flight
//   finish():  waits for all buckets; then every gradient is missing and every bucket filling again
//
// A full bucket waits until all earlier buckets are launched, so that every rank launches its
// collectives in the same order.
class Reducer {
 public:
  Reducer(GradientTransport& transport, std::vector<GradientInfo> gradients,
          ReducerOptions options = {});

  bool packs() const { return packs_; }
  // Sets the operation that reduces this step's buckets; kSum by default. Every rank sets the same
  // one, before the step's first gradient. A transport may ignore it.
  void set_reduce_op(ReduceOp op) { op_ = op; }
  // Contributes gradient `index`, which is final in `data`.
  // - If packs(): it is multiplied by `scale` and copied to its position in the bucket, unless it
  //   is there already (see result()). The caller may reuse `data` at once.
  // - Otherwise: the memory belongs to the reducer until finish() returns, and `scale` must be 1.
  // Launches the buckets that have become full, in the order of the buckets.
  void ready(std::size_t index, void* data, double scale = 1.0);
  // Contributes zeros to gradient `index`. REQUIRES: packs().
  void zeros(std::size_t index);
  // Per gradient: whether it is contributed in this step.
  const std::vector<bool>& contributed() const { return contributed_; }
  // Waits for every bucket; the buffers then hold the reduced gradients. Ends the step, also if it
  // throws. REQUIRES: every gradient is contributed.
  void finish();
  // Drops the contributions of the current step and begins a new one.
  void reset();

  // The memory of gradient `index` in its bucket. After finish() it holds the reduced gradient,
  // until the next step contributes to the bucket. REQUIRES: packs().
  Buffer result(std::size_t index) const;
  // The owner of that memory, which may be held longer.
  const std::shared_ptr<void>& memory(std::size_t index) const;
  // Gives the bucket of gradient `index` new memory, because a caller still reads the old one.
  // REQUIRES: packs(), and no gradient of the bucket is contributed.
  void replace_memory(std::size_t index);
  // The gradients in the bucket of gradient `index`, itself included.
  const std::vector<std::size_t>& bucket_members(std::size_t index) const {
    return buckets_.gradients(buckets_.position(index).bucket);
  }
  // Incremented when the buckets are assigned again (ReducerOptions::rebuild).
  std::size_t generation() const { return generation_; }
  // Assigns the buckets again if that is due. Also happens with the first gradient of a step.
  void prepare();

 private:
  void allocate_buckets();
  void mark_contributed(std::size_t index);
  void launch();
  void start(std::size_t bucket);
  void adopt_order_of_rank_0();

  GradientTransport& transport_;
  bool packs_;
  ReducerOptions options_;
  std::vector<GradientInfo> gradients_;
  BucketFill buckets_;
  std::vector<Bucket> memory_;     // per bucket, if packs_
  std::vector<void*> data_;        // per gradient, if not packs_; null until contributed
  std::vector<bool> contributed_;  // per gradient
  std::vector<bool> zeros_;        // per gradient: contributed as zeros
  // The order in which the first step's gradients became ready, if buckets are to be rebuilt.
  std::vector<std::size_t> ready_order_;
  bool order_known_ = false;  // ready_order_ is complete and equals rank 0's
  std::size_t generation_ = 0;
  std::int64_t step_ = 0;
  ReduceOp op_ = ReduceOp::kSum;
  std::size_t next_ = 0;                                    // the first bucket that is not launched
  std::vector<std::shared_ptr<CollectiveWork>> in_flight_;  // one per launched bucket
};

}  // namespace tandem
