#include "hvd/negotiated_transport.h"

#include <algorithm>
#include <utility>

#include "device/device_manager.h"
#include "runtime/placement.h"
#include "runtime/variable_impl.h"
#include "tandem/array.h"

namespace tandem::hvd {

std::shared_ptr<void> BucketMemory::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (!memory_ || used_ + bytes > all_) {
    memory_ = coordinator_->allocate(std::max(bytes, all_));
    used_ = 0;
  }
  return {memory_, static_cast<std::byte*>(memory_.get()) + std::exchange(used_, used_ + bytes)};
}

DeviceImpl& combining_device(DeviceImpl& device) {
  return device.host_accessible() ? device : DeviceManager::get().host();
}

namespace {

// The operations of one bucket.
class BucketWork final : public CollectiveWork {
 public:
  explicit BucketWork(std::shared_ptr<ProcessSetCoordinator> coordinator)
      : coordinator_(std::move(coordinator)) {}
  // Waits before the memory is reused. After an abort, operations count as done although another
  // thread may still run their collectives.
  ~BucketWork() override {
    for (const OperationRef& operation : operations_)
      if (!operation->done.load(std::memory_order_acquire) ||
          (operation->error && coordinator_->failed()))
        coordinator_->abort_and_wait();
  }

  // `array`: part of a bucket in `memory`.
  const OperationRef& submit(const RequestRef& request, const Buffer& array,
                             std::shared_ptr<void> memory) {
    auto operation = std::make_shared<Handle::State>();
    operation->coordinator = coordinator_;
    operation->request = request;
    operation->in = operation->out = {{array.data, array.dtype}};
    operation->bucket = std::move(memory);
    coordinator_->submit(operation);
    return operations_.emplace_back(std::move(operation));
  }
  // Makes wait() wait for these operations too, so that after an error none of them is still
  // in progress.
  void await(const std::vector<OperationRef>& others) { others_ = &others; }

  void wait() override {
    for (const OperationRef& operation : others_ ? *others_ : operations_)
      coordinator_->wait(*operation);
    throw_first();
  }
  bool test() override {
    for (const OperationRef& operation : operations_)
      if (!coordinator_->poll(*operation)) return false;
    throw_first();
    return true;
  }

 private:
  void throw_first() const {
    for (const OperationRef& operation : operations_)
      if (operation->error) std::rethrow_exception(operation->error);
  }

  std::shared_ptr<ProcessSetCoordinator> coordinator_;
  std::vector<OperationRef> operations_;
  const std::vector<OperationRef>* others_ = nullptr;
};

// The group that the node of a bucket calls when a program runs.
class TracedBucketGroup final : public CollectiveGroup {
 public:
  TracedBucketGroup(std::shared_ptr<ProcessSetCoordinator> coordinator,
                    std::vector<RequestRef> requests, DeviceImpl& device,
                    std::shared_ptr<BucketMemory> memory)
      : coordinator_(std::move(coordinator)),
        requests_(std::move(requests)),
        device_(device),
        memory_(std::move(memory)) {}

  int size() const override { return coordinator_->size(); }
  bool within_program() const override { return false; }
  bool packs(int) override { return true; }
  Bucket make_bucket(int, std::span<const std::int64_t> counts, DType dtype) override {
    const auto allocate = [this](std::size_t bytes) {
      if (!bucket_) bucket_ = memory_->allocate(bytes);
      return bucket_;
    };
    return Bucket(device_, allocate, counts, dtype);
  }
  std::shared_ptr<CollectiveWork> all_reduce(int, std::span<const Buffer> parts,
                                             ReduceOp) override {
    auto work = std::make_shared<BucketWork>(coordinator_);
    auto* at = static_cast<std::byte*>(parts.front().data);
    for (const RequestRef& request : requests_) {
      const Buffer array = {at, request->count(0), parts.front().dtype};
      work->submit(request, array, bucket_);
      at += Bucket::array_bytes(array.count, array.dtype);
    }
    return work;
  }
  void progress(int) override {}

 private:
  std::shared_ptr<ProcessSetCoordinator> coordinator_;
  std::vector<RequestRef> requests_;
  DeviceImpl& device_;
  std::shared_ptr<BucketMemory> memory_;
  std::shared_ptr<void> bucket_;  // shared by all programs that have the node
};

}  // namespace

NegotiatedTransport::NegotiatedTransport(std::shared_ptr<ProcessSetCoordinator> coordinator,
                                         const GradientRequests& requests, BucketMemory memory,
                                         DeviceImpl& device)
    : coordinator_(std::move(coordinator)),
      requests_(requests),
      memory_(std::move(memory)),
      device_(device),
      operations_(requests.present.size()) {}

Bucket NegotiatedTransport::make_bucket(std::span<const std::int64_t> counts, DType dtype) {
  return Bucket(
      device_, [this](std::size_t bytes) { return memory_.allocate(bytes); }, counts, dtype);
}

std::shared_ptr<CollectiveWork> NegotiatedTransport::start(const FullBucket& bucket) {
  auto work = std::make_shared<BucketWork>(coordinator_);
  for (std::size_t i = 0; i < bucket.gradients.size(); ++i) {
    const std::size_t index = bucket.gradients[i];
    const RequestRef& request =
        bucket.zeros[index] ? requests_.absent[index] : requests_.present[index];
    operations_[index] = work->submit(request, bucket.memory->array(i), bucket.memory->memory());
  }
  work->await(operations_);
  return work;
}

std::function<std::vector<std::uint8_t>()> NegotiatedTransport::exchange_presence(
    std::span<const std::uint8_t>) {
  return [this] {
    std::vector<std::uint8_t> present;
    for (const OperationRef& operation : operations_)
      present.push_back(!operation->absent_everywhere);
    return present;
  };
}

ReduceTraced negotiated_reduction(std::shared_ptr<ProcessSetCoordinator> coordinator,
                                  const GradientRequests& requests, BucketMemory memory,
                                  const std::vector<Variable>& variables) {
  return [coordinator = std::move(coordinator), present = requests.present,
          memory = std::make_shared<BucketMemory>(std::move(memory)),
          variables](const TracedBucket& bucket) -> std::function<std::vector<Tensor>()> {
    std::vector<RequestRef> mine;
    for (std::size_t index : bucket.variables) mine.push_back(present[index]);
    DeviceImpl& home = variables[bucket.variables.front()].impl().device();
    DeviceImpl& device = combining_device(home);
    const TracedRank rank(
        {std::make_shared<TracedBucketGroup>(coordinator, std::move(mine), device, memory),
         coordinator->rank()},
        device);
    std::vector<Tensor> reduced = rank.all_reduce(bucket.gradients, ReduceOp::kSum);
    if (&home != &device) {
      const OnDevice on(home);
      for (Tensor& gradient : reduced) gradient = identity(gradient);
    }
    return [reduced = std::move(reduced)] { return reduced; };
  };
}

}  // namespace tandem::hvd
