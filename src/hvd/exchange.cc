#include "hvd/exchange.h"

#include <algorithm>

#include "core/status.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "hvd/submit.h"
#include "hvd/world.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "runtime/variable_impl.h"
#include "sync/eager_sync.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"
#include "tensor/tensor_impl.h"

namespace tandem::hvd {

Combination combination_of(const DistributedOptions& options, int ranks) {
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
  Combination combination{.op = options.op, .compression = options.compression};
  if (factor == 1.0) return combination;
  if (options.op != kAverage)
    throw InvalidArgumentError(
        "[DistributedOptimizer] gradient_predivide_factor not supported with op != Average");
  return {.op = kSum,
          .prescale = 1.0 / factor,
          .postscale = factor / ranks,
          .compression = options.compression};
}

LaneExchange::LaneExchange(std::string name, const DistributedOptions& options)
    : name_(std::move(name)),
      options_(options),
      lane_(lane_of(options.process_set)),
      combination_(combination_of(options, lane_->size())) {
  if (options.op == kAdasum)
    check_reduction("DistributedOptimizer", kAdasum, float32, lane_->size());
}

namespace {

// Whether one bucket that the host reaches can hold the gradients and what they are combined to.
bool travel_alike(const std::vector<Variable>& variables, const Combination& combination) {
  const DType dtype = variables.empty() ? float32 : variables.front().dtype();
  return !variables.empty() && combination.postscale == 1.0 &&
         travelling(dtype, combination.compression) == dtype &&
         std::all_of(variables.begin(), variables.end(), [&](const Variable& variable) {
           return variable.dtype() == dtype && variable.impl().device().host_accessible();
         });
}

}  // namespace

LaneExchange::Plan& LaneExchange::plan_for(const std::vector<Variable>& variables) {
  for (const auto& plan : plans_)
    if (same_variables(plan->variables, variables)) return *plan;
  auto plan = std::make_unique<Plan>();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    const Variable& variable = variables[i];
    plan->variables.emplace_back(&variable.impl());
    Request request{.kind = Kind::kAllreduce,
                    .op = combination_.op,
                    .on_gpu = variable.impl().device().type() == DeviceType::kGpu,
                    .prescale = combination_.prescale,
                    .postscale = combination_.postscale,
                    .name = fmt::format("{}.{}.{}.{}", name_, plans_.size(), i, variable.name()),
                    .dtypes = {travelling(variable.dtype(), combination_.compression)},
                    .shapes = {variable.shape().dims()},
                    .splits = {}};
    plan->present.push_back(std::make_shared<const Request>(request));
    request.absent = true;
    plan->absent.push_back(std::make_shared<const Request>(request));
  }
  plan->added_up.resize(variables.size());
  plan->may_have_home = travel_alike(variables, combination_);
  return *plans_.emplace_back(std::move(plan));
}

LaneExchange::Home* LaneExchange::home_of(Plan& plan) {
  if (!plan.may_have_home) return nullptr;
  if (plan.home) {
    if (plan.home->bucket.kept()) plan.home->bucket.renew();
    return &*plan.home;
  }
  const std::size_t count = plan.variables.size();
  if (plan.order.size() < count) {  // there has been no pass that came to its end
    plan.order.clear();
    return nullptr;
  }
  std::vector<std::int64_t> counts;
  std::vector<std::size_t> place_of(count);
  for (std::size_t i = 0; i < count; ++i) {
    place_of[plan.order[i]] = i;
    counts.push_back(plan.variables[plan.order[i]]->spec().shape.num_elements());
  }
  plan.home.emplace(
      Home{lane_->make_bucket(counts, plan.variables.front()->spec().dtype), std::move(place_of)});
  return &*plan.home;
}

// Gradients set out one by one.
class LaneExchange::EagerPass final : public GradientSync {
 public:
  EagerPass(LaneExchange& exchange, Plan& plan)
      : exchange_(exchange),
        plan_(plan),
        home_(exchange.home_of(plan)),
        operations_(plan.variables.size()),
        given_(plan.variables.size(), false) {}

  Tensor place(std::size_t index) override {
    if (!home_ || operations_[index] || given_[index]) return {};
    given_[index] = true;
    const VariableImpl& variable = *plan_.variables[index];
    return view_of(device_of(index), home_->bucket.memory(),
                   home_->bucket.array(home_->place_of[index]), variable.spec().shape);
  }

  void ready(std::size_t index, Tensor gradient) override {
    if (!gradient.defined()) return;
    check_gradient("allreduce", gradient, *plan_.variables[index]);
    submit(index, plan_.present[index], &gradient);
  }

  std::optional<std::vector<Tensor>> finish() override {
    for (std::size_t i = 0; i < operations_.size(); ++i)
      if (!operations_[i]) submit(i, plan_.absent[i], nullptr);
    std::vector<Tensor> together(operations_.size());
    std::exception_ptr error;
    for (std::size_t i = 0; i < operations_.size(); ++i) {
      const OperationRef operation = std::exchange(operations_[i], nullptr);
      exchange_.lane_->wait(*operation);
      if (operation->error && !error) error = operation->error;
      if (operation->error || operation->nowhere) continue;
      together[i] = std::move(operation->results.front());
      if (Device* device = operation->devices.front())
        together[i] = copy_to_device(together[i], *device);
    }
    if (error) std::rethrow_exception(error);
    return together;
  }

