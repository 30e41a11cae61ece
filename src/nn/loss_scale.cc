#include "nn/loss_scale.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include "core/status.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "ops/nn/all_finite.h"
#include "runtime/autocast.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "runtime/variable_impl.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/device.h"
#include "tandem/math.h"

namespace tandem::optimizers {
namespace {

Variable make_state(const Tensor& value, const std::string& name) {
  DeviceImpl* const host = &DeviceManager::get().host();
  return Variable(make_ref<VariableImpl>(value, std::span(&host, 1),
                                         VariableOptions{.trainable = false, .name = name},
                                         MemoryTag::kOptimizer, nullptr, nullptr));
}

}  // namespace

LossScale::LossScale(const char* what, const LossScaleOptions& options, int number)
    : what_(what), suffix_(number == 0 ? std::string() : fmt::format("_{}", number)) {
  configure(options);
}

void LossScale::configure(const LossScaleOptions& options) {
  const auto expect = [this](bool holds, const char* expected, double got) {
    if (!holds) fail<InvalidArgumentError>("[{}] expected {}, got {}", what_, expected, got);
  };
  expect(options.initial_scale > 0.0, "a positive initial_scale", options.initial_scale);
  expect(options.growth_factor > 1.0, "a growth_factor above 1", options.growth_factor);
  expect(options.backoff_factor > 0.0 && options.backoff_factor < 1.0,
         "a backoff_factor between 0 and 1", options.backoff_factor);
  expect(options.growth_interval > 0, "a positive growth_interval",
         static_cast<double>(options.growth_interval));
  expect(options.min_scale >= 0.0 && options.min_scale <= options.max_scale,
         "a min_scale of 0 or more, and not above max_scale", options.min_scale);
  if (traced_ && (options.growth_factor != options_.growth_factor ||
                  options.backoff_factor != options_.backoff_factor ||
                  options.growth_interval != options_.growth_interval))
    fail<FailedPreconditionError>(
        "[{}] the growth and backoff factors and the growth interval are constants of functions "
        "that were traced: set them before the first call",
        what_);
  options_ = options;
}

std::size_t LossScale::copy() {
  if (context.graph && context.graph->for_sessions)
    fail<UnimplementedError>("[{}] graphs for sessions do not support loss scaling", what_);
  const ReplicaContext* replica = ReplicaContext::current();
  const auto replicas =
      replica ? static_cast<std::size_t>(replica->num_local_replicas()) : std::size_t{1};
  {
    const std::lock_guard lock(mutex_);
    NoGradScope no_grad;
    const Scoped eager(context.graph, nullptr);
    const DeviceScope on_host("/cpu:0");
    if (!scale_.defined()) {
      const double initial = std::min(options_.initial_scale, options_.max_scale);
      scale_ =
          make_state(full(Shape::scalar(), initial, {.dtype = float32}), "loss_scale" + suffix_);
      good_steps_ = make_state(zeros(Shape::scalar(), {.dtype = int32}), "good_steps" + suffix_);
    }
    // It may have been made or restored outside of replicas. They have a copy each from their
    // first use on.
    if (replicas > 1 && scale_.impl().storage().num_readers() == 1)
      for (const Variable& state : {scale_, good_steps_})
        state.impl().copy_for_replicas(
            std::vector<DeviceImpl*>(replicas, &DeviceManager::get().host()),
            replica->shared_strategy());
  }
  if (!replica) return 0;
  const std::size_t copies = scale_.impl().storage().num_readers();
  if (copies != replicas)
    fail<FailedPreconditionError>(
        "[{}] its state was made for {} replica(s), and is used by a strategy of {}: use it under "
        "one strategy only",
        what_, copies, replicas);
  return scale_.impl().local_index();
}

Tensor LossScale::scale_of(std::size_t copy) {
  NoGradScope no_grad;
  return scale_.impl().read(copy);
}

Tensor LossScale::scaled(const Tensor& tensor) {
  if (!is_floating(tensor.dtype()))
    fail<InvalidArgumentError>("[{}] expected a floating tensor to scale, got {}", what_,
                               name_of(tensor.dtype()));
  const AutocastScope no_autocast(std::nullopt);
  // As in PyTorch, a scalar in 16 bits becomes float32, which holds the product.
  const DType dtype = tensor.rank() == 0 && size_of(tensor.dtype()) == 2 ? float32 : tensor.dtype();
  return cast(tensor, dtype) * cast(scale(), dtype);
}

void LossScale::unscale(std::vector<Tensor>& gradients) {
  NoGradScope no_grad;
  const Tensor inverse = divide(1.0, scale());
  for (Tensor& gradient : gradients)
    if (gradient.defined()) gradient = gradient * cast(inverse, gradient.dtype());
}

void LossScale::update(const Tensor& finite) {
  const std::size_t mine = copy();
  if (!options_.dynamic) return;
  if (context.graph) traced_ = true;
  NoGradScope no_grad;
  const DeviceScope on_host("/cpu:0");
  VariableImpl &scale = scale_.impl(), &good_steps = good_steps_.impl();
  const Tensor before = scale.read(mine);
  const Tensor good = good_steps.read(mine) + ones(Shape::scalar(), {.dtype = int32});
  const auto interval =
      std::min<std::int64_t>(options_.growth_interval, std::numeric_limits<std::int32_t>::max());
  const Tensor grows = greater_equal(good, static_cast<double>(interval));
  const Tensor grown = minimum(before * options_.growth_factor, options_.max_scale);
  // A scale of zero would remain zero.
  const double least =
      std::max(options_.min_scale, static_cast<double>(std::numeric_limits<float>::min()));
  const Tensor reduced = maximum(before * options_.backoff_factor, least);
  const Tensor none = zeros(Shape::scalar(), {.dtype = int32});
  scale.write(mine, where(finite, where(grows, grown, before), reduced));
  good_steps.write(mine, where(logical_and(finite, logical_not(grows)), good, none));
}

void LossScale::set(double scale, std::optional<std::int64_t> good_steps) {
  const std::size_t mine = copy();
  NoGradScope no_grad;
  const DeviceScope on_host("/cpu:0");
  const auto write = [&](Variable& state, double value) {
    const Tensor values = full(Shape::scalar(), value, {.dtype = state.dtype()});
    if (ReplicaContext::current()) return state.impl().write(mine, values);
    for (std::size_t copy = 0; copy < state.impl().storage().num_readers(); ++copy)
      state.impl().write(copy, values);
  };
  write(scale_, scale);
  if (good_steps) write(good_steps_, static_cast<double>(*good_steps));
}

std::int64_t LossScale::good_steps() {
  const std::size_t mine = copy();
  return good_steps_.impl().read(mine).item<std::int32_t>();
}

std::vector<Variable> LossScale::variables() {
  static_cast<void>(copy());
  return {scale_, good_steps_};
}

Tensor are_finite(std::span<const Tensor> gradients) {
  NoGradScope no_grad;
  // One operation per device, so that no gradient is copied to another one.
  std::map<std::string_view, std::vector<Tensor>> by_device;
  for (const Tensor& gradient : gradients)
    if (gradient.defined())
      by_device[is_symbolic(gradient) ? std::string_view(symbol_of(gradient).node->requested_text)
                                      : gradient.device()]
          .push_back(gradient);
  Tensor result;
  for (const auto& [device, tensors] : by_device) {
    const OnDeviceOf on(tensors.front());
    const Tensor finite = all_finite(tensors);
    result = result.defined() ? logical_and(result, finite) : finite;
  }
  return result;
}

}  // namespace tandem::optimizers
