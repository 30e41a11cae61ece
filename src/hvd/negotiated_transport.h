// Transports gradients as operations of a coordinator: one per gradient, matched by name.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "hvd/process_set_coordinator.h"
#include "sync/gradient_transport.h"
#include "sync/traced_sync.h"
#include "tandem/variable.h"

namespace tandem::hvd {

// The requests for the gradients of a list of variables: if this rank has a gradient, and if it
// has none.
struct GradientRequests {
  std::vector<RequestRef> present, absent;
};

// One block of a coordinator's memory for the buckets of a list of gradients. Adjacent gradients
// that are ready together are reduced in place.
class BucketMemory {
 public:
  // `bytes`: of all buckets.
  BucketMemory(std::shared_ptr<ProcessSetCoordinator> coordinator, std::size_t bytes)
      : coordinator_(std::move(coordinator)), all_(bytes) {}
  // Memory for the next bucket.
  std::shared_ptr<void> allocate(std::size_t bytes);

 private:
  std::shared_ptr<ProcessSetCoordinator> coordinator_;
  std::size_t all_, used_ = 0;
  std::shared_ptr<void> memory_;  // shared with the buckets
};

// The device on which gradients of `device` are reduced: `device` itself if the host can access
// its memory, else the host.
DeviceImpl& combining_device(DeviceImpl& device);

// For eager steps.
class NegotiatedTransport final : public GradientTransport {
 public:
  // `device`: of the buckets.
  NegotiatedTransport(std::shared_ptr<ProcessSetCoordinator> coordinator,
                      const GradientRequests& requests, BucketMemory memory, DeviceImpl& device);

  bool packs() const override { return true; }
  Bucket make_bucket(std::span<const std::int64_t> counts, DType dtype) override;
  std::shared_ptr<CollectiveWork> start(const FullBucket& bucket) override;
  // Sends nothing: each request says whether there is a gradient.
  std::function<std::vector<std::uint8_t>()> exchange_presence(
      std::span<const std::uint8_t>) override;

 private:
  std::shared_ptr<ProcessSetCoordinator> coordinator_;
  const GradientRequests& requests_;
  BucketMemory memory_;
  DeviceImpl& device_;
  std::vector<OperationRef> operations_;  // of the present step, by gradient
};

// For traced steps: a node per bucket submits the operations of an eager step when the program
// runs. So some ranks may trace while others run eagerly.
ReduceTraced negotiated_reduction(std::shared_ptr<ProcessSetCoordinator> coordinator,
                                  const GradientRequests& requests, BucketMemory memory,
                                  const std::vector<Variable>& variables);

}  // namespace tandem::hvd
