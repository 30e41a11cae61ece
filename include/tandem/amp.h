/// @file
/// Automatic mixed precision: autocast and gradient scaling as in torch.amp, and initialize() with
/// scale_loss() as in NVIDIA's Apex. Dtype policies of layers, as in Keras, are in
/// tandem/dtype_policy.h; all use the same loss scale.
/// @code
/// td::amp::GradScaler scaler;
/// {
///   td::amp::autocast cast(td::float16);
///   scaler.scale(loss_fn(y, net(x))).backward();
/// }
/// scaler.step(optimizer);
/// scaler.update();
/// @endcode
#pragma once

#include <concepts>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/device.h"
#include "tandem/model.h"
#include "tandem/optimizers.h"
#include "tandem/tensor.h"

/// Automatic mixed precision. As torch.amp and apex.amp.
namespace tandem::amp {

/// Options of autocast.
struct AutocastOptions {
  /// "cpu" or "gpu" (also "cuda"): whose rules apply. Default: the device on which operations run
  /// when the scope opens.
  std::string device_type{};
  /// float16 or bfloat16. Default: float16 on GPUs, bfloat16 on CPUs.
  std::optional<DType> dtype{};
  bool enabled = true;        ///< false: autocast is off within the scope
  bool cache_enabled = true;  ///< whether a weight is cast only once in the outermost scope
};

/// While an object of this class lives, operations of its thread and of replicas that it runs cast
/// their floating inputs. As torch.autocast, with its lists:
///
/// | operations | inputs become |
/// | --- | --- |
/// | matrix products, convolutions, attention, bias_add | the scope's dtype |
/// | losses; on GPUs also exp, log, pow, sums, softmax, layer_norm, ... | float32 |
/// | element-wise ones on two tensors, where, concat, stack, add_n | the widest of their dtypes |
/// | all others | unchanged |
///
/// float64 tensors are left alone. Gradients have the dtypes of the forward pass, so a backward
/// pass is not affected by the scope. Traced functions are traced again for other settings.
///
/// Scopes nest, and end in reverse order on the thread that opened them.
class autocast {
 public:
  /// Opens a scope. Throws InvalidArgumentError for a dtype other than float16 and bfloat16, and
  /// for another device type.
  explicit autocast(const AutocastOptions& options = {});
  /// Opens a scope for this dtype.
  explicit autocast(DType dtype) : autocast(AutocastOptions{.dtype = dtype}) {}
  /// Opens a scope for this device type, and the other arguments in the order of torch.autocast.
  /// A template, so that options in braces are not a string.
  template <std::convertible_to<std::string> Type>
  explicit autocast(const Type& device_type, std::optional<DType> dtype = std::nullopt,
                    bool enabled = true, bool cache_enabled = true)
      : autocast(AutocastOptions{.device_type = device_type,
                                 .dtype = dtype,
                                 .enabled = enabled,
                                 .cache_enabled = cache_enabled}) {}
  /// The same with the type of a Device: autocast(device.type(), bfloat16).
  template <std::same_as<DeviceType> Type>
  explicit autocast(Type device_type, std::optional<DType> dtype = std::nullopt,
                    bool enabled = true, bool cache_enabled = true)
      : autocast(device_type == DeviceType::kGpu ? "gpu" : "cpu", dtype, enabled, cache_enabled) {}
  ~autocast();  ///< closes the scope
  autocast(const autocast&) = delete;
  autocast& operator=(const autocast&) = delete;

 private:
  struct Scope;
  std::unique_ptr<Scope> scope_;
};

/// Whether autocast is on for the calling thread.
bool is_autocast_enabled();
/// The dtype of the calling thread's scope; none if autocast is off.
std::optional<DType> autocast_dtype();

/// Options of GradScaler. As the arguments of torch.amp.GradScaler.
struct GradScalerOptions {
  double init_scale = 65536.0;          ///< first scale
  double growth_factor = 2.0;           ///< factor after growth_interval good steps; above 1
  double backoff_factor = 0.5;          ///< factor after a step with an overflow; between 0 and 1
  std::int64_t growth_interval = 2000;  ///< number of good steps until the scale grows
  bool enabled = true;                  ///< false: all functions pass through
};

/// Scales a loss, and skips steps whose gradients are not finite. As torch.amp.GradScaler. A
/// handle: copies share their state.
///
/// Works eagerly and in traced functions, in which scale() to update() are in one function, and in
/// replicas of a strategy, each of which calls it. The decision to skip is made on gradients that
/// have been reduced, so all ranks and replicas make the same one.
class GradScaler {
 public:
  /// Throws InvalidArgumentError for options out of range.
  explicit GradScaler(const GradScalerOptions& options = {});
  /// As torch.amp.GradScaler, which takes the device's type first: it serves all devices. Throws
  /// InvalidArgumentError for a type other than "cpu", "gpu" and "cuda".
  template <std::convertible_to<std::string> Name>
  explicit GradScaler(const Name& device, const GradScalerOptions& options = {})
      : GradScaler(options) {
    require_device(device);
  }

