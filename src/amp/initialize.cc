// The optimization levels of Apex.
#include <exception>

#include "core/status.h"
#include "nn/optimizer_impl.h"
#include "tandem/amp.h"
#include "tandem/module.h"

namespace tandem::amp {
namespace {

using optimizers::LossScale;
using optimizers::LossScaleOptions;
using optimizers::Optimizer;

// The options of a level, with those that the user gave.
struct LevelSettings {
  std::optional<DType> cast_model_type;
  bool patch_functions = false;
  std::optional<bool> keep_batchnorm_fp32;
  std::optional<bool> master_weights;
  LossScaleChoice loss_scale = 1.0;
};

LevelSettings settings_of_level(const InitializeOptions& options) {
  if (options.opt_level == "O0")
    return {.cast_model_type = float32, .master_weights = false, .loss_scale = 1.0};
  if (options.opt_level == "O1") return {.patch_functions = true, .loss_scale = "dynamic"};
  if (options.opt_level == "O2")
    return {.cast_model_type = options.dtype,
            .keep_batchnorm_fp32 = true,
            .master_weights = true,
            .loss_scale = "dynamic"};
  if (options.opt_level == "O3")
    return {.cast_model_type = options.dtype,
            .keep_batchnorm_fp32 = false,
            .master_weights = false,
            .loss_scale = 1.0};
  fail<InvalidArgumentError>(
      "[initialize] Unexpected optimization level {}. Options are 'O0', 'O1', 'O2', 'O3'. Note "
      "that in `O0`, `O1`, etc., the prefix O is the letter O, not the number zero.",
      options.opt_level);
}

LevelSettings settings_of(const InitializeOptions& options) {
  if (options.dtype != float16 && options.dtype != bfloat16)
    fail<InvalidArgumentError>("[initialize] expected dtype float16 or bfloat16, got {}",
                               name_of(options.dtype));
  LevelSettings settings = settings_of_level(options);
  const bool inserts_casts = options.opt_level == "O1";
  const auto refuse = [](const char* why) { fail<InvalidArgumentError>("[initialize] {}", why); };
  if (options.cast_model_type) {
    if (inserts_casts)
      refuse(
          "O1 inserts casts around Torch functions rather than model weights, so with O1, the "
          "model "
          "weights themselves should remain FP32. If you wish to cast the model to a different "
          "type, use opt_level='O2' or 'O3'. cast_model_type was set.");
    settings.cast_model_type = options.cast_model_type;
  }
  if (options.patch_torch_functions) {
    if (!inserts_casts && *options.patch_torch_functions)
      refuse(
          "Currently, patch_torch_functions=True should only be set by selecting opt_level='O1'.");
    settings.patch_functions = *options.patch_torch_functions;
  }
  if (options.keep_batchnorm_fp32) {
    if (inserts_casts)
      refuse(
          "With opt_level O1, batchnorm functions are automatically patched to run in FP32, so "
          "keep_batchnorm_fp32 should be None.");
    settings.keep_batchnorm_fp32 = options.keep_batchnorm_fp32;
  }
  if (options.master_weights) {
    if (inserts_casts)
      refuse(
          "It doesn't make sense to use master_weights with O1. With O1, your model weights "
          "themselves should be FP32.");
    settings.master_weights = options.master_weights;
  }
  if (options.loss_scale) settings.loss_scale = *options.loss_scale;
  return settings;
}

// Normalisations read their variables in their own dtype.
void convert(LayerBase& layer, const DTypePolicy& policy, const DTypePolicy& of_norms) {
  layer.convert_dtype_policy(layer.casts_variables() ? policy : of_norms);
  for (const Layer& child : layer.children()) convert(child.base(), policy, of_norms);
}

void prepare(const Layer& model, const LevelSettings& settings, const InitializeOptions& options) {
  LayerBase& layer = model.base();
  const bool lowers =
      settings.patch_functions || settings.cast_model_type.value_or(float32) != float32;
  if (lowers && dynamic_cast<const nn::ModuleBase*>(&layer))
    fail<InvalidArgumentError>(
        "[initialize] expected models and layers, got the td::nn module '{}': modules do not call "
        "each other as layers do. Open td::amp::autocast around the forward pass, and scale the "
        "loss by a td::amp::GradScaler",
        layer.label());
  if (settings.patch_functions) layer.set_autocast(options.dtype);
  if (!settings.cast_model_type) return;
  const DType type = *settings.cast_model_type;
  const bool lower = type == float16 || type == bfloat16;
  const bool masters = settings.master_weights.value_or(false);
  const std::string name(name_of(type));
  const DTypePolicy policy(lower && masters ? "mixed_" + name : name);
  const bool keeps_norms = lower && !masters && settings.keep_batchnorm_fp32.value_or(false);
  const DTypePolicy of_norms = keeps_norms ? DTypePolicy("mixed_" + name) : policy;
  convert(layer, policy, of_norms);
  if (options.cast_model_outputs)
    layer.set_output_dtype(*options.cast_model_outputs);
  else if (lower)
    layer.set_output_dtype(float32);
}

}  // namespace

LossScaleChoice::LossScaleChoice(const char* text) {
  if (std::string_view(text) != "dynamic")
    fail<InvalidArgumentError>(
        "[initialize] expected a loss_scale of \"dynamic\" or a number, got "
        "\"{}\"",
        text);
}

void initialize(const std::vector<Layer>& models, const std::vector<Optimizer>& optimizers,
                const InitializeOptions& options) {
  if (!options.enabled) return;
  const LevelSettings settings = settings_of(options);
  if (options.num_losses < 1)
    fail<InvalidArgumentError>("[initialize] expected num_losses of 1 or more, got {}",
                               options.num_losses);
  for (const Optimizer& optimizer : optimizers)
    if (optimizer.defined_impl().loss_scale())
      fail<FailedPreconditionError>(
          "[initialize] A given optimizer should only be passed through amp.initialize once. "
          "Optimizer '{}' has a loss scale.",
          optimizer.name());
  for (const Layer& model : models) prepare(model, settings, options);
  const std::optional<double>& fixed = settings.loss_scale.fixed();
  const LossScaleOptions scale{
      .initial_scale = fixed.value_or(65536.0),
      .min_scale = fixed ? 0.0 : options.min_loss_scale,
      .max_scale = fixed ? LossScaleOptions().max_scale : options.max_loss_scale,
      .dynamic = !fixed};
  for (const Optimizer& optimizer : optimizers) {
    std::vector<std::shared_ptr<LossScale>> scales;
    for (int loss = 0; loss < options.num_losses; ++loss)
      scales.push_back(std::make_shared<LossScale>("amp", scale, loss));
    optimizer.defined_impl().set_loss_scales(std::move(scales), /*plain_steps=*/true);
  }
}

ScaledLoss::ScaledLoss(const Tensor& loss, Optimizer optimizer, const ScaleLossOptions& options)
    : optimizer_(std::move(optimizer)), options_(options), exceptions_(std::uncaught_exceptions()) {
  const auto& scales = optimizer_.defined_impl().loss_scales();
  if (scales.empty())
    fail<FailedPreconditionError>(
        "[scale_loss] Invoked 'with amp.scale_loss', but internal Amp state has not been "
        "initialized. model, optimizer = amp.initialize(model, optimizer, opt_level=...) must be "
        "called before 'with amp.scale_loss'.");
  if (options.loss_id < 0 || static_cast<std::size_t>(options.loss_id) >= scales.size())
    fail<InvalidArgumentError>("[scale_loss] expected a loss_id in [0, {}), got {}", scales.size(),
                               options.loss_id);
  scaled_ = scales[static_cast<std::size_t>(options.loss_id)]->scaled(loss);
  if (optimizer_.impl()->takes_scaled_gradients()) return;
  for (Variable parameter : optimizer_.parameters()) {
    earlier_.push_back(parameter.grad());
    parameter.zero_grad();
  }
}

ScaledLoss::~ScaledLoss() noexcept(false) {
  if (std::uncaught_exceptions() > exceptions_) return;
  Optimizer::Impl& impl = *optimizer_.impl();
  LossScale& scale = *impl.loss_scales()[static_cast<std::size_t>(options_.loss_id)];
  impl.finish_backward(scale, earlier_, options_.delay_unscale);
}

ScaledLoss scale_loss(const Tensor& loss, const Optimizer& optimizer,
                      const ScaleLossOptions& options) {
  return ScaledLoss(loss, optimizer, options);
}

}  // namespace tandem::amp
