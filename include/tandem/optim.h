/// @file
/// Optimizers, schedulers of learning rates and clipping with the names, defaults and rules of
/// PyTorch. They are optimizers::Optimizer, so compile(), GradScaler, DistributedDataParallel,
/// hvd::DistributedOptimizer and checkpoints take them.
/// @code
/// td::optim::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
/// td::optim::lr_scheduler::StepLR scheduler(optimizer, 30, 0.1);
/// optimizer.zero_grad();
/// loss.backward();
/// optimizer.step();
/// scheduler.step();
/// @endcode
/// Unlike tandem/optimizers.h, whose rules and defaults are Keras's, weight decay is part of the
/// gradient (except in AdamW), and the momentum does not contain the learning rate. The number of
/// the step, for bias corrections, is that of the optimizer, not of the parameter.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/optimizers.h"
#include "tandem/tensor.h"
#include "tandem/variable.h"

/// PyTorch's optimizers. As torch.optim.
namespace tandem::optim {

/// A group of parameters of an optimizer: a handle.
class ParamGroup {
 public:
  double lr() const;                            ///< learning rate of the next step
  void set_lr(double lr);                       ///< sets the learning rate
  const std::vector<Variable>& params() const;  ///< parameters

  /// For Tandem's own code.
  ParamGroup(optimizers::Optimizer optimizer, std::size_t index)
      : optimizer_(std::move(optimizer)), index_(index) {}

 private:
  optimizers::Optimizer optimizer_;
  std::size_t index_;
};

/// The groups of an optimizer; one that has no groups is a group. As torch's param_groups.
std::vector<ParamGroup> param_groups(const optimizers::Optimizer& optimizer);

/// A group without names: `{params, {.lr = 0.1}}`.
template <class Options>
struct ParamsWithOptions {
  optimizers::ParameterList parameters{};  ///< parameters
  Options options{};                       ///< their options, without params
};
/// For Tandem's own code: the groups with names.
template <class Options>
std::vector<Options> named_groups(std::initializer_list<ParamsWithOptions<Options>> groups) {
  std::vector<Options> result;
  for (const ParamsWithOptions<Options>& group : groups) {
    result.push_back(group.options);
    result.back().params = group.parameters;
  }
  return result;
}

/// An optimizer with groups of parameters.
class Optimizer : public optimizers::Optimizer {
 public:
  Optimizer() = default;
  /// The groups, in the order in which they were given.
  std::vector<ParamGroup> param_groups() const { return optim::param_groups(*this); }
  /// The state by name: "iterations", "state.0.exp_avg" for parameter 0, and the learning rate of
  /// each group that follows no schedule, "param_groups.0.lr". The tensors keep their elements. Not
  /// the state of schedulers and of a loss scale. As torch.optim.Optimizer.state_dict.
  std::map<std::string, Tensor> state_dict() const;
  /// Assigns a state of an optimizer of the same kind, made with the same parameters in the same
  /// order. Throws InvalidArgumentError, before anything is assigned, if a tensor is missing or has
  /// another shape or dtype. As torch.optim.Optimizer.load_state_dict.
  void load_state_dict(const std::map<std::string, Tensor>& state) const;

 protected:
  /// For the types below.
  explicit Optimizer(optimizers::Optimizer optimizer)
      : optimizers::Optimizer(std::move(optimizer)) {}
};

/// Options of SGD, and a group of parameters with options of its own. As the arguments of
/// torch.optim.SGD.
struct SGDOptions {
  optimizers::ParameterList params{};  ///< parameters, in a group alone
  std::optional<double> lr{};          ///< learning rate; default: 1e-3
  std::optional<double> momentum{};    ///< momentum; default: 0
  std::optional<double> dampening{};   ///< what momentum leaves out of the gradient; default: 0
  std::optional<double>
      weight_decay{};              ///< times the variable is added to the gradient; default: 0
  std::optional<bool> nesterov{};  ///< whether to use Nesterov momentum; default: false
};
/// Stochastic gradient descent. As torch.optim.SGD: the momentum does not contain the learning
/// rate, and its first step is not dampened.
class SGD : public Optimizer {
 public:
  using Options = SGDOptions;  ///< options
  /// @{
  /// With parameters, or with groups of parameters, `{{.params = a, .lr = 0.1}, {.params = b}}`, in
  /// which options that are not set are those of `defaults`. Throws InvalidArgumentError for no
  /// parameters, params outside of a group, options out of range, a parameter in several groups,
  /// and Nesterov momentum without a momentum or with dampening.
  explicit SGD(optimizers::ParameterList params, const SGDOptions& options = {});
  SGD(optimizers::ParameterList params, double lr);
  explicit SGD(std::vector<SGDOptions> groups, const SGDOptions& defaults = {});
  SGD(std::vector<SGDOptions> groups, double lr);
  explicit SGD(std::initializer_list<SGDOptions> groups, const SGDOptions& defaults = {})
      : SGD(std::vector<SGDOptions>(groups), defaults) {}
  explicit SGD(std::initializer_list<ParamsWithOptions<SGDOptions>> groups,
               const SGDOptions& defaults = {})
      : SGD(named_groups(groups), defaults) {}
  /// @}
};

/// The two decay rates of Adam.
class Betas {
 public:
  Betas() = default;
  /// The decay rates of the means of gradients and of squared gradients.
  Betas(double beta_1, double beta_2) : values_(std::pair(beta_1, beta_2)) {}
  Betas(const std::pair<double, double>& betas) : values_(betas) {}  ///< the same NOLINT: implicit
  /// The rates; none: not set.
  const std::optional<std::pair<double, double>>& values() const { return values_; }

