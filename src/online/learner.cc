#include "online/learner.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/status.h"
#include "online/window.h"
#include "runtime/replica_invariance.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/autograd.h"
#include "train/functional.h"
#include "train/model_impl.h"

namespace tandem::online {
namespace {

std::int64_t elements_after(const Shape& batched, int axis) {
  std::int64_t elements = 1;
  for (; axis < batched.rank(); ++axis) elements *= batched.dim(axis);
  return elements;
}

// One of equally large parts.
std::span<const double> part_of(std::span<const double> values, std::size_t part,
                                std::size_t parts) {
  const std::size_t size = values.size() / parts;
  return values.subspan(part * size, size);
}

}  // namespace

Learner::Impl::Impl(Model model, const LearnerOptions& options, std::optional<DType> dtype)
    : model_(std::move(model)), options_(options) {
  const Model::Impl& impl = built_impl_of(model_, "Learner");
  if (impl.built_under)
    throw InvalidArgumentError(
        "[Learner] expected a model without a strategy: ranks are a group's");
  if (options_.normalize && options_.normalize->freeze_after < 0)
    fail<InvalidArgumentError>("[Learner] expected freeze_after of at least 0, got {}",
                               options_.normalize->freeze_after);
  inputs_ = impl.input_shapes;
  results_ = all_output_shapes(model_.layer(), inputs_);
  for (const OutputLoss& output : impl.losses)
    if ((output.loss.reduction() == losses::Reduction::kSum) != sums_losses())
      throw InvalidArgumentError(
          "[Learner] expected the losses of all outputs to be means, or all to be sums");
  const std::vector<Variable> variables = model_.variables();
  dtype_ = dtype                                                   ? *dtype
           : !variables.empty() && variables[0].dtype() == float64 ? float64
                                                                   : float32;
  statistics_ = {Moments(features_of(input())), Moments(features_of(result())), 0.0};
  if (!options_.group) return;
  if (impl.compiled)
    averaged_ = std::make_unique<parallel::DistributedDataParallel::State>(
        model_, parallel::DistributedDataParallelOptions{.process_group = *options_.group,
                                                         .average_by_examples = false});
  else
    share(variables, 0);
}

std::size_t Learner::Impl::features_of(const Shape& batched) const {
  const Per per = options_.normalize.value_or(Normalize()).per;
  const int first = per == Per::kFeature   ? 1
                    : per == Per::kChannel ? batched.rank() - 1
                                           : batched.rank();
  return static_cast<std::size_t>(
      std::max<std::int64_t>(1, elements_after(batched, std::max(first, 1))));
}

// Gives all ranks the values of one.
void Learner::Impl::share(const std::vector<Variable>& variables, int root) const {
  const comm::ProcessGroup& group = *options_.group;
  const int global = group.ranks()[static_cast<std::size_t>(root)];
  for (Variable variable : variables)
    variable.assign(comm::broadcast(variable.value(), global, {.group = group}));
}

void Learner::Impl::expect_one(const char* what) const {
  if (inputs_.size() != 1 || results_.size() != 1)
    fail<InvalidArgumentError>("[{}] expected a model with one input and one output, got {} and {}",
                               what, inputs_.size(), results_.size());
}

bool Learner::Impl::sums_losses() const {
  const std::vector<OutputLoss>& losses = impl_of(model_, "Learner").losses;
  return !losses.empty() && losses.front().loss.reduction() == losses::Reduction::kSum;
}

Tensor Learner::Impl::loss(std::span<const Tensor> y, const std::vector<Tensor>& results,
                           const Tensor& weight) const {
  const std::vector<OutputLoss>& losses = impl_of(model_, "Learner").losses;
  Tensor sum;
  for (std::size_t i = 0; i < results.size(); ++i) {
    Tensor of = losses[i].loss(y[i], results[i], weight);
    if (losses[i].weight != 1.0) of = of * losses[i].weight;
    sum = sum.defined() ? sum + cast(of, sum.dtype()) : of;
  }
  return sum;
}

bool Learner::Impl::compiled() const { return impl_of(model_, "Learner").compiled; }

void Learner::Impl::expect_optimizer(const char* what) const {
  if (!compiled())
    fail<FailedPreconditionError>(
        "[{}] expected a model whose definition has \"optimizer\" and \"loss\", got one without",
        what);
}

void Learner::Impl::expect_untrained(const char* what) const {
  if (trained_beside)
    fail<FailedPreconditionError>("[{}] a trainer trains this model: stop it before", what);
}

void Learner::Impl::observe(const char* what, const std::function<Observed()>& local) {
  auto& [x, y, samples] = statistics_;
  const std::size_t of_x = 1 + 2 * x.features(), of_y = 1 + 2 * y.features();
  const auto parts = static_cast<std::size_t>(parts_of_rank());
  const auto all = exchange(options_.group, what, 1 + parts * (of_x + of_y), [&] {
    if (!options_.normalize)
      fail<FailedPreconditionError>(
          "[{}] expected a model whose definition has \"normalize\": true", what);
    const Observed mine = local();
    std::vector<double> numbers{static_cast<double>(mine.examples)};
    for (std::size_t part = 0; part < parts; ++part)
      for (const Moments& moments : {Moments::of(part_of(mine.x, part, parts), x.features()),
                                     Moments::of(part_of(mine.y, part, parts), y.features())})
        for (const double number : moments.numbers()) numbers.push_back(number);
    return numbers;
  });
  expect_parts(what, all);
  const auto most = static_cast<double>(options_.normalize->freeze_after);
  if (most > 0.0 && samples >= most) return;
  for (const std::vector<double>& rank : all) {
    samples += rank[0];
    std::span<const double> numbers = std::span(rank).subspan(1);
    for (std::size_t part = 0; part < parts; ++part) {
      x.add(Moments::from_numbers(numbers.first(of_x)));
      y.add(Moments::from_numbers(numbers.subspan(of_x, of_y)));
      numbers = numbers.subspan(of_x + of_y);
    }
  }
}

// `last` is asked on rank 0.
Learner::Impl::Step Learner::Impl::take_step(const char* what, bool training,
                                             const std::function<Batch()>& local,
                                             const std::function<bool()>& last) {
  Tensor of;  // the loss
  const bool sum = sums_losses();
  double examples = 0.0;
  const auto all = exchange(options_.group, what, 3, [&] {
    expect_optimizer(what);
    if (training) expect_untrained(what);
    const Batch batch = local();
    examples = static_cast<double>(batch.examples);
    const bool ends = (!options_.group || options_.group->rank() == 0) && last();
    if (batch.examples > 0)
      of = loss(batch.y, model_.call_all(batch.x, CallOptions{.training = training}), batch.weight);
    const double loss = batch.examples > 0 ? of.item() * (sum ? 1.0 : examples) : 0.0;
    return std::vector<double>{loss, examples, ends ? 1.0 : 0.0};
  });
  double total = 0.0, shares = 0.0;
  int root = -1;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    total += all[rank][0];
    shares += all[rank][1];
    if (root < 0 && all[rank][1] > 0.0) root = static_cast<int>(rank);
  }
  if (root < 0) fail<InvalidArgumentError>("[{}] x: expected at least one example, got none", what);
  const double divisor = sum ? 1.0 : shares;
  if (training) {
    // The ranks' gradients are averaged.
    const double factor = (sum ? 1.0 : examples) * ranks() / divisor;
    const optimizers::Optimizer& optimizer = model_.optimizer();
    if (!of.defined())
      apply_zeros(root);
    else
      apply_gradients(optimizer.scale_loss(factor == 1.0 ? of : of * factor), {}, root);
  }
  return {.loss = total / divisor, .last = all[0][2] != 0.0};
}

