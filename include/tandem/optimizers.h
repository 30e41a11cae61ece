/// @file
/// Optimizers and learning-rate schedules. Update rules and defaults are those of Keras, except for
/// LAMB.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {
class GradientTape;
}

/// Optimizers and learning-rate schedules. As tf.keras.optimizers.
namespace tandem::optimizers {

/// A learning rate: a number, or a function of the number of steps taken. A value.
class LearningRate {
 public:
  /// Returns the rate of a step; steps count from 0.
  using Schedule = std::function<double(std::int64_t step)>;
  /// A constant rate.
  LearningRate(double rate) : rate_(rate) {}  // NOLINT: implicit
  /// A schedule: any callable, such as a lambda or a Schedule. (A constructor for a Schedule alone
  /// is one too many for clang 14, which then refuses `Adam({.learning_rate = schedule})`.)
  template <class F>
  requires std::is_invocable_r_v<double, const F&, std::int64_t> LearningRate(F schedule)  // NOLINT
      : schedule_(std::move(schedule)) {}
  /// The rate of a step.
  double at(std::int64_t step) const { return schedule_ ? schedule_(step) : rate_; }
  double operator()(std::int64_t step) const { return at(step); }  ///< as at()
  bool scheduled() const { return static_cast<bool>(schedule_); }  ///< whether it is a schedule
  /// The schedule; empty for a constant rate.
  const Schedule& schedule() const { return schedule_; }

 private:
  double rate_ = 0.0;
  Schedule schedule_;
};

/// The parameters of an optimizer, as the first argument of its constructor: a vector, or variables
/// in braces.
class ParameterList {
 public:
  ParameterList() = default;  ///< no variables
  /// @{
  /// Converts from variables.
  ParameterList(std::vector<Variable> variables) : variables_(std::move(variables)) {}  // NOLINT
  ParameterList(std::initializer_list<Variable> variables) : variables_(variables) {}   // NOLINT
  /// @}
  /// @{
  /// Do not compile: a tensor is a value that no optimizer can change.
  template <std::same_as<Tensor> T>
  ParameterList(std::initializer_list<T>) {  // NOLINT: implicit
    refuse<T>();
  }
  template <std::same_as<Tensor> T>
  ParameterList(const std::vector<T>&) {  // NOLINT: implicit
    refuse<T>();
  }
  /// @}
  const std::vector<Variable>& variables() const { return variables_; }  ///< the variables
  std::vector<Variable> take() && { return std::move(variables_); }      ///< the variables

 private:
  template <class T>
  static void refuse() {
    static_assert(!std::is_same_v<T, T>,
                  "optimizers update variables, and tensors do not change: make the parameters as "
                  "td::Variable(tensor), or keep those of a module in std::vector<td::Variable>");
  }

  std::vector<Variable> variables_;
};

/// Options of Optimizer::apply_gradients().
struct ApplyOptions {
  /// The gradients have been summed over the replicas already.
  bool skip_gradients_aggregation = false;
};

/// Options of a loss scale. In float16, small gradients become 0. The loss, and with it every
/// gradient, is multiplied by a scale, and the gradients are divided by it before they are applied.
/// A dynamic scale is halved when a gradient is infinite or NaN, and that step is skipped; it is
/// doubled after `growth_interval` steps without one. As torch.amp.GradScaler.
struct LossScaleOptions {
  double initial_scale = 65536.0;            ///< first scale
  double growth_factor = 2.0;                ///< factor after growth_interval good steps; above 1
  double backoff_factor = 0.5;               ///< factor after a skipped step; between 0 and 1
  std::int64_t growth_interval = 2000;       ///< number of good steps until the scale grows
  double min_scale = 0.0;                    ///< lower limit
  double max_scale = 3.4028234663852886e38;  ///< upper limit; default: the largest float32
  bool dynamic = true;  ///< false: the scale stays, and skips steps all the same
};
class GradientExchange;
struct LossScaledStep;

/// An optimizer. A shared handle. Inside a strategy's replicas, every replica calls it with its own
/// gradients. They are summed over the replicas, and each replica updates its own copies of the
/// variables, concurrently. Otherwise not thread-safe. As tf.keras.optimizers.Optimizer.
///
/// The types of this header, such as Adam, only construct an Optimizer: they have no members of
/// their own, and a copy as an Optimizer is the same optimizer.
class Optimizer {
 public:
  Optimizer() = default;
  virtual ~Optimizer() = default;
  /// @{
  /// Copies refer to the same optimizer.
  Optimizer(const Optimizer&) = default;
  Optimizer(Optimizer&&) noexcept = default;
  Optimizer& operator=(const Optimizer&) = default;
  Optimizer& operator=(Optimizer&&) noexcept = default;
  /// @}
  /// The optimizer that a shared pointer holds, as in std::make_shared<Adam>(1e-3).
  template <std::derived_from<Optimizer> O>
  Optimizer(const std::shared_ptr<O>& optimizer)  // NOLINT: implicit
      : Optimizer(optimizer ? static_cast<const Optimizer&>(*optimizer) : Optimizer()) {}
  bool defined() const { return impl_ != nullptr; }  ///< false for a default-constructed optimizer
  const std::string& name() const;                   ///< name, for example "adam"