 private:
  std::optional<std::pair<double, double>> values_;
};

/// Options of Adam, and a group of parameters with options of its own. As the arguments of
/// torch.optim.Adam.
struct AdamOptions {
  optimizers::ParameterList params{};  ///< parameters, in a group alone
  std::optional<double> lr{};          ///< learning rate; default: 1e-3
  Betas betas{};                       ///< decay rates; default: {0.9, 0.999}
  std::optional<double> eps{};         ///< added to the root of the corrected moment; default: 1e-8
  std::optional<double>
      weight_decay{};  ///< times the variable is added to the gradient; default: 0
};
/// Adam (Kingma and Ba 2015). As torch.optim.Adam, without amsgrad.
class Adam : public Optimizer {
 public:
  using Options = AdamOptions;  ///< options
  /// @{
  /// As the constructors of SGD.
  explicit Adam(optimizers::ParameterList params, const AdamOptions& options = {});
  Adam(optimizers::ParameterList params, double lr);
  explicit Adam(std::vector<AdamOptions> groups, const AdamOptions& defaults = {});
  Adam(std::vector<AdamOptions> groups, double lr);
  explicit Adam(std::initializer_list<AdamOptions> groups, const AdamOptions& defaults = {})
      : Adam(std::vector<AdamOptions>(groups), defaults) {}
  explicit Adam(std::initializer_list<ParamsWithOptions<AdamOptions>> groups,
                const AdamOptions& defaults = {})
      : Adam(named_groups(groups), defaults) {}
  /// @}
};

/// Options of AdamW, and a group of parameters with options of its own. As the arguments of
/// torch.optim.AdamW.
struct AdamWOptions {
  optimizers::ParameterList params{};  ///< parameters, in a group alone
  std::optional<double> lr{};          ///< learning rate; default: 1e-3
  Betas betas{};                       ///< decay rates; default: {0.9, 0.999}
  std::optional<double> eps{};         ///< added to the root of the corrected moment; default: 1e-8
  std::optional<double> weight_decay{};  ///< decoupled weight decay; default: 0.01
};
/// AdamW (Loshchilov and Hutter 2019). As torch.optim.AdamW, without amsgrad.
class AdamW : public Optimizer {
 public:
  using Options = AdamWOptions;  ///< options
  /// @{
  /// As the constructors of SGD.
  explicit AdamW(optimizers::ParameterList params, const AdamWOptions& options = {});
  AdamW(optimizers::ParameterList params, double lr);
  explicit AdamW(std::vector<AdamWOptions> groups, const AdamWOptions& defaults = {});
  AdamW(std::vector<AdamWOptions> groups, double lr);
  explicit AdamW(std::initializer_list<AdamWOptions> groups, const AdamWOptions& defaults = {})
      : AdamW(std::vector<AdamWOptions>(groups), defaults) {}
  explicit AdamW(std::initializer_list<ParamsWithOptions<AdamWOptions>> groups,
                 const AdamWOptions& defaults = {})
      : AdamW(named_groups(groups), defaults) {}
  /// @}
};

/// Options of RMSprop, and a group of parameters with options of its own. As the arguments of
/// torch.optim.RMSprop.
struct RMSpropOptions {
  optimizers::ParameterList params{};  ///< parameters, in a group alone
  std::optional<double> lr{};          ///< learning rate; default: 1e-2
  std::optional<double> alpha{};  ///< decay rate of the mean of squared gradients; default: 0.99
  std::optional<double> eps{};    ///< added to the root; default: 1e-8
  std::optional<double>
      weight_decay{};                ///< times the variable is added to the gradient; default: 0
  std::optional<double> momentum{};  ///< momentum; default: 0
  std::optional<bool>
      centered{};  ///< whether to subtract the squared mean of gradients; default: false
};
/// RMSprop. As torch.optim.RMSprop. All groups have a momentum or none has, and all are centered or
/// none is: UnimplementedError.
class RMSprop : public Optimizer {
 public:
  using Options = RMSpropOptions;  ///< options
  /// @{
  /// As the constructors of SGD.
  explicit RMSprop(optimizers::ParameterList params, const RMSpropOptions& options = {});
  RMSprop(optimizers::ParameterList params, double lr);
  explicit RMSprop(std::vector<RMSpropOptions> groups, const RMSpropOptions& defaults = {});
  RMSprop(std::vector<RMSpropOptions> groups, double lr);
  explicit RMSprop(std::initializer_list<RMSpropOptions> groups,
                   const RMSpropOptions& defaults = {})
      : RMSprop(std::vector<RMSpropOptions>(groups), defaults) {}
  explicit RMSprop(std::initializer_list<ParamsWithOptions<RMSpropOptions>> groups,
                   const RMSpropOptions& defaults = {})
      : RMSprop(named_groups(groups), defaults) {}
  /// @}
};

/// Options of Adagrad, and a group of parameters with options of its own. As the arguments of
/// torch.optim.Adagrad.
struct AdagradOptions {
  optimizers::ParameterList params{};  ///< parameters, in a group alone
  std::optional<double> lr{};          ///< learning rate; default: 1e-2
  /// Makes the learning rate lr / (1 + lr_decay * steps taken), a schedule, until it is set.
  /// Default: 0.
  std::optional<double> lr_decay{};
  std::optional<double>
      weight_decay{};  ///< times the variable is added to the gradient; default: 0
  /// Initial value of the sum of squared gradients, of all groups. Default: 0.
  std::optional<double> initial_accumulator_value{};
  std::optional<double> eps{};  ///< added to the root; default: 1e-10
};
/// Adagrad (Duchi et al. 2011). As torch.optim.Adagrad.
class Adagrad : public Optimizer {
 public:
  using Options = AdagradOptions;  ///< options
  /// @{
  /// As the constructors of SGD. Throws UnimplementedError for groups with other initial values.
  explicit Adagrad(optimizers::ParameterList params, const AdagradOptions& options = {});
  Adagrad(optimizers::ParameterList params, double lr);
  explicit Adagrad(std::vector<AdagradOptions> groups, const AdagradOptions& defaults = {});
  Adagrad(std::vector<AdagradOptions> groups, double lr);
  explicit Adagrad(std::initializer_list<AdagradOptions> groups,
                   const AdagradOptions& defaults = {})
      : Adagrad(std::vector<AdagradOptions>(groups), defaults) {}
  explicit Adagrad(std::initializer_list<ParamsWithOptions<AdagradOptions>> groups,
                   const AdagradOptions& defaults = {})
      : Adagrad(named_groups(groups), defaults) {}
  /// @}
};

/// Schedulers: they set the learning rates of an optimizer's groups, once per epoch or step. As
/// torch.optim.lr_scheduler.
namespace lr_scheduler {

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

}  // namespace lr_scheduler
}  // namespace tandem::optim

/// Functions on gradients of parameters. As torch.nn.utils.
namespace tandem::nn::utils {

/// Options of clip_grad_norm_().
struct ClipGradNormOptions {
  double norm_type = 2.0;  ///< the p of the p-norm; infinity: the largest absolute value
  /// Throws InvalidArgumentError for a norm that is not finite, and leaves the gradients.
  bool error_if_nonfinite = false;
};
/// @{
/// Multiplies grad() of all parameters by max_norm / (norm + 1e-6) if that is below 1, and returns
/// their norm together. Parameters without a gradient count as 0. Waits for the device. As
/// torch.nn.utils.clip_grad_norm_.
double clip_grad_norm_(const std::vector<Variable>& parameters, double max_norm,
                       const ClipGradNormOptions& options = {});
inline double clip_grad_norm_(const std::vector<Variable>& parameters, double max_norm,
                              double norm_type) {
  return clip_grad_norm_(parameters, max_norm, ClipGradNormOptions{.norm_type = norm_type});
}
/// @}
/// Limits the elements of grad() of all parameters to [-clip_value, clip_value]. As
/// torch.nn.utils.clip_grad_value_.
void clip_grad_value_(const std::vector<Variable>& parameters, double clip_value);

}  // namespace tandem::nn::utils
