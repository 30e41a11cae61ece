/// @file
/// Callbacks of Model::fit() for Horovod jobs. As horovod.tensorflow.keras.callbacks.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "tandem/callbacks.h"
#include "tandem/hvd.h"

/// Callbacks of Model::fit() for Horovod jobs. Every rank has the same ones.
namespace tandem::hvd::callbacks {

/// Broadcasts the variables of the model and the optimizer from rank `root_rank` at the start of
/// training. As hvd.callbacks.BroadcastGlobalVariablesCallback.
class BroadcastGlobalVariables : public tandem::callbacks::Callback {
 public:
  /// Makes the callback.
  explicit BroadcastGlobalVariables(int root_rank = 0, const ProcessSet& process_set = {});
};

/// Replaces each metric of an epoch, also of its validation, by its average over the ranks, in the
/// history, for all callbacks and for the progress bar. As
/// hvd.callbacks.MetricAverageCallback, whose place among the callbacks matters; here it does not.
class MetricAverageCallback : public tandem::callbacks::Callback {
 public:
  /// Makes the callback.
  explicit MetricAverageCallback(const ProcessSet& process_set = {});
};

/// A factor of a learning rate: a function of the epoch, which may be a fraction, or a number m,
/// which means m ^ (epoch - start_epoch).
class Multiplier {
 public:
  /// Exponential decay.
  Multiplier(double base) : base_(base) {}  // NOLINT: implicit
  /// A function of the epoch.
  template <std::invocable<double> Function>
  Multiplier(Function function) : function_(std::move(function)) {}  // NOLINT: implicit
  /// The factor in an epoch.
  double at(double epoch, std::int64_t start_epoch) const;

 private:
  double base_ = 1.0;
  std::function<double(double)> function_;
};

/// Options of LearningRateScheduleCallback. In Horovod's order.
struct LearningRateScheduleOptions {
  double initial_lr = 0.0;                  ///< rate that is multiplied; required
  Multiplier multiplier = 1.0;              ///< factor of the rate
  std::int64_t start_epoch = 0;             ///< first epoch whose rate is set
  std::optional<std::int64_t> end_epoch{};  ///< first epoch whose rate is not set; default: none
  /// Sets the rate at the start of each epoch only; else also before each batch, for the fraction
  /// of the epoch.
  bool staircase = true;
  /// Scales the momentum slots of optimizers::SGD and RMSprop with the rate: they contain it (Goyal
  /// et al. 2017, section 3).
  bool momentum_correction = true;
  /// Batches per epoch, for `staircase = false`; default: those of the data or of fit()'s options.
  std::optional<std::int64_t> steps_per_epoch{};
};
/// Sets the learning rate to initial_lr * multiplier(epoch). fit() throws FailedPreconditionError
/// if the number of batches is needed and unknown. As hvd.callbacks.LearningRateScheduleCallback,
/// but the rate is not among the metrics.
class LearningRateScheduleCallback : public tandem::callbacks::Callback {
 public:
  /// Throws InvalidArgumentError unless initial_lr is positive.
  explicit LearningRateScheduleCallback(const LearningRateScheduleOptions& options);
  /// @{
  /// The same with the first options as arguments.
  LearningRateScheduleCallback(double initial_lr, const Multiplier& multiplier,
                               LearningRateScheduleOptions options = {});
  template <std::integral Epoch>
  LearningRateScheduleCallback(double initial_lr, const Multiplier& multiplier, Epoch start_epoch,
                               std::optional<std::int64_t> end_epoch = {})
      : LearningRateScheduleCallback({.initial_lr = initial_lr,
                                      .multiplier = multiplier,
                                      .start_epoch = static_cast<std::int64_t>(start_epoch),
                                      .end_epoch = end_epoch}) {}
  /// @}
};

/// Options of LearningRateWarmupCallback. In Horovod's order.
struct LearningRateWarmupOptions {
  double initial_lr = 0.0;         ///< rate after the warm-up, usually times size(); required
  std::int64_t warmup_epochs = 5;  ///< length of the warm-up
  /// As in LearningRateScheduleOptions.
  bool momentum_correction = true;
  /// As in LearningRateScheduleOptions.
  std::optional<std::int64_t> steps_per_epoch{};
  int verbose = 0;  ///< above 0: rank 0 logs the end of the warm-up
};
/// Raises the learning rate from initial_lr / size() to initial_lr during the first epochs, a
/// little with each batch (Goyal et al. 2017): initial_lr / size() * (1 + (size() - 1) * epoch /
/// warmup_epochs), where `epoch` counts the batches up to and including the next. As
/// hvd.callbacks.LearningRateWarmupCallback.
class LearningRateWarmupCallback : public tandem::callbacks::Callback {
 public:
  /// Throws InvalidArgumentError unless initial_lr and warmup_epochs are positive.
  explicit LearningRateWarmupCallback(const LearningRateWarmupOptions& options);
  /// The same with the first option as an argument.
  explicit LearningRateWarmupCallback(double initial_lr, LearningRateWarmupOptions options = {});
  /// The same with the first two options as arguments.
  template <std::integral Epochs>
  LearningRateWarmupCallback(double initial_lr, Epochs warmup_epochs,
                             LearningRateWarmupOptions options = {})
      : LearningRateWarmupCallback(
            initial_lr, with_epochs(std::move(options), static_cast<std::int64_t>(warmup_epochs))) {
  }

 private:
  static LearningRateWarmupOptions with_epochs(LearningRateWarmupOptions options,
                                               std::int64_t warmup_epochs) {
    options.warmup_epochs = warmup_epochs;
    return options;
  }
};

}  // namespace tandem::hvd::callbacks
