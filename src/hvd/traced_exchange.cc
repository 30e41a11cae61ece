// Gradients of a traced step: collectives of its program, made of the operations that an eager step
// would submit, so that some ranks may trace where others do not.
#include "core/status.h"
#include "device/device_manager.h"
#include "hvd/exchange.h"
#include "runtime/variable_impl.h"
#include "sync/external_group.h"
#include "sync/traced_sync.h"
#include "tensor/tensor_impl.h"

namespace tandem::hvd {
namespace {

Device& device_of(const Variable& variable) { return variable.impl().device(); }

// What the buckets of a pass lie in, one behind the other: they may travel as one.
class PassMemory {
 public:
  explicit PassMemory(std::shared_ptr<Lane> lane) : lane_(std::move(lane)) {}

  // Where a bucket of so many bytes begins. REQUIRES: nobody has asked for data().
  std::size_t add(std::size_t bytes) {
    TANDEM_ASSERT(!memory_);
    return std::exchange(bytes_, bytes_ + bytes);
  }
  const std::shared_ptr<void>& data() {
    if (!memory_ && bytes_ > 0) memory_ = lane_->allocate(bytes_);
    return memory_;
  }

 private:
  std::shared_ptr<Lane> lane_;
  std::size_t bytes_ = 0;
  std::shared_ptr<void> memory_;
};

// The operations of one bucket, under way. Memory that the host does not reach passes through some
// that it does.
class BucketWork final : public Work {
 public:
  // `requests`: of each part. `bucket`: what the parts are arrays of (HostArray); null: nothing.
  BucketWork(std::shared_ptr<Lane> lane, std::span<const RequestRef> requests, Device& device,
             std::vector<Buffer> parts, const void* bucket)
      : lane_(std::move(lane)), device_(device), parts_(std::move(parts)) {
    std::vector<HostArray> arrays = stage(bucket);
    operations_.reserve(arrays.size());
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      auto operation = std::make_shared<Handle::State>();
      operation->lane = lane_;
      operation->request = requests[i];
      operation->in = operation->out = {arrays[i]};
      lane_->submit(operation);
      operations_.push_back(std::move(operation));
    }
  }
  // The memory is the program's, which may go with it. Of a lane that was abandoned, operations are
  // done while another thread may yet lead it.
  ~BucketWork() override {
    for (const OperationRef& operation : operations_)
      if (!operation->done.load(std::memory_order_acquire) || (operation->error && lane_->failed()))
        lane_->withdraw();
  }

  void wait() override {
    for (const OperationRef& operation : operations_) lane_->wait(*operation);
    finish();
  }
  bool test() override {
    for (const OperationRef& operation : operations_)
      if (!operation->done.load(std::memory_order_acquire)) return false;
    finish();
    return true;
  }

 private:
  std::vector<HostArray> stage(const void* bucket) {
    std::vector<HostArray> arrays;
    if (device_.host_accessible()) {
      for (const Buffer& part : parts_) arrays.push_back({part.data, part.dtype, bucket});
      return arrays;
    }
    std::size_t bytes = 0;
    for (const Buffer& part : parts_) bytes += part.bytes();
    staging_.resize(bytes);
    std::byte* next = staging_.data();
    for (const Buffer& part : parts_) {
      arrays.push_back({next, part.dtype});
      if (part.count > 0) device_to_host(next, device_, part.data, part.bytes());
      next += part.bytes();
    }
    device_.stream().synchronize();
    return arrays;
  }

  void finish() {
    for (const OperationRef& operation : operations_)
      if (operation->error) std::rethrow_exception(operation->error);
    if (std::exchange(finished_, true) || device_.host_accessible()) return;
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (parts_[i].count > 0)
        host_to_device(device_, parts_[i].data, operations_[i]->out[0].data, parts_[i].bytes());
  }

  std::shared_ptr<Lane> lane_;
  Device& device_;
  std::vector<Buffer> parts_;
  std::vector<OperationRef> operations_;
  std::vector<std::byte> staging_;
  bool finished_ = false;
};

// What the collective of one bucket calls: an operation for each array. Of one thread.
class BucketCommunicator final : public Communicator {
 public:
  // `dtype`: the gradients'.
  BucketCommunicator(std::shared_ptr<Lane> lane, std::vector<RequestRef> requests, Device& device,
                     DType dtype, std::shared_ptr<PassMemory> memory)
      : lane_(std::move(lane)),
        requests_(std::move(requests)),
        device_(device),
        memory_(std::move(memory)) {
    for (const RequestRef& request : requests_)
      bytes_ += Bucket::array_bytes(request->count(0), dtype);
    if (packs()) offset_ = memory_->add(bytes_);
  }