  /// @{
  /// The loss, or each of several outputs, times the scale.
  Tensor scale(const Tensor& loss);
  std::vector<Tensor> scale(const std::vector<Tensor>& outputs);
  /// @}
  /// Divides grad() of the optimizer's parameters by the scale, so that they can be clipped before
  /// step(). Throws FailedPreconditionError "unscale_() has already been called on this optimizer
  /// since the last update()." or "unscale_() is being called after step().", and
  /// InvalidArgumentError "Attempting to unscale FP16 gradients."
  void unscale_(optimizers::Optimizer& optimizer);
  /// Takes a step of the optimizer if its gradients are finite. Divides them unless unscale_() did.
  /// Throws FailedPreconditionError "step() has already been called since the last update()." and
  /// "No inf checks were recorded for this optimizer.", if no parameter has a gradient.
  void step(optimizers::Optimizer& optimizer);
  /// Changes the scale after the steps of all optimizers: reduces it if one of them was skipped. A
  /// `new_scale` replaces it. Throws FailedPreconditionError "No inf checks were recorded prior to
  /// update.", and InvalidArgumentError for a new scale that is not positive and finite.
  void update(std::optional<double> new_scale = std::nullopt);

  double get_scale() const;                  ///< the scale; 1 if not enabled
  double get_growth_factor() const;          ///< GradScalerOptions::growth_factor
  double get_backoff_factor() const;         ///< GradScalerOptions::backoff_factor
  std::int64_t get_growth_interval() const;  ///< GradScalerOptions::growth_interval
  bool is_enabled() const;                   ///< GradScalerOptions::enabled

  /// "scale", "growth_factor", "backoff_factor", "growth_interval" and "_growth_tracker"; empty if
  /// not enabled.
  std::map<std::string, double> state_dict() const;
  /// Restores scale and tracker. Throws InvalidArgumentError "The source state dict is empty,
  /// possibly because it was saved from a disabled instance of GradScaler." or for missing values,
  /// and FailedPreconditionError for other factors than those of an update() that was traced; the
  /// state is unchanged then.
  void load_state_dict(const std::map<std::string, double>& state);
  /// The state as variables, for checkpoints; empty if not enabled.
  std::vector<Variable> variables() const;

 private:
  static void require_device(const std::string& device);

  struct State;
  std::shared_ptr<State> state_;
};

/// A loss scale of initialize(): a number, or "dynamic".
class LossScaleChoice {
 public:
  /// A fixed scale.
  LossScaleChoice(double scale) : scale_(scale) {}  // NOLINT: implicit
  /// "dynamic". Throws InvalidArgumentError for another string.
  LossScaleChoice(const char* text);  // NOLINT: implicit
  /// The fixed scale; none for a dynamic one.
  const std::optional<double>& fixed() const { return scale_; }

