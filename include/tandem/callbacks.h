/// @file
/// Callbacks of Model::fit(). As tf.keras.callbacks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/errors.h"
#include "tandem/optimizers.h"

namespace tandem {
class Model;
}

/// Callbacks of Model::fit().
namespace tandem::callbacks {

/// Metrics by name ("loss", "accuracy", "val_loss", ...): running means within an epoch, final
/// values at its end.
using Logs = std::map<std::string, double>;

/// Base class of callbacks. All methods are called on the thread that called fit(). As
/// tf.keras.callbacks.Callback.
class CallbackBase {
 public:
  virtual ~CallbackBase() = default;
  /// Called before the first epoch.
  virtual void on_train_begin(Model&) {}
  /// Called after the last epoch.
  virtual void on_train_end(Model&) {}
  /// Called before each epoch; epochs count from 0.
  virtual void on_epoch_begin(Model&, std::int64_t /*epoch*/) {}
  /// Called after each epoch and its validation, with the epoch's metrics.
  virtual void on_epoch_end(Model&, std::int64_t /*epoch*/, const Logs&) {}
  /// Called after each training step, with the running means if needs_batch_logs().
  virtual void on_batch_end(Model&, std::int64_t /*batch*/, const Logs&) {}
  /// Whether on_batch_end() reads its logs. Computing them waits for the devices.
  virtual bool needs_batch_logs() const { return false; }

  /// The state that a TrainingCheckpoint stores for this callback.
  virtual std::map<std::string, Tensor> state() const { return {}; }
  /// Restores state(). Called between on_train_begin() and the first on_epoch_begin(), possibly in
  /// the middle of an epoch. Throws a tandem::Error for a state that does not fit; the model, which
  /// is restored last, is unchanged then.
  virtual void restore(Model&, const std::map<std::string, Tensor>& /*state*/) {}
  /// Whether this callback runs after all callbacks that return false. For callbacks that save the
  /// state of others.
  virtual bool runs_last() const { return false; }
};

/// A shared handle to a callback.
class Callback {
 public:
  /// Wraps a callback. Throws InvalidArgumentError for a null pointer.
  Callback(std::shared_ptr<CallbackBase> callback) : callback_(std::move(callback)) {  // NOLINT
    if (!callback_)
      throw InvalidArgumentError("[Callback] expected a callback, got a null pointer");
  }
  /// @{
  /// The callback.
  CallbackBase& operator*() const { return *callback_; }
  CallbackBase* operator->() const { return callback_.get(); }
  /// @}

 private:
  std::shared_ptr<CallbackBase> callback_;
};

/// Options of ModelCheckpoint().
struct ModelCheckpointOptions {
  std::string monitor = "val_loss";  ///< metric that decides which epoch is best
  bool save_best_only = false;       ///< save only when the monitored metric has improved
  std::string mode = "auto";         ///< "min", "max", or "auto": as the metric says
};
/// Saves the weights after each epoch. "{epoch}" in the path is replaced by the number of the
/// epoch, from 1, and the name of a metric in braces by its value. Folders are made. Before the
/// first step, fit() throws InvalidArgumentError for another name in braces, for an extension that
/// Model::save_weights() refuses, and with mode "auto" for a metric that does not know its
/// direction (MetricBase::larger_is_better()). As
/// tf.keras.callbacks.ModelCheckpoint with save_weights_only.
Callback ModelCheckpoint(const std::filesystem::path& path,
                         const ModelCheckpointOptions& options = {});

/// Options of EarlyStopping(). As Keras.
struct EarlyStoppingOptions {
  std::string monitor = "val_loss";   ///< metric to watch
  double min_delta = 0.0;             ///< smallest change that counts as an improvement
  std::int64_t patience = 0;          ///< epochs without improvement after which training stops
  std::string mode = "auto";          ///< "min", "max", or "auto": as the metric says
  std::optional<double> baseline{};   ///< value that the metric has to improve on
  bool restore_best_weights = false;  ///< restore those of the best epoch, however training ends
};
/// Stops training when the monitored metric has stopped improving. With mode "auto", fit() throws
/// InvalidArgumentError for a metric that does not know its direction. As
/// tf.keras.callbacks.EarlyStopping.
Callback EarlyStopping(const EarlyStoppingOptions& options = {});

/// Sets the learning rate at the start of each epoch to schedule(epoch, current rate). As
/// tf.keras.callbacks.LearningRateScheduler.
Callback LearningRateScheduler(std::function<double(std::int64_t epoch, double rate)> schedule);

/// Options of ReduceLROnPlateau(). As Keras.
struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";  ///< metric to watch
  double factor = 0.1;               ///< factor by which the rate is multiplied
  std::int64_t patience = 10;        ///< epochs without improvement after which the rate is reduced
  std::string mode = "auto";         ///< "min", "max", or "auto": as the metric says
  double min_delta = 1e-4;           ///< smallest change that counts as an improvement
  std::int64_t cooldown = 0;         ///< epochs to wait after a reduction
  double min_lr = 0.0;               ///< lower bound of the rate
};
/// Reduces the learning rate when the monitored metric has stopped improving. As
/// tf.keras.callbacks.ReduceLROnPlateau.
Callback ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