  int rank() const override { return lane_->rank(); }
  int size() const override { return lane_->size(); }
  Device& device() const override { return device_; }
  void progress() override {}
  void label(std::string_view, std::int64_t) override {}
  std::shared_ptr<Work> all_reduce(std::span<const Buffer> parts, ReduceOp) override {
    if (!packs())
      return std::make_shared<BucketWork>(lane_, requests_, device_,
                                          std::vector(parts.begin(), parts.end()), nullptr);
    std::vector<Buffer> arrays;
    auto* at = static_cast<std::byte*>(parts.front().data);
    for (const RequestRef& request : requests_) {
      arrays.push_back({at, request->count(0), parts.front().dtype});
      at += Bucket::array_bytes(arrays.back().count, arrays.back().dtype);
    }
    return std::make_shared<BucketWork>(lane_, requests_, device_, std::move(arrays),
                                        memory_->data().get());
  }

  std::shared_ptr<Work> reduce(std::span<const Buffer>, ReduceOp, int) override { refuse(); }
  std::shared_ptr<Work> broadcast(std::span<const Buffer>, int) override { refuse(); }
  std::shared_ptr<Work> all_gather(const Buffer&, std::span<const Buffer>) override { refuse(); }
  std::shared_ptr<Work> reduce_scatter(std::span<const Buffer>, const Buffer&, ReduceOp) override {
    refuse();
  }
  std::shared_ptr<Work> all_to_all(std::span<const Buffer>, std::span<const Buffer>) override {
    refuse();
  }
  std::shared_ptr<Work> send(const Buffer&, int) override { refuse(); }
  std::shared_ptr<Work> recv(const Buffer&, int) override { refuse(); }
  std::shared_ptr<Work> barrier() override { refuse(); }
  void exchange(const void*, std::size_t, void*) override { refuse(); }
  std::shared_ptr<Work> start_exchange(const void*, std::size_t, void*) override { refuse(); }
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    TANDEM_ASSERT(bytes == bytes_);
    if (bytes == 0) return nullptr;
    const std::shared_ptr<void>& all = memory_->data();
    return {all, static_cast<std::byte*>(all.get()) + offset_};
  }
  bool packs() const override { return device_.host_accessible(); }
  void abort(GroupFailure, const std::string& text) noexcept override {
    lane_->abandon(std::make_exception_ptr(AbortedError(text)));
  }
  std::unique_ptr<Communicator> split(std::span<const int>) override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw InternalError("[hvd] a bucket of a traced step does all-reduces alone");
  }

  std::shared_ptr<Lane> lane_;
  std::vector<RequestRef> requests_;
  Device& device_;
  std::shared_ptr<PassMemory> memory_;
  std::size_t bytes_ = 0, offset_ = 0;
};

}  // namespace

std::unique_ptr<GradientSync> start_traced_pass(std::shared_ptr<Lane> lane,
                                                std::span<const RequestRef> requests,
                                                const std::vector<Variable>& variables) {
  const auto memory = std::make_shared<PassMemory>(lane);
  ReduceTraced reduce =
      [lane, memory, variables,
       requests = std::vector(requests.begin(), requests.end())](const TracedBucket& bucket) {
        std::vector<RequestRef> parts;
        for (std::size_t index : bucket.variables) parts.push_back(requests[index]);
        Device& device = device_of(variables[bucket.variables.front()]);
        auto communicator = std::make_shared<BucketCommunicator>(
            lane, std::move(parts), device, bucket.gradients.front().dtype(), memory);
        const TracedRank rank(
            {std::make_shared<ExternalGroup>(std::move(communicator)), lane->rank()}, device);
        return rank.reduce(ReduceOp::kSum)(bucket);
      };
  // A missing gradient is not replaced by zeros, so that no device is needed for them.
  return std::make_unique<TracedSync>(variables, DeviceManager::get().host(), std::move(reduce),
                                      TracedSyncOptions{.op = "allreduce"});
}

}  // namespace tandem::hvd
