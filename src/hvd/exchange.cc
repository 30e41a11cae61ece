#include "hvd/exchange.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "hvd/submit.h"
#include "hvd/world.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "runtime/variable_impl.h"
#include "sync/eager_sync.h"
#include "sync/gradient_transport.h"
#include "sync/traced_sync.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"

namespace tandem::hvd {
namespace {

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
  std::shared_ptr<void> allocate(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    if (!memory_ || used_ + bytes > all_) {
      memory_ = coordinator_->allocate(std::max(bytes, all_));
      used_ = 0;
    }
    return {memory_, static_cast<std::byte*>(memory_.get()) + std::exchange(used_, used_ + bytes)};
  }

 private:
  std::shared_ptr<ProcessSetCoordinator> coordinator_;
  std::size_t all_, used_ = 0;
  std::shared_ptr<void> memory_;  // shared with the buckets
};

// The device on which gradients of `device` are reduced: `device` itself if the host can access
// its memory, else the host.
DeviceImpl& combining_device(DeviceImpl& device) {
  return device.host_accessible() ? device : DeviceManager::get().host();
}

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

// For eager steps.
class NegotiatedTransport final : public GradientTransport {
 public:
  // `device`: of the buckets.
  NegotiatedTransport(std::shared_ptr<ProcessSetCoordinator> coordinator,
                      const GradientRequests& requests, BucketMemory memory, DeviceImpl& device)
      : coordinator_(std::move(coordinator)),
        requests_(requests),
        memory_(std::move(memory)),
        device_(device),
        operations_(requests.present.size()) {}

  bool packs() const override { return true; }
  Bucket make_bucket(std::span<const std::int64_t> counts, DType dtype) override {
    return Bucket(
        device_, [this](std::size_t bytes) { return memory_.allocate(bytes); }, counts, dtype);
  }
  std::shared_ptr<CollectiveWork> start(const FullBucket& bucket) override {
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
  // Sends nothing: each request says whether there is a gradient.
  std::function<std::vector<std::uint8_t>()> exchange_presence(
      std::span<const std::uint8_t>) override {
    return [this] {
      std::vector<std::uint8_t> present;
      for (const OperationRef& operation : operations_)
        present.push_back(!operation->absent_everywhere);
      return present;
    };
  }

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

// The request for gradients under these options. Throws InvalidArgumentError for options that
// contradict each other.
Request request_of(const DistributedOptions& options, int ranks) {
  if (options.op != kAverage && options.op != kSum && options.op != kAdasum)
    fail<InvalidArgumentError>(
        "[DistributedOptimizer] expected op kAverage, kSum or kAdasum, got {}",
        name_of(options.op));
  if (options.backward_passes_per_step < 1)
    fail<InvalidArgumentError>(
        "[DistributedOptimizer] expected backward_passes_per_step of at least 1, got {}",
        options.backward_passes_per_step);
  const double factor = options.gradient_predivide_factor;
  if (!(factor > 0.0))
    fail<InvalidArgumentError>(
        "[DistributedOptimizer] expected a positive gradient_predivide_factor, got {}", factor);
  Request request{.kind = RequestKind::kAllreduce, .op = options.op};
  if (factor == 1.0) return request;
  if (options.op != kAverage)
    throw InvalidArgumentError(
        "[DistributedOptimizer] gradient_predivide_factor not supported with op != Average");
  request.op = kSum;
  request.prescale = 1.0 / factor;
  request.postscale = factor / ranks;
  return request;
}

}  // namespace

// The state of one list of variables.
struct HorovodExchange::VariableSync {
  std::vector<RefPtr<VariableImpl>> variables;
  GradientRequests requests;
  std::size_t bytes = 0;            // of all buckets
  std::optional<EagerSync> sync;    // made by the first eager pass
  std::vector<Tensor> accumulated;  // gradients of the passes before
  int passes = 0;
};

HorovodExchange::HorovodExchange(std::string name, const DistributedOptions& options)
    : name_(std::move(name)),
      options_(options),
      coordinator_(coordinator_of(options.process_set)),
      request_(request_of(options, coordinator_->size())) {
  if (options.op == kAdasum)
    check_reduction("DistributedOptimizer", kAdasum, float32, coordinator_->size());
}

HorovodExchange::~HorovodExchange() = default;

HorovodExchange::VariableSync& HorovodExchange::sync_for(const std::vector<Variable>& variables) {
  for (const auto& plan : syncs_)
    if (same_variables(plan->variables, variables)) return *plan;
  auto plan = std::make_unique<VariableSync>();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const Variable& variable = variables[i];
    plan->variables.emplace_back(&variable.impl());
    Request request = request_;
    request.on_gpu = variable.impl().device().type() == DeviceType::kGpu;
    request.name = fmt::format("{}.{}.{}.{}", name_, syncs_.size(), i, variable.name());
    request.dtypes = {wire_dtype(variable.dtype(), options_.compression)};
    request.shapes = {variable.shape().words()};
    plan->requests.present.push_back(std::make_shared<const Request>(request));
    request.absent = true;
    plan->requests.absent.push_back(std::make_shared<const Request>(request));
    plan->bytes += Bucket::array_bytes(variable.shape().num_elements(), variable.dtype());
  }
  plan->accumulated.resize(variables.size());
  return *syncs_.emplace_back(std::move(plan));
}

// Keeps gradients on this rank: accumulates them over passes, or gives them to the local
// optimizer step of Adasum.
class HorovodExchange::LocalPass final : public GradientSync {
 public:
  // `then`: reduces the accumulated gradients in the last pass; null for local gradients.
  LocalPass(VariableSync& plan, const DistributedOptions& options,
            std::unique_ptr<GradientSync> then)
      : plan_(plan), options_(options), then_(std::move(then)) {
    ++plan_.passes;
  }

