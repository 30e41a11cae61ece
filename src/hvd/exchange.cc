#include "hvd/exchange.h"

#include "core/log.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "hvd/submit.h"
#include "hvd/world.h"
#include "runtime/replica_context.h"
#include "runtime/variable_impl.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"

namespace tandem::hvd {
namespace {

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

HorovodExchange::HorovodExchange(std::string name, const DistributedOptions& options)
    : name_(std::move(name)),
      options_(options),
      coordinator_(coordinator_of(options.process_set)),
      request_(request_of(options, coordinator_->size())) {
  if (options.op == kAdasum)
    check_reduction("DistributedOptimizer", kAdasum, float32, coordinator_->size());
}

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
