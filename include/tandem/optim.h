/// @file
/// Optimizers and clipping with the names, defaults and rules of
/// PyTorch. They are optimizers::Optimizer, so compile(), GradScaler, DistributedDataParallel,
/// hvd::DistributedOptimizer and checkpoints take them.
/// @code
/// td::optim::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.9});
/// td::optim::lr_scheduler::StepLR scheduler(optimizer, 30, 0.1);  // tandem/lr_scheduler.h
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
#include <tuple>
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

/// Options of SGD in braces, and a group of parameters with options of its own. As the arguments of
/// torch.optim.SGD.
struct SGDGroup {
  optimizers::ParameterList params{};  ///< parameters, in a group alone
  std::optional<double> lr{};          ///< learning rate; default: 1e-3
  std::optional<double> momentum{};    ///< momentum; default: 0
  std::optional<double> dampening{};   ///< what momentum leaves out of the gradient; default: 0
  std::optional<double>
      weight_decay{};              ///< times the variable is added to the gradient; default: 0
  std::optional<bool> nesterov{};  ///< whether to use Nesterov momentum; default: false
};
/// The options of SGD, set one after another: `SGDOptions(0.1).momentum(0.9)`. As
/// torch::optim::SGDOptions.
class SGDOptions {
 public:
  /// With this learning rate.
  explicit SGDOptions(double lr) { group_.lr = lr; }
  /// @{
  /// Sets the member of SGDGroup.
  SGDOptions& lr(double value) {
    group_.lr = value;
    return *this;
  }
  SGDOptions& momentum(double value) {
    group_.momentum = value;
    return *this;
  }
  SGDOptions& dampening(double value) {
    group_.dampening = value;
    return *this;
  }
  SGDOptions& weight_decay(double value) {
    group_.weight_decay = value;
    return *this;
  }
  SGDOptions& nesterov(bool value) {
    group_.nesterov = value;
    return *this;
  }
  /// @}
  /// The options as an aggregate.
  operator const SGDGroup&() const { return group_; }  // NOLINT: usable as options

 private:
  SGDGroup group_;
};
/// Stochastic gradient descent. As torch.optim.SGD: the momentum does not contain the learning
/// rate, and its first step is not dampened.
class SGD : public Optimizer {
 public:
  using Options = SGDGroup;  ///< options
  /// @{
  /// With parameters, or with groups of parameters, `{{.params = a, .lr = 0.1}, {.params = b}}`, in
  /// which options that are not set are those of `defaults`. Throws InvalidArgumentError for no
  /// parameters, params outside of a group, options out of range, a parameter in several groups,
  /// and Nesterov momentum without a momentum or with dampening.
  explicit SGD(optimizers::ParameterList params, const SGDGroup& options = {});
  SGD(optimizers::ParameterList params, double lr);
  explicit SGD(std::vector<SGDGroup> groups, const SGDGroup& defaults = {});
  SGD(std::vector<SGDGroup> groups, double lr);
  explicit SGD(std::initializer_list<SGDGroup> groups, const SGDGroup& defaults = {});
  explicit SGD(std::initializer_list<ParamsWithOptions<SGDGroup>> groups,
               const SGDGroup& defaults = {});
  /// @}
};

/// The two decay rates of Adam.
class Betas {
 public:
  Betas() = default;
  /// The decay rates of the means of gradients and of squared gradients.
  Betas(double beta_1, double beta_2) : values_(std::pair(beta_1, beta_2)) {}
  /// The same of a pair.
  Betas(const std::pair<double, double>& betas) : values_(betas) {}  // NOLINT: implicit
  /// The same of a tuple.
  Betas(const std::tuple<double, double>& betas)  // NOLINT: implicit
      : Betas(std::get<0>(betas), std::get<1>(betas)) {}
  /// The rates; none: not set.
  const std::optional<std::pair<double, double>>& values() const { return values_; }

 private:
  std::optional<std::pair<double, double>> values_;
};

