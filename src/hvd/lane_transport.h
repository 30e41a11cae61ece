// How gradients travel over a lane: an operation for each, by name, in the lane's memory.
#pragma once

#include <memory>
#include <vector>

#include "hvd/lane.h"
#include "sync/gradient_transport.h"
#include "sync/traced_sync.h"
#include "tandem/variable.h"

namespace tandem::hvd {

// What is asked for the gradient of each of some variables: where this rank has one, and where it
// has none.
struct GradientRequests {
  std::vector<RequestRef> present, absent;
};

// Memory of a lane for the buckets of some gradients, one behind the other: what is due together
// travels as it is.
class LaneMemory {
 public:
  // `bytes`: of all buckets.
  LaneMemory(std::shared_ptr<Lane> lane, std::size_t bytes) : lane_(std::move(lane)), all_(bytes) {}
  // The next bucket's.
  std::shared_ptr<void> allocate(std::size_t bytes);

 private:
  std::shared_ptr<Lane> lane_;
  std::size_t all_, used_ = 0;
  std::shared_ptr<void> memory_;  // which the buckets keep
};

// Where gradients of variables on `device` are combined: there, if the host reaches its memory;
// else on the host.
Device& combining_device(Device& device);

// The transport of eager steps.
class LaneTransport final : public GradientTransport {
 public:
  // `device`: the buckets'.
  LaneTransport(std::shared_ptr<Lane> lane, const GradientRequests& requests, LaneMemory memory,
                Device& device);

  bool packs() const override { return true; }
  Bucket make_bucket(std::span<const std::int64_t> counts, DType dtype) override;
  std::shared_ptr<Work> start(const FullBucket& bucket) override;
  // A request says itself whether there is a gradient.
  void start_presence_exchange(std::span<const std::uint8_t>) override {}
  std::vector<std::uint8_t> wait_presence_exchange() override;

 private:
  std::shared_ptr<Lane> lane_;
  const GradientRequests& requests_;
  LaneMemory memory_;
  Device& device_;
  std::vector<OperationRef> operations_;  // of the step, by gradient
};

// The same in a trace: a node for each bucket, which submits the operations of an eager step when
// the program runs. So some ranks may trace where others do not.
ReduceTraced reduce_over_lane(std::shared_ptr<Lane> lane, const GradientRequests& requests,
                              LaneMemory memory, const std::vector<Variable>& variables);

}  // namespace tandem::hvd
