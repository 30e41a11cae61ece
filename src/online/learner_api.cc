// Learner's functions on tensors of the program.
#include <algorithm>
#include <cmath>

#include "core/status.h"
#include "online/learner.h"
#include "online/window.h"
#include "runtime/replica_invariance.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/autograd.h"
#include "train/model_impl.h"

namespace tandem::online {
namespace {

constexpr const char *kStatisticsX = "statistics/x", *kStatisticsY = "statistics/y",
                     *kStatisticsSamples = "statistics/samples", *kLearningRate = "learning_rate";

// Whether the sizes after the first are equal, and the first one is `batch` unless that is -1.
bool fits(const Shape& shape, const Shape& batched, std::int64_t batch) {
  bool equal = shape.rank() == batched.rank() && shape.rank() > 0;
  for (int axis = 1; equal && axis < shape.rank(); ++axis)
    equal = batched.dim(axis) < 0 || shape.dim(axis) == batched.dim(axis);
  return equal && (batch < 0 || shape.dim(0) == batch);
}

bool is_integer(const Tensor& tensor) { return !is_floating(tensor.dtype()); }

std::vector<double> finite_values(const char* what, const char* name, const Tensor& tensor) {
  const std::vector<double> values = cast(tensor, float64).to_vector<double>();
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      fail<InvalidArgumentError>("[{}] {}: expected finite numbers, got {} at element {}", what,
                                 name, values[i], i);
  return values;
}

Tensor numbers(const std::vector<double>& values) { return constant(values, {.dtype = float64}); }

}  // namespace

void Learner::Impl::expect_samples(const char* what, const Tensor& x, const Tensor& y) const {
  if (!x.defined() || !y.defined())
    fail<InvalidArgumentError>("[{}] expected tensors, got none", what);
  if (!fits(x.shape(), input(), -1))
    fail<InvalidArgumentError>("[{}] x: expected shape {}, got {}", what, input().to_string(),
                               x.shape().to_string());
  const bool right =
      is_integer(y) ? y.rank() > 0 && y.dim(0) == x.dim(0) : fits(y.shape(), result(), x.dim(0));
  if (!right)
    fail<InvalidArgumentError>("[{}] y: expected {} samples of shape {}, got {}", what, x.dim(0),
                               result().to_string(), y.shape().to_string());
}

Batch Learner::Impl::batch_of(const Tensor& x, const Tensor& y, const Tensor& weight) const {
  if (!x.defined() && !y.defined()) return {};
  expect_samples("train", x, y);
  if (weight.defined() && weight.shape() != Shape{x.dim(0)})
    fail<InvalidArgumentError>("[train] weight: expected shape [{}], got {}", x.dim(0),
                               weight.shape().to_string());
  return {.x = {is_integer(x) ? x : apply(normalizing_x(), x, dtype_)},
          .y = {is_integer(y) ? y : apply(normalizing_y(), y, dtype_)},
          .weight = weight.defined() ? apply({}, weight, dtype_) : weight,
          .examples = x.dim(0)};
}

Tensor Learner::Impl::predict(const Tensor& x) const {
  const NoGradScope no_gradients;
  if (!x.defined() || !fits(x.shape(), input(), -1) || x.dim(0) == 0)
    fail<InvalidArgumentError>("[predict] x: expected shape {} and at least one sample, got {}",
                               input().to_string(), x.defined() ? x.shape().to_string() : "none");
  const Tensor from = is_integer(x) ? x : apply(normalizing_x(), x, dtype_);
  const Tensor result = model_(from, CallOptions{.training = false});
  return apply(restoring_y(), result, result.dtype());
}

Tensor Learner::Impl::backward(const char* what, bool training, bool wanted,
                               const std::function<GivenGradient()>& local) {
  Tensor inputs, result, gradient;
  const auto forward = [&] {
    if (training) expect_optimizer(what);
    if (training) expect_untrained(what);
    const GivenGradient given = local();
    if (!given.x.defined()) return std::vector<double>{0.0};
    inputs = given.x.detach();
    if (wanted) inputs.set_requires_grad();
    result = model_(inputs, CallOptions{.training = training});
    gradient = given.dy.dtype() == result.dtype() ? given.dy : cast(given.dy, result.dtype());
    return std::vector<double>{1.0};
  };
  if (!training) {
    if (forward().front() == 0.0)
      fail<InvalidArgumentError>("[{}] x: expected at least one example, got none", what);
    return wanted ? autograd::grad({result}, {inputs}, {.grad_outputs = {gradient}}).front()
                  : Tensor();
  }
  if (invariant_parts() > 0) return backward_by_parts(what, wanted, local);
  const auto all = exchange(options_.group, what, 1, forward);
  const auto first =
      std::find_if(all.begin(), all.end(), [](const auto& rank) { return rank[0] > 0.0; });
  if (first == all.end())
    fail<InvalidArgumentError>("[{}] x: expected at least one example, got none", what);
  const int root = static_cast<int>(first - all.begin());
  if (!result.defined()) {
    apply_zeros(root);
    return {};
  }
  // The ranks' gradients are averaged, but are to be summed.
  const double factor = ranks() * model_.optimizer().loss_scale();
  apply_gradients(result, factor == 1.0 ? gradient : gradient * factor, root);
  return wanted ? inputs.grad() / factor : Tensor();
}

std::vector<Variable> Learner::Impl::variables() const {
  std::vector<Variable> all = model_.variables();
  if (!compiled()) return all;
  optimizers::Optimizer optimizer = model_.optimizer();
  optimizer.build(model_.trainable_variables());
  for (const Variable& variable : optimizer.variables()) all.push_back(variable);
  return all;
}

std::map<std::string, Tensor> Learner::Impl::state() const {
  std::map<std::string, Tensor> state;
  for (const Variable& variable : variables())
    if (!state.emplace(variable.name(), variable.value()).second)
      fail<InvalidArgumentError>(
          "[state] two variables are named '{}'; give their layers unique names", variable.name());
  state[kStatisticsX] = numbers(statistics_.x.numbers());
  state[kStatisticsY] = numbers(statistics_.y.numbers());
  state[kStatisticsSamples] = numbers({statistics_.samples});
  if (compiled() && !model_.optimizer().scheduled())
    state[kLearningRate] = numbers({model_.optimizer().learning_rate()});
  return state;
}

void Learner::Impl::restore(const std::map<std::string, Tensor>& state, const std::string& what,
                            const std::string& source) {
  const auto at = [&](const std::string& name, const Shape& shape, DType dtype) {
    const auto found = state.find(name);
    if (found == state.end()) fail<DataLossError>("[{}] {} has no tensor '{}'", what, source, name);
    if (found->second.shape() != shape || found->second.dtype() != dtype)
      fail<InvalidArgumentError>("[{}] {}: expected '{}' of {} {}, got {} {}", what, source, name,
                                 name_of(dtype), shape.to_string(), name_of(found->second.dtype()),
                                 found->second.shape().to_string());
    return found->second;
  };
  const auto moments = [&](const char* name, const Moments& own) {
    const auto length = static_cast<std::int64_t>(own.numbers().size());
    return Moments::from_numbers(at(name, {length}, float64).to_vector<double>());
  };
  const std::vector<Variable> all = variables();
  std::vector<Tensor> values;
  for (const Variable& variable : all)
    values.push_back(at(variable.name(), variable.shape(), variable.dtype()));
  Statistics statistics{moments(kStatisticsX, statistics_.x), moments(kStatisticsY, statistics_.y),
                        at(kStatisticsSamples, {1}, float64).to_vector<double>().front()};
  const bool has_rate = compiled() && !model_.optimizer().scheduled();
  const bool replaced = compiled() && state.contains(kLearningRate);
  if (has_rate || replaced) {
    optimizers::Optimizer optimizer = model_.optimizer();
    optimizer.set_learning_rate(at(kLearningRate, {1}, float64).to_vector<double>().front());
  }
  for (std::size_t i = 0; i < all.size(); ++i) Variable(all[i]).assign(values[i]);
  statistics_ = std::move(statistics);
}

// --- the API ---

Learner::Learner(Model model, const LearnerOptions& options)
    : impl_(std::make_shared<Impl>(std::move(model), options)) {
  impl_->expect_one("Learner");
}

const Model& Learner::model() const { return impl_->model(); }

void Learner::observe(const Tensor& x, const Tensor& y) const {
  const std::unique_lock lock(impl_->mutex);
  impl_->observe("observe", [&] {
    impl_->expect_samples("observe", x, y);
    Impl::Observed seen{.x = finite_values("observe", "x", x), .y = {}, .examples = x.dim(0)};
    if (!is_integer(y)) seen.y = finite_values("observe", "y", y);
    return seen;
  });
}

double Learner::train(const Tensor& x, const Tensor& y, const Tensor& weight) const {
  const std::unique_lock lock(impl_->mutex);
  return impl_->mean_loss("train", true, [&] { return impl_->batch_of(x, y, weight); });
}

Report Learner::train(const Window& window, const Budget& budget) const {
  const std::unique_lock lock(impl_->mutex);
  return impl_->train("train", [&] {
    window.impl()->expect_untrained("train");
    return std::pair(window, budget);
  });
}

double Learner::evaluate(const Tensor& x, const Tensor& y) const {
  const std::unique_lock lock(impl_->mutex);
  return impl_->mean_loss("evaluate", false, [&] { return impl_->batch_of(x, y, {}); });
}

Tensor Learner::predict(const Tensor& x) const {
  const std::shared_lock lock(impl_->mutex);
  return impl_->predict(x);
}

Tensor Learner::backward(const Tensor& x, const Tensor& dy, bool training) const {
  const std::unique_lock lock(impl_->mutex);
  const Tensor dx = impl_->backward("backward", training, !is_integer(x), [&]() -> GivenGradient {
    impl_->expect_samples("backward", x, dy);
    if (is_integer(dy))
      throw InvalidArgumentError("[backward] dy: expected floating-point numbers, got integers");
    if (x.dim(0) == 0) return {};
    return {.x = is_integer(x) ? x : apply(impl_->normalizing_x(), x, impl_->dtype()),
            .dy = apply(impl_->gradient_from_y(), dy, impl_->dtype())};
  });
  return dx.defined() ? apply(impl_->gradient_to_x(), dx, dx.dtype()) : dx;
}

std::int64_t Learner::step() const { return impl_->step(); }

std::map<std::string, Tensor> Learner::state() const {
  const std::unique_lock lock(impl_->mutex);  // it may make the optimizer's slots
  return impl_->state();
}

void Learner::restore(const std::map<std::string, Tensor>& state) const {
  const std::unique_lock lock(impl_->mutex);
  impl_->expect_untrained("restore");
  impl_->restore(state, "restore", "the state");
}

}  // namespace tandem::online
