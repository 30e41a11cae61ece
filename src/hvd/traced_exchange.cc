// Gradients of a traced step: collectives of its program, of which each is an operation of the lane.
#include <algorithm>

#include "comm/reducer.h"
#include "core/status.h"
#include "graph/collective.h"
#include "hvd/exchange.h"
#include "hvd/submit.h"
#include "runtime/placement.h"
#include "runtime/traced_collective.h"
#include "runtime/variable_impl.h"
#include "tensor/tensor_impl.h"

namespace tandem::hvd {
namespace {

// All-reduces of one bucket, by its name. Of one thread.
class BucketCommunicator final : public Communicator {
 public:
  BucketCommunicator(std::shared_ptr<Lane> lane, Request request, Compression compression,
                     Device& device)
      : lane_(std::move(lane)),
        request_(std::move(request)),
        compression_(compression),
        device_(device) {}

  int rank() const override { return lane_->rank(); }
  int size() const override { return lane_->size(); }
  Device& device() const override { return device_; }
  void progress() override {}
  void label(std::string_view, std::int64_t) override {}

  std::shared_ptr<Work> all_reduce(std::span<const Buffer> parts, ReduceOp) override {
    auto operation = std::make_shared<Handle::State>();
    operation->lane = lane_;
    if (!asked_) {
      for (const Buffer& part : parts) {
        request_.dtypes.push_back(travelling(part.dtype, compression_));
        const std::int64_t count[] = {part.count};
        request_.shapes.emplace_back(count);
      }
      asked_ = std::make_shared<const Request>(request_);
    }
    operation->request = asked_;
    auto work = std::make_shared<BucketWork>(operation, device_, parts);
    lane_->submit(operation);
    return work;
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
  std::shared_ptr<void> allocate(std::size_t) override { refuse(); }
  std::unique_ptr<Communicator> split(std::span<const int>) override { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    throw InternalError("[hvd] a bucket of a traced step does all-reduces alone");
  }

  // Memory that the host does not reach passes through some that it does.
  class BucketWork final : public Work {
   public:
    BucketWork(OperationRef operation, Device& device, std::span<const Buffer> parts)
        : operation_(std::move(operation)), device_(device), parts_(parts.begin(), parts.end()) {
      std::size_t bytes = 0;
      for (const Buffer& part : parts) bytes += part.bytes();
      if (!device.host_accessible()) staging_.resize(bytes);
      std::byte* next = staging_.data();
      for (const Buffer& part : parts) {
        void* data = part.data;
        if (!device.host_accessible()) {
          data = next;
          next += part.bytes();
          if (part.count > 0) device_to_host(data, device, part.data, part.bytes());
        }
        operation_->in.push_back({data, part.dtype});
      }
      if (!device.host_accessible()) device.stream().synchronize();
      operation_->out = operation_->in;
    }

    // The memory is the program's, which may go with it.
    ~BucketWork() override {
      if (!operation_->done.load(std::memory_order_acquire)) operation_->lane->withdraw();
    }

    void wait() override {
      operation_->lane->wait(*operation_);
      finish();
    }
    bool test() override {
      if (!operation_->done.load(std::memory_order_acquire)) return false;
      finish();
      return true;
    }

   private:
    void finish() {
      if (operation_->error) std::rethrow_exception(operation_->error);
      if (std::exchange(finished_, true) || device_.host_accessible()) return;
      for (std::size_t i = 0; i < parts_.size(); ++i)
        if (parts_[i].count > 0)
          host_to_device(device_, parts_[i].data, operation_->out[i].data, parts_[i].bytes());
    }

    OperationRef operation_;
    Device& device_;
    std::vector<Buffer> parts_;
    std::vector<std::byte> staging_;
    bool finished_ = false;
  };

  std::shared_ptr<Lane> lane_;
  Request request_;
  Compression compression_;
  Device& device_;
  RequestRef asked_;
};

class BucketGroup final : public CollectiveGroup {
 public:
  explicit BucketGroup(std::unique_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}
  int size() const override { return communicator_->size(); }
  Communicator& communicator(int) override { return *communicator_; }
  bool within_program() const override { return false; }

 private:
  std::unique_ptr<Communicator> communicator_;
};

class TracedPass final : public optimizers::GradientExchange::Pass {
 public:
  TracedPass(std::string name, std::shared_ptr<Lane> lane, const Combination& combination,
             const std::vector<Variable>& variables)
      : name_(std::move(name)),
        lane_(std::move(lane)),
        combination_(combination),
        variables_(variables),
        gradients_(variables.size()),
        together_(variables.size()),
        bucket_of_(variables.size()) {
    std::vector<GradientInfo> infos;
    for (const Variable& variable : variables)
      infos.push_back({variable.shape().num_elements(), variable.dtype()});
    buckets_ = assign_buckets(infos, {});
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
      missing_.push_back(buckets_[bucket].size());
      for (std::size_t index : buckets_[bucket]) bucket_of_[index] = bucket;
    }
  }

  void ready(std::size_t index, Tensor gradient) override {
    if (!gradient.defined()) return;
    gradients_[index] = std::move(gradient);
    if (--missing_[bucket_of_[index]] == 0) launch(bucket_of_[index]);
  }

  std::optional<std::vector<Tensor>> finish() override {
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
      if (missing_[bucket] > 0) launch(bucket);
    return std::move(together_);
  }

 private:
  void launch(std::size_t bucket) {
    std::vector<Tensor> parts;
    std::vector<std::size_t> indices;
    for (std::size_t index : buckets_[bucket]) {
      if (!gradients_[index].defined()) continue;
      parts.push_back(std::move(gradients_[index]));
      indices.push_back(index);
    }
    if (parts.empty()) return;
    Device& device = impl_of(variables_[indices.front()].impl().local().value).device();
    Request request{.kind = Kind::kAllreduce,
                    .op = combination_.op,
                    .on_gpu = device.type() == DeviceType::kGpu,
                    .prescale = combination_.prescale,
                    .postscale = combination_.postscale,
                    .name = fmt::format("{}.{}", name_, bucket),
                    .dtypes = {},
                    .shapes = {},
                    .splits = {}};
    const auto member = std::make_shared<const CollectiveMember>(
        CollectiveMember{std::make_shared<BucketGroup>(std::make_unique<BucketCommunicator>(
                             lane_, std::move(request), combination_.compression, device)),
                         lane_->rank()});
    const std::vector<Tensor> sums = trace_collective(
        kCollectiveReduce, CollectiveReduceAttrs{ReduceOp::kSum}, parts, member, device);
    for (std::size_t i = 0; i < indices.size(); ++i) together_[indices[i]] = sums[i];
  }

  std::string name_;
  std::shared_ptr<Lane> lane_;
  Combination combination_;
  std::vector<Variable> variables_;
  std::vector<Tensor> gradients_, together_;
  std::vector<std::vector<std::size_t>> buckets_;
  std::vector<std::size_t> bucket_of_, missing_;
};

}  // namespace

std::unique_ptr<optimizers::GradientExchange::Pass> start_traced_pass(
    std::string name, std::shared_ptr<Lane> lane, const Combination& combination,
    const std::vector<Variable>& variables) {
  return std::make_unique<TracedPass>(std::move(name), std::move(lane), combination, variables);
}

}  // namespace tandem::hvd