// Takes an optimizer step with the gradients of `result`, averaged over the ranks. `gradient`: with
// respect to `result`; undefined for a scalar. All ranks then have the other variables of `root`.
void Learner::Impl::apply_gradients(const Tensor& result, const Tensor& gradient, int root) {
  model_.zero_grad();
  if (gradient.defined())
    result.backward(gradient);
  else
    result.backward();
  std::vector<Tensor> gradients;
  for (const Variable& variable : model_.trainable_variables())
    gradients.push_back(variable.grad());
  update(std::move(gradients), root);
}

// Takes an optimizer step with gradients that all ranks have.
void Learner::Impl::update(std::vector<Tensor> gradients, int root) {
  optimizers::Optimizer optimizer = model_.optimizer();
  optimizer.apply_gradients(std::move(gradients), model_.trainable_variables());
  model_.zero_grad();
  if (options_.group) share(model_.non_trainable_variables(), root);
}

// The step of a rank without examples, whose gradients are zeros.
void Learner::Impl::apply_zeros(int root) {
  std::vector<Tensor> examples;
  for (const Shape& input : inputs_)
    examples.push_back(zeros(input.without_leading(1).with_leading(1), {.dtype = dtype_}));
  Tensor sum;
  for (const Tensor& result : model_.call_all(examples, CallOptions{.training = true})) {
    const Tensor nothing = reduce_sum(result) * 0.0;
    sum = sum.defined() ? sum + cast(nothing, sum.dtype()) : nothing;
  }
  apply_gradients(sum, {}, root);
}