/// Options of Adam in braces, and a group of parameters with options of its own. As the arguments
/// of torch.optim.Adam.
struct AdamGroup {
  optimizers::ParameterList params{};  ///< parameters, in a group alone
  std::optional<double> lr{};          ///< learning rate; default: 1e-3
  Betas betas{};                       ///< decay rates; default: {0.9, 0.999}
  std::optional<double> eps{};         ///< added to the root of the corrected moment; default: 1e-8
  std::optional<double>
      weight_decay{};             ///< times the variable is added to the gradient; default: 0
  std::optional<bool> amsgrad{};  ///< AMSGrad (Reddi et al. 2018), in all groups; default: false
};
/// The options of Adam, set one after another: `AdamOptions(1e-3).eps(1e-7)`. As
/// torch::optim::AdamOptions.
class AdamOptions {
 public:
  /// With this learning rate.
  explicit AdamOptions(double lr = 1e-3) { group_.lr = lr; }
  /// @{
  /// Sets the member of AdamGroup.
  AdamOptions& lr(double value) {
    group_.lr = value;
    return *this;
  }
  AdamOptions& betas(const Betas& value) {
    group_.betas = value;
    return *this;
  }
  AdamOptions& eps(double value) {
    group_.eps = value;
    return *this;
  }
  AdamOptions& weight_decay(double value) {
    group_.weight_decay = value;
    return *this;
  }
  AdamOptions& amsgrad(bool value) {
    group_.amsgrad = value;
    return *this;
  }
  /// @}
  /// The options as an aggregate.
  operator const AdamGroup&() const { return group_; }  // NOLINT: usable as options

 private:
  AdamGroup group_;
};
/// Adam (Kingma and Ba 2015). As torch.optim.Adam. Throws
/// UnimplementedError for amsgrad in some groups alone.
class Adam : public Optimizer {
 public:
  using Options = AdamGroup;  ///< options
  /// @{
  /// As the constructors of SGD.
  explicit Adam(optimizers::ParameterList params, const AdamGroup& options = {});
  Adam(optimizers::ParameterList params, double lr);
  explicit Adam(std::vector<AdamGroup> groups, const AdamGroup& defaults = {});
  Adam(std::vector<AdamGroup> groups, double lr);
  explicit Adam(std::initializer_list<AdamGroup> groups, const AdamGroup& defaults = {});
  explicit Adam(std::initializer_list<ParamsWithOptions<AdamGroup>> groups,
                const AdamGroup& defaults = {});
  /// @}
};

/// Options of AdamW in braces, and a group of parameters with options of its own. As the arguments
/// of torch.optim.AdamW.
struct AdamWGroup {
  optimizers::ParameterList params{};  ///< parameters, in a group alone
  std::optional<double> lr{};          ///< learning rate; default: 1e-3
  Betas betas{};                       ///< decay rates; default: {0.9, 0.999}
  std::optional<double> eps{};         ///< added to the root of the corrected moment; default: 1e-8
  std::optional<double> weight_decay{};  ///< decoupled weight decay; default: 0.01
  std::optional<bool> amsgrad{};         ///< as in AdamGroup
};
/// The options of AdamW, set one after another: `AdamWOptions(1e-3).weight_decay(0.1)`. As
/// torch::optim::AdamWOptions.
class AdamWOptions {
 public:
  /// With this learning rate.
  explicit AdamWOptions(double lr = 1e-3) { group_.lr = lr; }
  /// @{
  /// Sets the member of AdamWGroup.
  AdamWOptions& lr(double value) {
    group_.lr = value;
    return *this;
  }
  AdamWOptions& betas(const Betas& value) {
    group_.betas = value;
    return *this;
  }
  AdamWOptions& eps(double value) {
    group_.eps = value;
    return *this;
  }
  AdamWOptions& weight_decay(double value) {
    group_.weight_decay = value;
    return *this;
  }
  AdamWOptions& amsgrad(bool value) {
    group_.amsgrad = value;
    return *this;
  }
  /// @}
  /// The options as an aggregate.
  operator const AdamWGroup&() const { return group_; }  // NOLINT: usable as options

 private:
  AdamWGroup group_;
};
/// AdamW (Loshchilov and Hutter 2019). As torch.optim.AdamW. Throws as
/// Adam.
class AdamW : public Optimizer {
 public:
  using Options = AdamWGroup;  ///< options
  /// @{
  /// As the constructors of SGD.
  explicit AdamW(optimizers::ParameterList params, const AdamWGroup& options = {});
  AdamW(optimizers::ParameterList params, double lr);
  explicit AdamW(std::vector<AdamWGroup> groups, const AdamWGroup& defaults = {});
  AdamW(std::vector<AdamWGroup> groups, double lr);
  explicit AdamW(std::initializer_list<AdamWGroup> groups, const AdamWGroup& defaults = {});
  explicit AdamW(std::initializer_list<ParamsWithOptions<AdamWGroup>> groups,
                 const AdamWGroup& defaults = {});
  /// @}
};