/// Stops training after a batch if the running loss is NaN or infinite. Reads the loss after each
/// batch, which waits for the devices. As tf.keras.callbacks.TerminateOnNaN.
Callback TerminateOnNaN();

/// Writes one CSV row of metrics per epoch. `append` keeps the rows of an existing file; fit()
/// throws InvalidArgumentError before the first step if its columns are others. As
/// tf.keras.callbacks.CSVLogger.
Callback CSVLogger(const std::filesystem::path& path, bool append = false);

/// Writes event files for TensorBoard: scalars per epoch under `directory`/train and
/// `directory`/validation. As tf.keras.callbacks.TensorBoard.
Callback TensorBoard(const std::filesystem::path& directory);

/// Options of TrainingCheckpoint().
struct TrainingCheckpointOptions {
  /// Steps between checkpoints, counted within each epoch. A checkpoint is also saved at the end of
  /// each epoch.
  std::optional<std::int64_t> save_freq{};
  /// Resumes from the file; throws NotFoundError if there is none.
  bool resume = false;
  /// Writes on another thread while training continues. A save waits for the one before; its error
  /// is thrown then, or at the end of fit(), which waits, too.
  bool background = false;
  /// Stored in the checkpoint. Throws InvalidArgumentError on resume if it differs, and names the
  /// difference.
  std::map<std::string, std::string> config{};
};
/// Saves the complete training state in one checkpoint (tandem/checkpoint.h): weights, optimizer
/// variables, random stream, position in the data, the epoch's running sums, callback states and
/// history. A program that resumes from it ends with the same bits as an uninterrupted run. Under
/// another strategy or number of replicas it ends with the same result up to rounding.
///
/// A single process writes one safetensors file. Several workers write an index at `path` and a
/// safetensors file each beside it, if they share the directory; otherwise the chief writes.
Callback TrainingCheckpoint(const std::filesystem::path& path,
                            const TrainingCheckpointOptions& options = {});

/// Options of StopOnSignal().
struct StopOnSignalOptions {
  /// Signal numbers as in csignal. Default: SIGINT (Ctrl-C) and SIGTERM.
  std::vector<int> signals{};
  /// Called once before fit() returns, with the signal's number. With several workers, called on
  /// each.
  std::function<void(Model&, int signal)> on_stop{};
};
/// Ends fit() in good order after the current step when the process receives one of the signals, as
/// Model::stop_training() does. A TrainingCheckpoint then saves that step, and a resumed run ends
/// with the bits of an uninterrupted one. A second signal has its original effect, which is to end
/// the process.
///
/// The callback installs its signal handlers when fit() begins. After fit(), or after a stop when
/// the callback is destroyed, it restores the previous ones. Throws FailedPreconditionError if
/// another such callback is active. With several workers, all stop after the same step, some tenths
/// of a second after any of them received the signal.
Callback StopOnSignal(const StopOnSignalOptions& options = {});

/// Options of BackupAndRestore().
struct BackupAndRestoreOptions {
  /// Steps between backups, counted within each epoch. A backup is also saved at the end of each
  /// epoch.
  std::optional<std::int64_t> save_freq{};
  /// Deletes the backup at the end of training, unless training was stopped within an epoch.
  bool delete_checkpoint = true;
  /// As TrainingCheckpointOptions::background.
  bool background = false;
};
/// Saves a TrainingCheckpoint in `directory`, which is created if necessary, and resumes from it
/// automatically when the program is started again. As tf.keras.callbacks.BackupAndRestore.
Callback BackupAndRestore(const std::filesystem::path& directory,
                          const BackupAndRestoreOptions& options = {});

/// Options of LambdaCallback(): functions to call; each may be empty.
struct LambdaOptions {
  /// @{
  /// As CallbackBase::on_train_begin() and on_train_end().
  std::function<void(Model&)> on_train_begin{}, on_train_end{};
  /// @}
  /// As CallbackBase::on_epoch_begin().
  std::function<void(Model&, std::int64_t epoch)> on_epoch_begin{};
  /// As CallbackBase::on_epoch_end().
  std::function<void(Model&, std::int64_t epoch, const Logs&)> on_epoch_end{};
  /// As CallbackBase::on_batch_end().
  std::function<void(Model&, std::int64_t batch, const Logs&)> on_batch_end{};
};
/// Makes a callback from functions. As tf.keras.callbacks.LambdaCallback.
Callback LambdaCallback(LambdaOptions options);

}  // namespace tandem::callbacks
