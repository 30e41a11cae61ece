// PyTorch's schedulers, with its recursive formulas, so that several may act on one optimizer.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "core/status.h"
#include "nn/optimizer_impl.h"
#include "tandem/lr_scheduler.h"

namespace tandem::optim::lr_scheduler {
namespace {

std::vector<double> rates_of(const std::vector<ParamGroup>& groups) {
  std::vector<double> rates;
  for (const ParamGroup& group : groups) rates.push_back(group.lr());
  return rates;
}

// Throws InvalidArgumentError if a rate follows a schedule.
std::vector<ParamGroup> groups_of(const optimizers::Optimizer& optimizer) {
  const optimizers::Optimizer::Impl& impl = optimizer.defined_impl();
  for (std::size_t group = 0; group < impl.num_groups(); ++group)
    if (impl.scheduled(group))
      fail<InvalidArgumentError>(
          "[lr_scheduler] expected an optimizer with a number as its learning rate, got {} with a "
          "schedule",
          optimizer.name());
  return param_groups(optimizer);
}

void check_positive(const char* scheduler, const char* what, std::int64_t value) {
  if (value < 1)
    fail<InvalidArgumentError>("[{}] expected {} of 1 or more, got {}", scheduler, what, value);
}

}  // namespace

LRScheduler::LRScheduler(const optimizers::Optimizer& optimizer)
    : groups_(groups_of(optimizer)), base_(rates_of(groups_)) {}

void LRScheduler::step() { set(++epoch_); }

void LRScheduler::set(std::int64_t epoch) {
  for (std::size_t i = 0; i < groups_.size(); ++i)
    groups_[i].set_lr(next_lr(i, epoch, groups_[i].lr(), base_[i]));
}

std::vector<double> LRScheduler::get_last_lr() const { return rates_of(groups_); }

StepLR::StepLR(const optimizers::Optimizer& optimizer, std::int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  check_positive("StepLR", "step_size", step_size);
}

double StepLR::next_lr(std::size_t, std::int64_t epoch, double lr, double) const {
  return epoch % step_size_ == 0 ? lr * gamma_ : lr;
}

double MultiStepLR::next_lr(std::size_t, std::int64_t epoch, double lr, double) const {
  return lr * std::pow(gamma_, std::count(milestones_.begin(), milestones_.end(), epoch));
}

double ExponentialLR::next_lr(std::size_t, std::int64_t, double lr, double) const {
  return lr * gamma_;
}

CosineAnnealingLR::CosineAnnealingLR(const optimizers::Optimizer& optimizer, std::int64_t T_max,
                                     double eta_min)
    : LRScheduler(optimizer), period_(T_max), eta_min_(eta_min) {
  check_positive("CosineAnnealingLR", "T_max", T_max);
}

double CosineAnnealingLR::next_lr(std::size_t, std::int64_t epoch, double lr,
                                  double base_lr) const {
  const double step = std::numbers::pi / static_cast<double>(period_);
  // The rate before is eta_min, from which no factor leads away.
  if ((epoch - 1 - period_) % (2 * period_) == 0)
    return lr + (base_lr - eta_min_) * (1.0 - std::cos(step)) / 2.0;
  return (1.0 + std::cos(step * static_cast<double>(epoch))) /
             (1.0 + std::cos(step * static_cast<double>(epoch - 1))) * (lr - eta_min_) +
         eta_min_;
}

LinearLR::LinearLR(const optimizers::Optimizer& optimizer, double start_factor, double end_factor,
                   std::int64_t total_iters)
    : LRScheduler(optimizer), start_(start_factor), end_(end_factor), total_(total_iters) {
  check_positive("LinearLR", "total_iters", total_iters);
  if (!(start_factor > 0.0))
    fail<InvalidArgumentError>("[LinearLR] expected a positive start_factor, got {}", start_factor);
  begin();
}

double LinearLR::next_lr(std::size_t, std::int64_t epoch, double lr, double) const {
  if (epoch == 0) return lr * start_;
  if (epoch > total_) return lr;
  const double change = (end_ - start_) / static_cast<double>(total_);
  return lr * (1.0 + change / (start_ + change * static_cast<double>(epoch - 1)));
}

LambdaLR::LambdaLR(const optimizers::Optimizer& optimizer, Lambda lr_lambda)
    : LRScheduler(optimizer), lambdas_(num_groups(), std::move(lr_lambda)) {
  begin();
}

LambdaLR::LambdaLR(const optimizers::Optimizer& optimizer, std::vector<Lambda> lr_lambdas)
    : LRScheduler(optimizer), lambdas_(std::move(lr_lambdas)) {
  if (lambdas_.size() != num_groups())
    fail<InvalidArgumentError>("[LambdaLR] expected a function for each of {} groups, got {}",
                               num_groups(), lambdas_.size());
  begin();
}

double LambdaLR::next_lr(std::size_t group, std::int64_t epoch, double, double base_lr) const {
  return base_lr * lambdas_[group](epoch);
}

namespace {

std::int64_t total_of(const OneCycleLROptions& options) {
  if (!options.total_steps && !(options.epochs && options.steps_per_epoch))
    fail<InvalidArgumentError>(
        "[OneCycleLR] expected total_steps, or epochs and steps_per_epoch, got neither");
  const std::int64_t total =
      options.total_steps ? *options.total_steps : *options.epochs * *options.steps_per_epoch;
  check_positive("OneCycleLR", "total_steps", total);
  return total;
}

}  // namespace

OneCycleLR::OneCycleLR(const optimizers::Optimizer& optimizer, const OneCycleLROptions& options)
    : LRScheduler(optimizer),
      total_(total_of(options)),
      linear_(options.anneal_strategy == "linear") {
  if (options.cycle_momentum)
    throw UnimplementedError(
        "[OneCycleLR] momentums do not follow the cycle here, as they do by default in PyTorch: "
        "write .cycle_momentum = false");
  if (!linear_ && options.anneal_strategy != "cos")
    fail<InvalidArgumentError>("[OneCycleLR] expected anneal_strategy 'cos' or 'linear', got '{}'",
                               options.anneal_strategy);
  if (!(options.pct_start >= 0.0 && options.pct_start <= 1.0))
    fail<InvalidArgumentError>("[OneCycleLR] expected a pct_start in [0, 1], got {}",
                               options.pct_start);
  if (!(options.max_lr > 0.0 && options.div_factor > 0.0 && options.final_div_factor > 0.0))
    fail<InvalidArgumentError>(
        "[OneCycleLR] expected a positive max_lr, div_factor and final_div_factor, got {}, {} and "
        "{}",
        options.max_lr, options.div_factor, options.final_div_factor);
  const double first = options.max_lr / options.div_factor, last = first / options.final_div_factor;
  const double steps = static_cast<double>(total_), rising = options.pct_start * steps;
  phases_.push_back({rising - 1.0, first, options.max_lr});
  if (options.three_phase) phases_.push_back({2.0 * rising - 2.0, options.max_lr, first});
  phases_.push_back({steps - 1.0, phases_.back().to, last});
  begin();
}

double OneCycleLR::next_lr(std::size_t, std::int64_t epoch, double, double) const {
  if (epoch > total_)
    fail<InvalidArgumentError>("[OneCycleLR] expected at most {} steps, got step {}", total_,
                               epoch);
  const auto step = static_cast<double>(epoch);
  std::size_t i = 0;
  while (i + 1 < phases_.size() && step > phases_[i].end) ++i;
  const double begin = i == 0 ? 0.0 : phases_[i - 1].end;
  const auto& [end, from, to] = phases_[i];
  // PyTorch's formula goes on at the last step, perhaps below zero.
  const double part = end == begin ? 1.0 : std::min(1.0, (step - begin) / (end - begin));
  if (linear_) return from + (to - from) * part;
  return to + (from - to) / 2.0 * (1.0 + std::cos(std::numbers::pi * part));
}

ReduceLROnPlateau::ReduceLROnPlateau(const optimizers::Optimizer& optimizer,
                                     ReduceLROnPlateauOptions options)
    : groups_(groups_of(optimizer)), options_(std::move(options)) {
  if (options_.mode != "min" && options_.mode != "max")
    fail<InvalidArgumentError>("[ReduceLROnPlateau] expected mode 'min' or 'max', got '{}'",
                               options_.mode);
  if (!(options_.factor < 1.0))
    fail<InvalidArgumentError>("[ReduceLROnPlateau] expected a factor below 1, got {}",
                               options_.factor);
  best_ = std::numeric_limits<double>::infinity() * (options_.mode == "min" ? 1.0 : -1.0);
}

void ReduceLROnPlateau::step(double metric) {
  const bool better = options_.mode == "min" ? metric < best_ * (1.0 - options_.threshold)
                                             : metric > best_ * (1.0 + options_.threshold);
  if (better) best_ = metric;
  bad_ = better ? 0 : bad_ + 1;
  if (cooling_ > 0) {
    --cooling_;
    bad_ = 0;
  }
  if (bad_ <= options_.patience) return;
  for (ParamGroup& group : groups_)
    // As PyTorch, leaves a rate that would change by less than 1e-8.
    if (const double lr = std::max(group.lr() * options_.factor, options_.min_lr);
        group.lr() - lr > 1e-8)
      group.set_lr(lr);
  cooling_ = options_.cooldown;
  bad_ = 0;
}

std::vector<double> ReduceLROnPlateau::get_last_lr() const { return rates_of(groups_); }

}  // namespace tandem::optim::lr_scheduler
