/// @file
/// Schedulers of learning rates. As torch.optim.lr_scheduler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/optim.h"

/// Schedulers: they set the learning rates of an optimizer's groups, once per epoch or step. As
/// torch.optim.lr_scheduler.
namespace tandem::optim::lr_scheduler {

/// Base class of schedulers. step() is called after the optimizer's. Several may act on one
/// optimizer.
class LRScheduler {
 public:
  virtual ~LRScheduler() = default;
  /// Sets the learning rates of the next epoch.
  void step();
  /// The learning rates that were set last, by group.
  std::vector<double> get_last_lr() const;
  /// The number of calls of step().
  std::int64_t last_epoch() const { return epoch_; }

 protected:
  /// Throws InvalidArgumentError for an optimizer whose rate follows a schedule.
  explicit LRScheduler(const optimizers::Optimizer& optimizer);
  /// The rate of a group in an epoch, from the one that it has and the one that it had when the
  /// scheduler was made.
  virtual double next_lr(std::size_t group, std::int64_t epoch, double lr,
                         double base_lr) const = 0;
  /// Sets the rates of epoch 0, for schedulers that change them at once.
  void begin() { set(0); }
  /// The number of groups.
  std::size_t num_groups() const { return groups_.size(); }

 private:
  void set(std::int64_t epoch);

  std::vector<ParamGroup> groups_;
  std::vector<double> base_;
  std::int64_t epoch_ = 0;
};

/// Options of StepLR. As the arguments of torch's StepLR.
struct StepLROptions {
  std::int64_t step_size = 0;  ///< epochs between two changes; required
  double gamma = 0.1;          ///< factor
};
/// Multiplies the rates by gamma every step_size epochs. As torch's StepLR.
class StepLR : public LRScheduler {
 public:
  /// @{
  /// Throws InvalidArgumentError for a step_size below 1.
  StepLR(const optimizers::Optimizer& optimizer, std::int64_t step_size, double gamma = 0.1);
  StepLR(const optimizers::Optimizer& optimizer, const StepLROptions& options)
      : StepLR(optimizer, options.step_size, options.gamma) {}
  /// @}

 private:
  double next_lr(std::size_t group, std::int64_t epoch, double lr, double base_lr) const override;

  std::int64_t step_size_;
  double gamma_;
};

/// Options of MultiStepLR. As the arguments of torch's MultiStepLR.
struct MultiStepLROptions {
  std::vector<std::int64_t> milestones{};  ///< epochs
  double gamma = 0.1;                      ///< factor
};
/// Multiplies the rates by gamma at each milestone. As torch's MultiStepLR.
class MultiStepLR : public LRScheduler {
 public:
  /// @{
  /// `milestones`: epochs.
  MultiStepLR(const optimizers::Optimizer& optimizer, std::vector<std::int64_t> milestones,
              double gamma = 0.1)
      : LRScheduler(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {}
  MultiStepLR(const optimizers::Optimizer& optimizer, MultiStepLROptions options)
      : MultiStepLR(optimizer, std::move(options.milestones), options.gamma) {}
  /// @}

 private:
  double next_lr(std::size_t group, std::int64_t epoch, double lr, double base_lr) const override;

  std::vector<std::int64_t> milestones_;
  double gamma_;
};

/// Options of ExponentialLR. As the arguments of torch's ExponentialLR.
struct ExponentialLROptions {
  double gamma = 1.0;  ///< factor; required in PyTorch
};
/// Multiplies the rates by gamma in every epoch. As torch's ExponentialLR.
class ExponentialLR : public LRScheduler {
 public:
  /// @{
  /// With this factor.
  ExponentialLR(const optimizers::Optimizer& optimizer, double gamma)
      : LRScheduler(optimizer), gamma_(gamma) {}
  ExponentialLR(const optimizers::Optimizer& optimizer, const ExponentialLROptions& options)
      : ExponentialLR(optimizer, options.gamma) {}
  /// @}

 private:
  double next_lr(std::size_t group, std::int64_t epoch, double lr, double base_lr) const override;

  double gamma_;
};

/// Options of CosineAnnealingLR. As the arguments of torch's CosineAnnealingLR.
struct CosineAnnealingLROptions {
  std::int64_t T_max = 0;  ///< epochs of half a period; required
  double eta_min = 0.0;    ///< smallest rate
};
/// Moves the rates along half a cosine to eta_min in T_max epochs, and back. As torch's
/// CosineAnnealingLR.
class CosineAnnealingLR : public LRScheduler {
 public:
  /// @{
  /// Throws InvalidArgumentError for a T_max below 1.
  CosineAnnealingLR(const optimizers::Optimizer& optimizer, std::int64_t T_max,
                    double eta_min = 0.0);
  CosineAnnealingLR(const optimizers::Optimizer& optimizer, const CosineAnnealingLROptions& options)
      : CosineAnnealingLR(optimizer, options.T_max, options.eta_min) {}
  /// @}

 private:
  double next_lr(std::size_t group, std::int64_t epoch, double lr, double base_lr) const override;

