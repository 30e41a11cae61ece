// Gradient synchronisation of steps that run operation by operation: groups gradients into buckets
// and launches the reduction of each bucket while the backward pass still runs.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sync/gradient_buckets.h"
#include "sync/gradient_sync.h"
#include "sync/gradient_transport.h"
#include "tandem/variable.h"

namespace tandem {

struct ReducerOptions {
  BucketSizes sizes{};
  // From the second step on, assigns buckets in the order in which rank 0's gradients became ready
  // in the first step.
  bool rebuild = false;
};

// One rank's part in reducing the gradients of one list of variables. Every rank creates it with
// the same variables and takes the same steps. Not thread-safe.
//
// If the transport packs, gradients are copied into buckets that it allocates, and the results are
// views of these. Otherwise each gradient is reduced in its own memory.
//
// Within a step, each gradient and each bucket changes its state like this:
//
//   gradient:  missing --ready() or zeros()--> contributed
//   bucket:    filling --last gradient contributed--> full --launch()--> in flight
//   finish():  contributes zeros for the missing gradients and waits for all buckets
//   begin():   every gradient is missing and every bucket filling again
//
// A full bucket waits until all earlier buckets are launched, so that every rank launches its
// collectives in the same order.
class EagerSync {
 public:
  // Gradients are reduced on `device`. If the transport packs, it must be the transport's device.
  EagerSync(std::shared_ptr<GradientTransport> transport, DeviceImpl& device,
            const std::vector<Variable>& variables, ReducerOptions options = {});

  const std::vector<RefPtr<VariableImpl>>& variables() const { return variables_; }

  // --- a step ---
  // Drops the contributions of a step that did not finish. If a caller still holds a result of the
  // last step, its bucket gets new memory, so that the held tensor does not change.
  void begin();
  // Sets the operation that reduces this step's buckets; kSum by default. Every rank sets the same
  // one, before the step's first gradient. A transport may ignore it.
  void set_reduce_op(ReduceOp op) { op_ = op; }
  // The view of the bucket into which gradient `index` is best computed, to save a copy. Undefined
  // if any memory will do, or another tensor shares the view.
  Tensor gradient_buffer(std::size_t index);
  // Whether ready() or zeros() has been called for gradient `index` in this step.
  bool contributed(std::size_t index) const { return contributed_[index]; }
  // Gradient `index` is final; it is multiplied by `weight` before it is reduced. A tensor that
  // nothing else refers to may be reduced in place. Launches the buckets that have become full.
  void ready(std::size_t index, Tensor gradient, double weight = 1.0);
  void zeros(std::size_t index);
  // Contributes zeros for the remaining gradients, waits for all buckets, and returns the reduced
  // gradients on the devices of the rank's variables. A gradient that no rank had is undefined.
  // `present[i]` is nonzero if this rank had gradient i.
  std::vector<Tensor> finish(const std::vector<std::uint8_t>& present);

  // --- the same, as the GradientSync of one backward pass ---
  // If `inactive`, the rank runs the pass on another rank's examples and contributes zeros.
  std::unique_ptr<GradientSync> start(bool inactive, ReduceOp op = ReduceOp::kSum);

 private:
  void allocate_buckets();
  void mark_contributed(std::size_t index);
  void start(std::size_t bucket);
  void wait_for_buckets();
  const Tensor& view(std::size_t index);

  std::shared_ptr<GradientTransport> transport_;
  DeviceImpl& device_;
  const bool packs_;
  const ReducerOptions options_;
  std::vector<RefPtr<VariableImpl>> variables_;
  std::vector<GradientInfo> gradients_;
  BucketFill buckets_;
  std::vector<Bucket> memory_;  // per bucket, if packs_
  // Per gradient. If packs_: its view, made on demand, undefined after the bucket's memory is
  // replaced. Otherwise: this step's gradient.
  std::vector<Tensor> tensors_;
  std::vector<bool> contributed_;  // per gradient
  std::vector<bool> zeros_;        // per gradient: contributed as zeros
  // The order in which the first step's gradients became ready, if buckets are to be rebuilt.
  std::vector<std::size_t> ready_order_;
  bool order_known_ = false;  // ready_order_ is complete and equals rank 0's
  std::int64_t step_ = 0;
  ReduceOp op_ = ReduceOp::kSum;
  std::size_t next_ = 0;                                    // the first bucket that is not launched
  std::vector<std::shared_ptr<CollectiveWork>> in_flight_;  // one per launched bucket
};

// A tensor over `buffer`, which lies in `memory`. The tensor keeps the memory alive.
Tensor view_of(DeviceImpl& device, const std::shared_ptr<void>& memory, const Buffer& buffer,
               const Shape& shape);

}  // namespace tandem