  /// Takes a step. A variable with an undefined gradient does not change; the first such step logs
  /// the warning "Gradients do not exist for variables [...]", as Keras does.
  ///
  /// Throws InvalidArgumentError "No gradients provided for any variable: ..." if no gradient is
  /// defined. Also throws it if the lists differ in length, if a gradient and its variable differ
  /// in shape or dtype, or if the variables were made for different numbers of replicas. Throws
  /// RuntimeError "Mixing different ..." in a replica of another strategy than the variables'.
  void apply_gradients(std::vector<Tensor> gradients, const std::vector<Variable>& variables,
                       const ApplyOptions& options = {});
  /// The same for pairs of a gradient and its variable, such as zip() makes.
  void apply_gradients(const std::vector<std::pair<Tensor, Variable>>& gradients,
                       const ApplyOptions& options = {});
  /// Computes the gradients of the scalar `loss` and takes a step. Each gradient is summed over the
  /// replicas as soon as it is computed. Variables without a gradient as in apply_gradients().
  void minimize(const Tensor& loss, const std::vector<Variable>& variables);
  /// The same with the gradients of a tape that has recorded the loss. As `tape` in Keras 2.
  void minimize(const Tensor& loss, const std::vector<Variable>& variables, GradientTape& tape);

  /// The loss times the scale; the loss itself without loss scaling (LossScaleOptimizer()). For
  /// steps whose gradients are computed outside of minimize(), which scales by itself. As
  /// scale_loss() of tf.keras.mixed_precision.LossScaleOptimizer.
  Tensor scale_loss(const Tensor& loss) const;
  /// The loss scale of the next step; 1 without loss scaling.
  double loss_scale() const;
  /// Divides grad() of parameters() by the loss scale now instead of in step(), to clip or inspect
  /// them in between. Does nothing without loss scaling. Throws FailedPreconditionError in a second
  /// call before step().
  void unscale_gradients();

  /// The API of torch.optim: takes a step with grad() of the parameters that were given to the
  /// constructor. Parameters without a gradient do not change, without a warning, as in PyTorch.
  void step();
  void zero_grad();  ///< clears grad() of the parameters
  /// The same, which frees the gradients whatever `set_to_none` is.
  template <std::same_as<bool> SetToNone>
  void zero_grad(SetToNone) {
    zero_grad();
  }
  const std::vector<Variable>& parameters() const;  ///< parameters of step() and zero_grad()

  std::int64_t iterations() const;  ///< number of steps taken
  /// The learning rate of the next step.
  double learning_rate() const;
  /// Whether the learning rate follows a schedule.
  bool scheduled() const;
  /// Sets the rate and replaces a schedule. With several groups of parameters (tandem/optim.h),
  /// sets the rate of the first, and changes those of the others by the same factor.
  void set_learning_rate(const LearningRate& rate);
  /// "iterations" and the slots created so far, named "<optimizer>/<variable>/<slot>".
  std::vector<Variable> variables() const;
  /// Creates the slots of these variables, so that variables() is complete before the first step.
  void build(const std::vector<Variable>& variables);