  std::int64_t period_;
  double eta_min_;
};

/// Options of LinearLR. As the arguments of torch's LinearLR.
struct LinearLROptions {
  double start_factor = 1.0 / 3.0;  ///< factor of epoch 0
  double end_factor = 1.0;          ///< factor from epoch total_iters on
  std::int64_t total_iters = 5;     ///< epochs of the change
};
/// Multiplies the rates from the beginning by a factor that falls (or rises) linearly from
/// start_factor to end_factor in total_iters epochs. As torch's LinearLR.
class LinearLR : public LRScheduler {
 public:
  /// @{
  /// Throws InvalidArgumentError for total_iters below 1 and a start_factor that is not positive.
  explicit LinearLR(const optimizers::Optimizer& optimizer, double start_factor = 1.0 / 3.0,
                    double end_factor = 1.0, std::int64_t total_iters = 5);
  LinearLR(const optimizers::Optimizer& optimizer, const LinearLROptions& options)
      : LinearLR(optimizer, options.start_factor, options.end_factor, options.total_iters) {}
  /// @}

 private:
  double next_lr(std::size_t group, std::int64_t epoch, double lr, double base_lr) const override;

  double start_, end_;
  std::int64_t total_;
};

/// Options of LambdaLR. As the arguments of torch's LambdaLR.
struct LambdaLROptions {
  std::function<double(std::int64_t epoch)> lr_lambda{};  ///< factor of an epoch; required
};
/// Gives each group its rate from the beginning times lr_lambda(epoch). As torch's LambdaLR.
class LambdaLR : public LRScheduler {
 public:
  /// The factor of an epoch.
  using Lambda = std::function<double(std::int64_t epoch)>;
  /// @{
  /// With one function for all groups, or one for each. Sets the rates of epoch 0 at once. Throws
  /// InvalidArgumentError for another number of functions than groups.
  LambdaLR(const optimizers::Optimizer& optimizer, Lambda lr_lambda);
  LambdaLR(const optimizers::Optimizer& optimizer, std::vector<Lambda> lr_lambdas);
  LambdaLR(const optimizers::Optimizer& optimizer, LambdaLROptions options)
      : LambdaLR(optimizer, std::move(options.lr_lambda)) {}
  /// @}

 private:
  double next_lr(std::size_t group, std::int64_t epoch, double lr, double base_lr) const override;

  std::vector<Lambda> lambdas_;
};

/// Options of OneCycleLR. As the arguments of torch's OneCycleLR.
struct OneCycleLROptions {
  double max_lr = 0.0;                            ///< the largest rate; required
  std::optional<std::int64_t> total_steps{};      ///< default: epochs * steps_per_epoch
  std::optional<std::int64_t> epochs{};           ///< without total_steps
  std::optional<std::int64_t> steps_per_epoch{};  ///< without total_steps
  double pct_start = 0.3;                         ///< part of the steps in which the rates rise
  std::string anneal_strategy = "cos";            ///< "cos" or "linear"
  bool cycle_momentum = true;     ///< must be false: momentums do not follow the cycle here
  double div_factor = 25.0;       ///< the first rate is max_lr / div_factor
  double final_div_factor = 1e4;  ///< the last rate is the first one / final_div_factor
  bool three_phase = false;       ///< whether the rates fall to the first one, and then further
};
/// Raises the rates from max_lr / div_factor to max_lr, and lets them fall again; step() is called
/// after each batch (Smith and Topin 2018). As torch's OneCycleLR. Its step() throws
/// InvalidArgumentError after total_steps.
class OneCycleLR : public LRScheduler {
 public:
  /// Sets the rates of step 0 at once. Throws UnimplementedError unless cycle_momentum is false,
  /// and InvalidArgumentError for options out of range.
  OneCycleLR(const optimizers::Optimizer& optimizer, const OneCycleLROptions& options);

 private:
  double next_lr(std::size_t group, std::int64_t step, double lr, double base_lr) const override;

  struct Phase {
    double end;  // its last step
    double from, to;
  };
  std::vector<Phase> phases_;
  std::int64_t total_;
  bool linear_;
};

/// Options of ReduceLROnPlateau. As the arguments of torch's ReduceLROnPlateau.
struct ReduceLROnPlateauOptions {
  std::string mode = "min";    ///< "min" or "max": which values are better
  double factor = 0.1;         ///< factor of a reduction, below 1
  std::int64_t patience = 10;  ///< epochs without improvement that are accepted
  double threshold = 1e-4;     ///< what counts as an improvement, relative to the best value
  std::int64_t cooldown = 0;   ///< epochs after a reduction in which nothing is counted
  double min_lr = 0.0;         ///< lower limit
};
/// Reduces the rates when a value stops improving. As torch's ReduceLROnPlateau.
class ReduceLROnPlateau {
 public:
  /// Throws InvalidArgumentError for another mode and for a factor of 1 or more.
  explicit ReduceLROnPlateau(const optimizers::Optimizer& optimizer,
                             ReduceLROnPlateauOptions options = {});
  void step(double metric);                 ///< the value of an epoch
  std::vector<double> get_last_lr() const;  ///< as LRScheduler::get_last_lr()

 private:
  std::vector<ParamGroup> groups_;
  ReduceLROnPlateauOptions options_;
  double best_;
  std::int64_t bad_ = 0, cooling_ = 0;
};

}  // namespace tandem::optim::lr_scheduler