double Learner::Impl::mean_loss(const char* what, bool training,
                                const std::function<Batch()>& local) {
  if (invariant_parts() > 0) return mean_loss_by_parts(what, training, local);
  if (training) return take_step(what, true, local, [] { return true; }).loss;
  const NoGradScope no_gradients;
  return take_step(what, false, local, [] { return true; }).loss;
}

// All ranks have the same budget.
Learner::Impl::Agreement Learner::Impl::agree_on(const char* what,
                                                 const std::function<Training()>& local) {
  Agreement agreed;
  const auto all = exchange(options_.group, what, 5, [&] {
    if (invariant_parts() > 0)
      fail<UnimplementedError>(
          "[{}] the replica-invariant mode does not support windows, because each rank has its "
          "own: pass x and y to train()",
          what);
    expect_optimizer(what);
    expect_untrained(what);
    agreed.mine.emplace(local());
    const Budget& budget = agreed.mine->second;
    const Window::Impl& window = *agreed.mine->first.impl();
    if (budget.max_steps < 0 || !(budget.max_seconds >= 0.0) || std::isinf(budget.max_seconds) ||
        (budget.max_steps == 0 && budget.max_seconds == 0.0))
      fail<InvalidArgumentError>(
          "[{}] expected a budget of steps or seconds above 0, got {} and {}", what,
          budget.max_steps, budget.max_seconds);
    return std::vector<double>{static_cast<double>(budget.max_steps), budget.max_seconds,
                               static_cast<double>(window.size()),
                               static_cast<double>(window.min_samples()),
                               static_cast<double>(window.holdout_size())};
  });
  double samples = 0.0, wanted = 1.0, held = 0.0;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank][0] != all[0][0] || all[rank][1] != all[0][1])
      fail<InvalidArgumentError>(
          "[{}] expected one budget on all ranks; rank 0 has {} steps and {} seconds, rank {} has "
          "{} and {}",
          what, all[0][0], all[0][1], rank, all[rank][0], all[rank][1]);
    samples += all[rank][2];
    wanted = std::max(wanted, all[rank][3]);
    held += all[rank][4];
  }
  agreed.trains = samples >= wanted;
  agreed.holds_out = held > 0.0;
  return agreed;
}

Report Learner::Impl::train(const char* what, const std::function<Training()>& local) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  Report report;
  double total = 0.0;
  const Agreement agreed = agree_on(what, local);
  Window::Impl& window = *agreed.mine->first.impl();
  const Budget& budget = agreed.mine->second;
  for (bool last = !agreed.trains; !last;) {
    const Step step = take_step(
        what, true,
        [&] {
          const auto [x, y] = window.sample();
          return batch_of(x, y, {});
        },
        [&] {
          return (budget.max_steps > 0 && report.steps + 1 >= budget.max_steps) ||
                 (budget.max_seconds > 0.0 && seconds() >= budget.max_seconds);
        });
    total += step.loss;
    ++report.steps;
    last = step.last;
  }
  if (report.steps > 0) report.loss = total / static_cast<double>(report.steps);
  if (report.steps > 0 && agreed.holds_out)
    report.holdout_loss = mean_loss(what, false, [&] {
      const auto [x, y] = window.holdout();
      return batch_of(x, y, {});
    });
  report.step = step();
  report.seconds = seconds();
  return report;
}

std::int64_t Learner::Impl::step() const {
  return compiled() ? model_.optimizer().iterations() : 0;
}

}  // namespace tandem::online