  /// For Tandem's own code.
  struct Impl;
  /// For Tandem's own code. `exchange` reduces the gradients with other processes before each step
  /// through this handle, as hvd::DistributedOptimizer() does.
  explicit Optimizer(std::shared_ptr<Impl> impl,
                     std::shared_ptr<GradientExchange> exchange = nullptr)
      : impl_(std::move(impl)), exchange_(std::move(exchange)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }  ///< for Tandem's own code
  /// For Tandem's own code: step() with another loss scale.
  void step(LossScaledStep* scaled);
  /// For Tandem's own code. Throws FailedPreconditionError for an undefined optimizer.
  Impl& defined_impl() const;
  /// For Tandem's own code.
  const std::shared_ptr<GradientExchange>& exchange() const { return exchange_; }

 private:
  std::shared_ptr<Impl> impl_;
  std::shared_ptr<GradientExchange> exchange_;
};

/// Pairs of a gradient and its variable, for Optimizer::apply_gradients(). Throws
/// InvalidArgumentError for lists of different lengths.
std::vector<std::pair<Tensor, Variable>> zip(const std::vector<Tensor>& gradients,
                                             const std::vector<Variable>& variables);

/// Adds loss scaling to an optimizer, and is that optimizer. minimize() then scales the loss, and
/// every step divides the gradients, after they were summed over the replicas, and skips the update
/// if they are not finite, on all replicas and processes alike. The scale is among variables(). As
/// tf.keras.mixed_precision.LossScaleOptimizer.
class LossScaleOptimizer : public Optimizer {
 public:
  LossScaleOptimizer() = default;
  /// Throws InvalidArgumentError for options out of range, and FailedPreconditionError if the
  /// optimizer has loss scaling.
  explicit LossScaleOptimizer(Optimizer optimizer, const LossScaleOptions& options = {});
};

/// Options of SGD.
struct SGDOptions {
  LearningRate learning_rate = 0.01;  ///< learning rate
  double momentum = 0.0;              ///< momentum
  bool nesterov = false;              ///< whether to use Nesterov momentum
  double weight_decay = 0.0;          ///< decoupled weight decay
  /// @{
  /// Limits on gradients, applied after they have been summed over the replicas: of the norm of
  /// each gradient, of the absolute value of each element, and of the norm of all gradients
  /// together. At most one may be set.
  std::optional<double> clipnorm{};
  std::optional<double> clipvalue{};
  std::optional<double> global_clipnorm{};
  /// @}
};
/// Stochastic gradient descent. As tf.keras.optimizers.SGD.
class SGD : public Optimizer {
 public:
  SGD();  ///< with default options
  /// @{
  /// With options, a learning rate, or a rate and further options, as SGD(0.1, {.momentum = 0.9}).
  /// `parameters` are for step() and zero_grad(), and may be given first, as in PyTorch. Throws
  /// InvalidArgumentError for options out of range.
  explicit SGD(const SGDOptions& options, std::vector<Variable> parameters = {});
  explicit SGD(const LearningRate& rate, ParameterList parameters = {});
  explicit SGD(ParameterList parameters, const SGDOptions& options = {});
  SGD(ParameterList parameters, const LearningRate& rate);
  template <std::same_as<SGDOptions> Options = SGDOptions>
  SGD(const LearningRate& rate, Options options)
      : SGD((options.learning_rate = rate, std::move(options))) {}
  /// @}
  /// With a momentum, as SGD(0.01, 0.9).
  SGD(const LearningRate& rate, double momentum, bool nesterov = false);
};

/// Options of Adam.
struct AdamOptions {
  LearningRate learning_rate = 1e-3;  ///< learning rate
  double beta_1 = 0.9;                ///< decay rate of the mean of gradients
  double beta_2 = 0.999;              ///< decay rate of the mean of squared gradients
  double epsilon = 1e-7;              ///< added to the denominator
  bool amsgrad = false;               ///< divide by the largest mean so far (Reddi et al. 2018)
  double weight_decay = 0.0;          ///< decoupled weight decay
  /// @{
  /// Limits on gradients, applied after they have been summed over the replicas: of the norm of
  /// each gradient, of the absolute value of each element, and of the norm of all gradients
  /// together. At most one may be set.
  std::optional<double> clipnorm{};
  std::optional<double> clipvalue{};
  std::optional<double> global_clipnorm{};
  /// @}
};
/// Adam (Kingma and Ba 2015). As tf.keras.optimizers.Adam.
class Adam : public Optimizer {
 public:
  Adam();  ///< with default options
  /// @{
  /// With options, a learning rate, or a rate and further options, as SGD(0.1, {.momentum = 0.9}).
  /// `parameters` are for step() and zero_grad(), and may be given first, as in PyTorch. Throws
  /// InvalidArgumentError for options out of range.
  explicit Adam(const AdamOptions& options, std::vector<Variable> parameters = {});
  explicit Adam(const LearningRate& rate, ParameterList parameters = {});
  explicit Adam(ParameterList parameters, const AdamOptions& options = {});
  Adam(ParameterList parameters, const LearningRate& rate);
  template <std::same_as<AdamOptions> Options = AdamOptions>
  Adam(const LearningRate& rate, Options options)
      : Adam((options.learning_rate = rate, std::move(options))) {}
  /// @}
};

/// Options of AdamW.
struct AdamWOptions {
  LearningRate learning_rate = 1e-3;  ///< learning rate
  double weight_decay = 0.004;        ///< decoupled weight decay
  double beta_1 = 0.9;                ///< decay rate of the mean of gradients
  double beta_2 = 0.999;              ///< decay rate of the mean of squared gradients
  double epsilon = 1e-7;              ///< added to the denominator
  bool amsgrad = false;               ///< divide by the largest mean so far (Reddi et al. 2018)
  /// @{
  /// Limits on gradients, applied after they have been summed over the replicas: of the norm of
  /// each gradient, of the absolute value of each element, and of the norm of all gradients
  /// together. At most one may be set.
  std::optional<double> clipnorm{};
  std::optional<double> clipvalue{};
  std::optional<double> global_clipnorm{};
  /// @}
};
/// AdamW (Loshchilov and Hutter 2019). As tf.keras.optimizers.AdamW.
class AdamW : public Optimizer {
 public:
  AdamW();  ///< with default options
  /// @{
  /// With options, a learning rate, or a rate and further options, as SGD(0.1, {.momentum = 0.9}).
  /// `parameters` are for step() and zero_grad(), and may be given first, as in PyTorch. Throws
  /// InvalidArgumentError for options out of range.
  explicit AdamW(const AdamWOptions& options, std::vector<Variable> parameters = {});
  explicit AdamW(const LearningRate& rate, ParameterList parameters = {});
  explicit AdamW(ParameterList parameters, const AdamWOptions& options = {});
  AdamW(ParameterList parameters, const LearningRate& rate);
  template <std::same_as<AdamWOptions> Options = AdamWOptions>
  AdamW(const LearningRate& rate, Options options)
      : AdamW((options.learning_rate = rate, std::move(options))) {}
  /// @}
};

/// Options of RMSprop.
struct RMSpropOptions {
  LearningRate learning_rate = 1e-3;  ///< learning rate
  double rho = 0.9;                   ///< decay rate of the mean of squared gradients
  double momentum = 0.0;              ///< momentum
  double epsilon = 1e-7;              ///< added to the denominator
  bool centered = false;              ///< whether to subtract the squared mean of gradients
  double weight_decay = 0.0;          ///< decoupled weight decay
  /// @{
  /// Limits on gradients, applied after they have been summed over the replicas: of the norm of
  /// each gradient, of the absolute value of each element, and of the norm of all gradients
  /// together. At most one may be set.
  std::optional<double> clipnorm{};
  std::optional<double> clipvalue{};
  std::optional<double> global_clipnorm{};
  /// @}
};
/// RMSprop. As tf.keras.optimizers.RMSprop.
class RMSprop : public Optimizer {
 public:
  RMSprop();  ///< with default options
  /// @{
  /// With options, a learning rate, or a rate and further options, as SGD(0.1, {.momentum = 0.9}).
  /// `parameters` are for step() and zero_grad(), and may be given first, as in PyTorch. Throws
  /// InvalidArgumentError for options out of range.
  explicit RMSprop(const RMSpropOptions& options, std::vector<Variable> parameters = {});
  explicit RMSprop(const LearningRate& rate, ParameterList parameters = {});
  explicit RMSprop(ParameterList parameters, const RMSpropOptions& options = {});
  RMSprop(ParameterList parameters, const LearningRate& rate);
  template <std::same_as<RMSpropOptions> Options = RMSpropOptions>
  RMSprop(const LearningRate& rate, Options options)
      : RMSprop((options.learning_rate = rate, std::move(options))) {}
  /// @}
};

/// Options of Adagrad.
struct AdagradOptions {
  LearningRate learning_rate = 1e-3;       ///< learning rate
  double initial_accumulator_value = 0.1;  ///< initial value of the sum of squared gradients
  double epsilon = 1e-7;                   ///< added to the denominator
  double weight_decay = 0.0;               ///< decoupled weight decay
  /// @{
  /// Limits on gradients, applied after they have been summed over the replicas: of the norm of
  /// each gradient, of the absolute value of each element, and of the norm of all gradients
  /// together. At most one may be set.
  std::optional<double> clipnorm{};
  std::optional<double> clipvalue{};
  std::optional<double> global_clipnorm{};
  /// @}
};
/// Adagrad (Duchi et al. 2011). As tf.keras.optimizers.Adagrad.
class Adagrad : public Optimizer {
 public:
  Adagrad();  ///< with default options
  /// @{
  /// With options, a learning rate, or a rate and further options, as SGD(0.1, {.momentum = 0.9}).
  /// `parameters` are for step() and zero_grad(), and may be given first, as in PyTorch. Throws
  /// InvalidArgumentError for options out of range.
  explicit Adagrad(const AdagradOptions& options, std::vector<Variable> parameters = {});
  explicit Adagrad(const LearningRate& rate, ParameterList parameters = {});
  explicit Adagrad(ParameterList parameters, const AdagradOptions& options = {});
  Adagrad(ParameterList parameters, const LearningRate& rate);
  template <std::same_as<AdagradOptions> Options = AdagradOptions>
  Adagrad(const LearningRate& rate, Options options)
      : Adagrad((options.learning_rate = rate, std::move(options))) {}
  /// @}
};

/// Options of LAMB.
struct LAMBOptions {
  LearningRate learning_rate = 1e-3;  ///< learning rate
  double beta_1 = 0.9;                ///< decay rate of the mean of gradients
  double beta_2 = 0.999;              ///< decay rate of the mean of squared gradients
  double epsilon = 1e-6;              ///< added to the denominator; 1e-6, unlike Keras
  double weight_decay = 0.0;          ///< weight decay; a part of the direction that is scaled
  /// @{
  /// Limits on gradients, applied after they have been summed over the replicas: of the norm of
  /// each gradient, of the absolute value of each element, and of the norm of all gradients
  /// together. At most one may be set.
  std::optional<double> clipnorm{};
  std::optional<double> clipvalue{};
  std::optional<double> global_clipnorm{};
  /// @}
};
/// LAMB (You et al. 2020, algorithm 2): scales the step of a variable to the variable's norm. As
/// the paper and apex.optimizers.FusedLAMB, and unlike Keras 3, includes `weight_decay` in the
/// direction that is scaled.
class LAMB : public Optimizer {
 public:
  LAMB();  ///< with default options
  /// @{
  /// With options, a learning rate, or a rate and further options, as SGD(0.1, {.momentum = 0.9}).
  /// `parameters` are for step() and zero_grad(), and may be given first, as in PyTorch. Throws
  /// InvalidArgumentError for options out of range.
  explicit LAMB(const LAMBOptions& options, std::vector<Variable> parameters = {});
  explicit LAMB(const LearningRate& rate, ParameterList parameters = {});
  explicit LAMB(ParameterList parameters, const LAMBOptions& options = {});
  LAMB(ParameterList parameters, const LearningRate& rate);
  template <std::same_as<LAMBOptions> Options = LAMBOptions>
  LAMB(const LearningRate& rate, Options options)
      : LAMB((options.learning_rate = rate, std::move(options))) {}
  /// @}
};

/// The optimizer of this name ("sgd", "adam", ...) with default options. Throws
/// InvalidArgumentError that lists the names.
Optimizer from_name(std::string_view name, std::optional<LearningRate> rate = std::nullopt);

/// Learning-rate schedules. As tf.keras.optimizers.schedules; steps count from 0.
namespace schedules {

/// initial * decay_rate^(step / decay_steps); `staircase` rounds the exponent down. As Keras's
/// ExponentialDecay.
LearningRate exponential_decay(double initial, std::int64_t decay_steps, double decay_rate,
                               bool staircase = false);
/// values[i] up to and including step boundaries[i], then the last of boundaries.size() + 1 values.
/// As Keras's PiecewiseConstantDecay.
LearningRate piecewise_constant(std::vector<std::int64_t> boundaries, std::vector<double> values);
/// From `initial` to `end` over decay_steps along (1 - step / decay_steps)^power; `cycle` restarts
/// with a longer period. As Keras's PolynomialDecay.
LearningRate polynomial_decay(double initial, std::int64_t decay_steps, double end = 1e-4,
                              double power = 1.0, bool cycle = false);
/// initial / (1 + decay_rate * step / decay_steps); `staircase` rounds the quotient down. As
/// Keras's InverseTimeDecay.
LearningRate inverse_time_decay(double initial, std::int64_t decay_steps, double decay_rate,
                                bool staircase = false);
/// Options of cosine_decay().
struct CosineOptions {
  double alpha = 0.0;                     ///< fraction of the rate that remains at the end
  std::optional<double> warmup_target{};  ///< rate at the end of the warm-up; default: no warm-up
  std::int64_t warmup_steps = 0;          ///< length of the warm-up
};
/// A linear warm-up from `initial` to warmup_target, if given, then a cosine decay to alpha times
/// that rate over decay_steps. As Keras's CosineDecay.
LearningRate cosine_decay(double initial, std::int64_t decay_steps,
                          const CosineOptions& options = {});

/// The arguments of ExponentialDecay and InverseTimeDecay by name, as Keras's.
struct DecayOptions {
  double initial_learning_rate = 0.0;  ///< the rate at step 0
  std::int64_t decay_steps = 0;        ///< steps of one decay
  double decay_rate = 0.0;             ///< factor of one decay
  bool staircase = false;              ///< whether the rate changes once per decay_steps
};
/// The last of them alone.
struct StaircaseOptions {
  bool staircase = false;  ///< as DecayOptions::staircase
};
/// The arguments of PolynomialDecay by name, as Keras's.
struct PolynomialDecayOptions {
  double initial_learning_rate = 0.0;  ///< the rate at step 0
  std::int64_t decay_steps = 0;        ///< steps until the end
  double end_learning_rate = 1e-4;     ///< the rate at the end
  double power = 1.0;                  ///< power of the polynomial
  bool cycle = false;                  ///< whether to restart with a longer period
};
/// The arguments of CosineDecay by name, as Keras's.
struct CosineDecayOptions {
  double initial_learning_rate = 0.0;     ///< the rate at step 0
  std::int64_t decay_steps = 0;           ///< steps of the decay
  double alpha = 0.0;                     ///< as CosineOptions::alpha
  std::optional<double> warmup_target{};  ///< as CosineOptions::warmup_target
  std::int64_t warmup_steps = 0;          ///< as CosineOptions::warmup_steps
};

/// exponential_decay() as a type. A copy as a LearningRate is the same schedule.
class ExponentialDecay : public LearningRate {
 public:
  /// With named arguments.
  explicit ExponentialDecay(const DecayOptions& options)
      : ExponentialDecay(options.initial_learning_rate, options.decay_steps, options.decay_rate,
                         options.staircase) {}
  /// As exponential_decay().
  ExponentialDecay(double initial_learning_rate, std::int64_t decay_steps, double decay_rate,
                   bool staircase = false)
      : LearningRate(exponential_decay(initial_learning_rate, decay_steps, decay_rate, staircase)) {
  }
  /// With the last argument by name.
  template <std::same_as<StaircaseOptions> Options = StaircaseOptions>
  ExponentialDecay(double initial_learning_rate, std::int64_t decay_steps, double decay_rate,
                   const Options& options)
      : ExponentialDecay(initial_learning_rate, decay_steps, decay_rate, options.staircase) {}
};
/// piecewise_constant() as a type.
class PiecewiseConstantDecay : public LearningRate {
 public:
  /// As piecewise_constant().
  PiecewiseConstantDecay(std::vector<std::int64_t> boundaries, std::vector<double> values)
      : LearningRate(piecewise_constant(std::move(boundaries), std::move(values))) {}
};
/// polynomial_decay() as a type.
class PolynomialDecay : public LearningRate {
 public:
  /// With named arguments.
  explicit PolynomialDecay(const PolynomialDecayOptions& options)
      : PolynomialDecay(options.initial_learning_rate, options.decay_steps,
                        options.end_learning_rate, options.power, options.cycle) {}
  /// As polynomial_decay().
  PolynomialDecay(double initial_learning_rate, std::int64_t decay_steps,
                  double end_learning_rate = 1e-4, double power = 1.0, bool cycle = false)
      : LearningRate(polynomial_decay(initial_learning_rate, decay_steps, end_learning_rate, power,
                                      cycle)) {}
};
/// inverse_time_decay() as a type.
class InverseTimeDecay : public LearningRate {
 public:
  /// With named arguments.
  explicit InverseTimeDecay(const DecayOptions& options)
      : InverseTimeDecay(options.initial_learning_rate, options.decay_steps, options.decay_rate,
                         options.staircase) {}
  /// As inverse_time_decay().
  InverseTimeDecay(double initial_learning_rate, std::int64_t decay_steps, double decay_rate,
                   bool staircase = false)
      : LearningRate(
            inverse_time_decay(initial_learning_rate, decay_steps, decay_rate, staircase)) {}
  /// With the last argument by name.
  template <std::same_as<StaircaseOptions> Options = StaircaseOptions>
  InverseTimeDecay(double initial_learning_rate, std::int64_t decay_steps, double decay_rate,
                   const Options& options)
      : InverseTimeDecay(initial_learning_rate, decay_steps, decay_rate, options.staircase) {}
};
/// cosine_decay() as a type.
class CosineDecay : public LearningRate {
 public:
  /// With named arguments.
  explicit CosineDecay(const CosineDecayOptions& options)
      : CosineDecay(options.initial_learning_rate, options.decay_steps,
                    CosineOptions{.alpha = options.alpha,
                                  .warmup_target = options.warmup_target,
                                  .warmup_steps = options.warmup_steps}) {}
  /// As cosine_decay().
  CosineDecay(double initial_learning_rate, std::int64_t decay_steps,
              const CosineOptions& options = {})
      : LearningRate(cosine_decay(initial_learning_rate, decay_steps, options)) {}
  /// With the fraction of the rate that remains at the end.
  CosineDecay(double initial_learning_rate, std::int64_t decay_steps, double alpha)
      : CosineDecay(initial_learning_rate, decay_steps, CosineOptions{.alpha = alpha}) {}
};

}  // namespace schedules
}  // namespace tandem::optimizers