/// Options of RMSprop in braces, and a group of parameters with options of its own. As the
/// arguments of torch.optim.RMSprop.
struct RMSpropGroup {
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
/// The options of RMSprop, set one after another: `RMSpropOptions(1e-2).alpha(0.9)`. As
/// torch::optim::RMSpropOptions.
class RMSpropOptions {
 public:
  /// With this learning rate.
  explicit RMSpropOptions(double lr = 1e-2) { group_.lr = lr; }
  /// @{
  /// Sets the member of RMSpropGroup.
  RMSpropOptions& lr(double value) {
    group_.lr = value;
    return *this;
  }
  RMSpropOptions& alpha(double value) {
    group_.alpha = value;
    return *this;
  }
  RMSpropOptions& eps(double value) {
    group_.eps = value;
    return *this;
  }
  RMSpropOptions& weight_decay(double value) {
    group_.weight_decay = value;
    return *this;
  }
  RMSpropOptions& momentum(double value) {
    group_.momentum = value;
    return *this;
  }
  RMSpropOptions& centered(bool value) {
    group_.centered = value;
    return *this;
  }
  /// @}
  /// The options as an aggregate.
  operator const RMSpropGroup&() const { return group_; }  // NOLINT: usable as options

 private:
  RMSpropGroup group_;
};
/// RMSprop. As torch.optim.RMSprop. All groups have a momentum or none has, and all are centered or
/// none is: UnimplementedError.
class RMSprop : public Optimizer {
 public:
  using Options = RMSpropGroup;  ///< options
  /// @{
  /// As the constructors of SGD.
  explicit RMSprop(optimizers::ParameterList params, const RMSpropGroup& options = {});
  RMSprop(optimizers::ParameterList params, double lr);
  explicit RMSprop(std::vector<RMSpropGroup> groups, const RMSpropGroup& defaults = {});
  RMSprop(std::vector<RMSpropGroup> groups, double lr);
  explicit RMSprop(std::initializer_list<RMSpropGroup> groups, const RMSpropGroup& defaults = {});
  explicit RMSprop(std::initializer_list<ParamsWithOptions<RMSpropGroup>> groups,
                   const RMSpropGroup& defaults = {});
  /// @}
};

/// Options of Adagrad in braces, and a group of parameters with options of its own. As the
/// arguments of torch.optim.Adagrad.
struct AdagradGroup {
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
/// The options of Adagrad, set one after another: `AdagradOptions(1e-2).eps(1e-7)`. As
/// torch::optim::AdagradOptions.
class AdagradOptions {
 public:
  /// With this learning rate.
  explicit AdagradOptions(double lr = 1e-2) { group_.lr = lr; }
  /// @{
  /// Sets the member of AdagradGroup.
  AdagradOptions& lr(double value) {
    group_.lr = value;
    return *this;
  }
  AdagradOptions& lr_decay(double value) {
    group_.lr_decay = value;
    return *this;
  }
  AdagradOptions& weight_decay(double value) {
    group_.weight_decay = value;
    return *this;
  }
  AdagradOptions& initial_accumulator_value(double value) {
    group_.initial_accumulator_value = value;
    return *this;
  }
  AdagradOptions& eps(double value) {
    group_.eps = value;
    return *this;
  }
  /// @}
  /// The options as an aggregate.
  operator const AdagradGroup&() const { return group_; }  // NOLINT: usable as options

 private:
  AdagradGroup group_;
};
/// Adagrad (Duchi et al. 2011). As torch.optim.Adagrad.
class Adagrad : public Optimizer {
 public:
  using Options = AdagradGroup;  ///< options
  /// @{
  /// As the constructors of SGD. Throws UnimplementedError for groups with other initial values.
  explicit Adagrad(optimizers::ParameterList params, const AdagradGroup& options = {});
  Adagrad(optimizers::ParameterList params, double lr);
  explicit Adagrad(std::vector<AdagradGroup> groups, const AdagradGroup& defaults = {});
  Adagrad(std::vector<AdagradGroup> groups, double lr);
  explicit Adagrad(std::initializer_list<AdagradGroup> groups, const AdagradGroup& defaults = {});
  explicit Adagrad(std::initializer_list<ParamsWithOptions<AdagradGroup>> groups,
                   const AdagradGroup& defaults = {});
  /// @}
};

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