 private:
  std::optional<double> scale_;
};

/// Options of initialize(). As the arguments of apex.amp.initialize. Those without a value have
/// that of the optimization level:
///
/// |level|cast_model_type|patch_torch_functions|keep_batchnorm_fp32|master_weights|loss_scale|
/// | --- | --- | --- | --- | --- | --- |
/// | O0 | float32 | false | - | false | 1.0 |
/// | O1 | - | true | - | - | "dynamic" |
/// | O2 | `dtype` | false | true | true | "dynamic" |
/// | O3 | `dtype` | false | false | false | 1.0 |
struct InitializeOptions {
  bool enabled = true;           ///< false: initialize() changes nothing
  std::string opt_level = "O1";  ///< optimization level
  /// The lower dtype: float16 as in Apex, or bfloat16.
  DType dtype = float16;
  std::optional<DType> cast_model_type{};       ///< dtype in which the model computes
  std::optional<bool> patch_torch_functions{};  ///< whether calls of the model run under autocast
  std::optional<bool> keep_batchnorm_fp32{};    ///< whether normalisations stay in float32
  std::optional<bool> master_weights{};         ///< whether variables stay in float32
  std::optional<LossScaleChoice> loss_scale{};  ///< loss scale
  std::optional<DType> cast_model_outputs{};    ///< dtype of outputs; O2, O3: float32
  int num_losses = 1;                           ///< number of losses with a scale of their own
  double min_loss_scale = 0.0;                  ///< lower limit of a dynamic scale
  double max_loss_scale = 16777216.0;           ///< upper limit of a dynamic scale
};

/// Prepares models and optimizers for mixed precision, before the first step: the models' layers
/// get a dtype policy or run under autocast, and the optimizers get a loss scale. As
/// apex.amp.initialize. Throws InvalidArgumentError for an unknown level and for options that
/// exclude each other, with Apex's messages, and for td::nn modules at O1, O2 and O3, which would
/// have no effect on them.
void initialize(const std::vector<Layer>& models,
                const std::vector<optimizers::Optimizer>& optimizers,
                const InitializeOptions& options = {});
/// The same for one model and one optimizer, which are returned: they are shared handles.
template <std::derived_from<Model> M>
std::pair<M, optimizers::Optimizer> initialize(const M& model,
                                               const optimizers::Optimizer& optimizer,
                                               const InitializeOptions& options = {}) {
  initialize(std::vector<Layer>{model.layer()}, {optimizer}, options);
  return {model, optimizer};
}

/// Does not compile: modules do not call each other as layers do, so that a policy has no effect.
template <class M, std::derived_from<optimizers::Optimizer> O>
requires(!std::derived_from<M, Model> && std::convertible_to<const M&, Layer>)
    std::pair<M, O> initialize(const M& module, const O& optimizer, const InitializeOptions& = {}) {
  static_assert(!std::same_as<M, M>,
                "a td::nn module computes in a lower dtype under td::amp::autocast: open it around "
                "the forward pass, and scale the loss by a td::amp::GradScaler");
  return {module, optimizer};
}

/// Options of scale_loss().
struct ScaleLossOptions {
  int loss_id = 0;             ///< which of InitializeOptions::num_losses
  bool delay_unscale = false;  ///< more losses follow: their gradients are unscaled together
};

/// A scaled loss. Its destructor divides the gradients of the optimizer's parameters by the scale,
/// so that they may be clipped before the step, and adds the gradients from before.
class ScaledLoss {
 public:  /// As scale_loss().
  ScaledLoss(const Tensor& loss, optimizers::Optimizer optimizer, const ScaleLossOptions& options);
  /// Throws errors of operations, unless another exception is being handled.
  ~ScaledLoss() noexcept(false);
  ScaledLoss(const ScaledLoss&) = delete;
  ScaledLoss& operator=(const ScaledLoss&) = delete;

  /// The loss times the scale.
  const Tensor& value() const { return scaled_; }
  operator const Tensor&() const { return scaled_; }  ///< value() NOLINT: implicit
  /// Computes the gradients of the scaled loss.
  void backward() const { scaled_.backward(); }

 private:
  optimizers::Optimizer optimizer_;
  ScaleLossOptions options_;
  Tensor scaled_;
  std::vector<Tensor> earlier_;  // grad() of the parameters before
  int exceptions_;
};

/// Scales a loss for an optimizer of initialize(). As apex.amp.scale_loss, where the result is a
/// context:
/// @code
/// { auto scaled = td::amp::scale_loss(loss, optimizer); scaled.backward(); }
/// optimizer.step();  // skipped on all ranks if a gradient overflowed on one
/// @endcode
/// Throws InvalidArgumentError for a loss_id that is out of range, and FailedPreconditionError for
/// an optimizer that initialize() has not prepared.
ScaledLoss scale_loss(const Tensor& loss, const optimizers::Optimizer& optimizer,
                      const ScaleLossOptions& options = {});

/// The variables that the optimizer updates. As apex.amp.master_params.
inline const std::vector<Variable>& master_params(const optimizers::Optimizer& optimizer) {
  return optimizer.parameters();
}

}  // namespace tandem::amp