  void ready(std::size_t index, Tensor gradient) override {
    if (!gradient.defined()) return;
    check_gradient(gradient, *plan_.variables[index]);
    Tensor& sum = plan_.accumulated[index];
    sum = sum.defined() ? sum + gradient : std::move(gradient);
    if (last() && then_) {
      then_->ready(index, divided(std::move(sum)));
      sum = {};
    }
  }

  std::optional<std::vector<Tensor>> finish() override {
    if (!last()) return std::nullopt;
    plan_.passes = 0;
    std::vector<Tensor> sums(plan_.accumulated.size());
    std::swap(sums, plan_.accumulated);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (!sums[i].defined()) continue;
      sums[i] = divided(std::move(sums[i]));
      if (then_) then_->ready(i, std::exchange(sums[i], {}));
    }
    return then_ ? then_->finish() : std::optional(std::move(sums));
  }

 private:
  bool last() const { return plan_.passes == options_.backward_passes_per_step; }
  Tensor divided(Tensor sum) const {
    return options_.average_aggregated_gradients && options_.backward_passes_per_step > 1
               ? sum / static_cast<double>(options_.backward_passes_per_step)
               : sum;
  }

  VariableSync& plan_;
  const DistributedOptions& options_;
  std::unique_ptr<GradientSync> then_;
};

std::unique_ptr<GradientSync> HorovodExchange::start_reduction(
    const std::vector<Variable>& variables) {
  if (const ReplicaContext* context = ReplicaContext::current();
      context && context->num_replicas() > 1)
    throw FailedPreconditionError(
        "[DistributedOptimizer] a process has one replica; this is one of several of a strategy");
  VariableSync& plan = sync_for(variables);
  BucketMemory memory(coordinator_, plan.bytes);
  if (context.graph)
    return std::make_unique<TracedSync>(
        variables, DeviceManager::get().host(),
        negotiated_reduction(coordinator_, plan.requests, std::move(memory), variables));
  if (!plan.sync) {
    DeviceImpl& device = combining_device(variables.empty() ? DeviceManager::get().host()
                                                            : variables.front().impl().device());
    auto transport = std::make_shared<NegotiatedTransport>(coordinator_, plan.requests,
                                                           std::move(memory), device);
    plan.sync.emplace(std::move(transport), device, variables);
  }
  return plan.sync->start(false);
}

void HorovodExchange::require_gradients(const char* what) const {
  if (options_.op == kAdasum)
    fail<UnimplementedError>(
        "[DistributedOptimizer] {} is not supported with op kAdasum, which reduces the changes of "
        "the variables and not the gradients",
        what);
}

void HorovodExchange::synchronize(const std::vector<Variable>& variables) {
  require_gradients("synchronize()");
  const NoGradScope no_grad;
  const int passes = options_.average_aggregated_gradients ? options_.backward_passes_per_step : 1;
  const auto pass = start_reduction(variables);
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const Tensor gradient = variables[i].grad();
    pass->ready(
        i, gradient.defined() && passes > 1 ? gradient / static_cast<double>(passes) : gradient);
  }
  const std::vector<Tensor> reduced = *pass->finish();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    Variable variable = variables[i];
    if (reduced[i].defined()) variable.set_grad(reduced[i]);
  }
  synchronized_ = true;
}

std::unique_ptr<GradientSync> HorovodExchange::start(const std::vector<Variable>& variables) {
  const bool twice = std::exchange(synchronized_, false);
  if (skips_ > 0) return nullptr;
  if (twice)
    logging::warn(
        "[DistributedOptimizer] step() called outside of skip_synchronize() after synchronize(): "
        "the gradients are reduced twice. Write auto skip = optimizer.skip_synchronize() before "
        "step().");
  const bool adds_up = options_.backward_passes_per_step > 1;
  if (!adds_up && options_.op != kAdasum) return start_reduction(variables);
  if (context.graph)
    throw UnimplementedError(
        "[DistributedOptimizer] backward_passes_per_step above 1 and kAdasum cannot be traced; "
        "take the step "
        "outside td::function (fit: compile({..., .run_eagerly = true}))");
  VariableSync& plan = sync_for(variables);
  const bool combines =
      options_.op != kAdasum && plan.passes + 1 == options_.backward_passes_per_step;
  return std::make_unique<LocalPass>(plan, options_,
                                     combines ? start_reduction(variables) : nullptr);
}

// For Adasum: reduces the changes that each rank's own optimizer step made to the variables.
void HorovodExchange::apply(const std::vector<Variable>& variables,
                            const std::function<void()>& update) {
  if (options_.op != kAdasum) {
    update();
    return;
  }
  const NoGradScope no_grad;
  std::vector<Tensor> before;
  for (const Variable& variable : variables) before.push_back(variable.value().detach());
  update();
  const auto pass = start_reduction(variables);
  for (std::size_t i = 0; i < variables.size(); ++i)
    pass->ready(i, variables[i].value().detach() - before[i]);
  const std::vector<Tensor> moved = *pass->finish();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    Variable variable = variables[i];
    variable.assign(before[i] + moved[i]);
  }
}

}  // namespace tandem::hvd