 private:
  void submit(std::size_t index, const RequestRef& request, Tensor* gradient) {
    const TensorSpec& spec = plan_.variables[index]->spec();
    Device& device = device_of(index);
    auto operation = std::make_shared<Handle::State>();
    operation->lane = exchange_.lane_;
    operation->request = request;
    if (home_) {
      bring_home(index, gradient, *operation);
    } else {
      plan_.order.push_back(index);
      if (gradient) {
        operation->inputs = {on_host(*gradient)};
        operation->in = {{impl_of(operation->inputs.front()).data(), spec.dtype}};
      }
    }
    if (gradient) *gradient = {};
    Device& host = device.host_accessible() ? device : DeviceManager::get().host();
    if (request->dtypes.front() == spec.dtype && request->postscale == 1.0) {
      operation->view_on = &host;
      operation->results.resize(1);
    } else {
      operation->results = {make_tensor(host, spec.shape, spec.dtype)};
      operation->out = {{impl_of(operation->results.front()).data(), spec.dtype}};
    }
    operation->devices = {device.host_accessible() ? nullptr : &device};
    exchange_.lane_->submit(operation);
    operations_[index] = std::move(operation);
  }

  void bring_home(std::size_t index, const Tensor* gradient, Handle::State& operation) const {
    Bucket& bucket = home_->bucket;
    const std::size_t place = home_->place_of[index];
    if (gradient)
      bucket.put(place, impl_of(on_host(*gradient)).data());
    else
      bucket.put_zeros(place);
    operation.memory = bucket.memory();
    operation.in = {{bucket.array(place).data, bucket.dtype(), operation.memory.get()}};
  }

  Device& device_of(std::size_t index) const { return plan_.variables[index]->device(); }

  LaneExchange& exchange_;
  Plan& plan_;
  Home* home_;  // null: none
  std::vector<OperationRef> operations_;
  std::vector<bool> given_;  // places
};

// Gradients stay on this rank: added up over passes, or applied here alone.
class LaneExchange::LocalPass final : public GradientSync {
 public:
  // `then`: what combines them in the last of the passes; null: nothing.
  LocalPass(Plan& plan, const DistributedOptions& options, std::unique_ptr<GradientSync> then)
      : plan_(plan), options_(options), then_(std::move(then)) {
    ++plan_.passes;
  }

  void ready(std::size_t index, Tensor gradient) override {
    if (!gradient.defined()) return;
    check_gradient("allreduce", gradient, *plan_.variables[index]);
    Tensor& sum = plan_.added_up[index];
    sum = sum.defined() ? sum + gradient : std::move(gradient);
    if (last() && then_) {
      then_->ready(index, divided(std::move(sum)));
      sum = {};
    }
  }

  std::optional<std::vector<Tensor>> finish() override {
    if (!last()) return std::nullopt;
    plan_.passes = 0;
    std::vector<Tensor> sums(plan_.added_up.size());
    std::swap(sums, plan_.added_up);
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

  Plan& plan_;
  const DistributedOptions& options_;
  std::unique_ptr<GradientSync> then_;
};

std::unique_ptr<GradientSync> LaneExchange::start_combining(
    const std::vector<Variable>& variables) {
  if (const ReplicaContext* context = ReplicaContext::current();
      context && context->num_replicas() > 1)
    throw FailedPreconditionError(
        "[DistributedOptimizer] a process has one replica; this is one of several of a strategy");
  Plan& plan = plan_for(variables);
  if (building) return start_traced_pass(lane_, plan.present, variables);
  return std::make_unique<EagerPass>(*this, plan);
}

std::unique_ptr<GradientSync> LaneExchange::start(const std::vector<Variable>& variables) {
  const bool adds_up = options_.backward_passes_per_step > 1;
  if (!adds_up && options_.op != kAdasum) return start_combining(variables);
  if (building)
    throw UnimplementedError(
        "[DistributedOptimizer] backward_passes_per_step above 1 and kAdasum cannot be traced; "
        "take the step "
        "outside td::function (fit: compile({..., .run_eagerly = true}))");
  Plan& plan = plan_for(variables);
  const bool combines =
      options_.op != kAdasum && plan.passes + 1 == options_.backward_passes_per_step;
  return std::make_unique<LocalPass>(plan, options_,
                                     combines ? start_combining(variables) : nullptr);
}

// Adasum combines what the ranks' own steps moved the variables by.
void LaneExchange::apply(const std::vector<Variable>& variables,
                         const std::function<void()>& update) {
  if (options_.op != kAdasum) {
    update();
    return;
  }
  const NoGradScope no_grad;
  std::vector<Tensor> before;
  for (const Variable& variable : variables) before.push_back(variable.value().detach());
  update();
  const auto pass = start_combining(variables);
  for (std::size_t i = 0; i < variables.size(); ++i)
    pass->ready(i, variables[i].value().detach() - before[i]);
  const std::vector<Tensor> moved = *pass->finish();
  for (std::size_t i = 0; i < variables.size(); ++i) {
    Variable variable = variables[i];
    variable.assign(before[i] + moved[i]);
  }
}

}  // namespace tandem::hvd
