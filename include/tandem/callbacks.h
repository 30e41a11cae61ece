// What happens around training: callbacks of fit().
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

namespace tandem::callbacks {

// "loss", "accuracy", "val_loss", ...: the running means of the epoch, or its final figures.
using Logs = std::map<std::string, double>;

// What users derive from. All calls come from the thread that called fit().
class CallbackBase {
 public:
  virtual ~CallbackBase() = default;
  virtual void on_train_begin(Model&) {}
  virtual void on_train_end(Model&) {}
  virtual void on_epoch_begin(Model&, std::int64_t /*epoch*/) {}
  virtual void on_epoch_end(Model&, std::int64_t /*epoch*/, const Logs&) {}
  virtual void on_batch_end(Model&, std::int64_t /*batch*/, const Logs&) {}
  // Whether on_batch_end reads its logs: computing them waits for the devices.
  virtual bool needs_batch_logs() const { return false; }

  // What a training checkpoint keeps of this callback, and how it goes on from that; called between
  // on_train_begin() and the first on_epoch_begin(), which may be of an epoch that is under way.
  // What is not a state of this callback is refused with a typed error: the model, which goes on
  // last, is as it was then.
  virtual std::map<std::string, Tensor> state() const { return {}; }
  virtual void restore(Model&, const std::map<std::string, Tensor>& /*state*/) {}
  // Whether it is called behind those that do not say so; for callbacks that save the others'
  // state.
  virtual bool runs_last() const { return false; }
};

// A shared handle.
class Callback {
 public:
  /// Throws InvalidArgumentError for a null pointer.
  Callback(std::shared_ptr<CallbackBase> callback) : callback_(std::move(callback)) {  // NOLINT
    if (!callback_)
      throw InvalidArgumentError("[Callback] expected a callback, got a null pointer");
  }
  CallbackBase& operator*() const { return *callback_; }
  CallbackBase* operator->() const { return callback_.get(); }

 private:
  std::shared_ptr<CallbackBase> callback_;
};

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";
  bool save_best_only = false;
  std::string mode = "auto";  // "min", "max", or by the monitor's name
};
// Saves the weights after each epoch; "{epoch}" in the path becomes the epoch's number, from 1.
Callback ModelCheckpoint(const std::filesystem::path& path,
                         const ModelCheckpointOptions& options = {});

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0.0;
  std::int64_t patience = 0;
  std::string mode = "auto";
  std::optional<double> baseline{};
  bool restore_best_weights = false;
};
Callback EarlyStopping(const EarlyStoppingOptions& options = {});

// Sets the rate of each epoch: schedule(epoch, present rate).
Callback LearningRateScheduler(std::function<double(std::int64_t epoch, double rate)> schedule);

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;
  std::int64_t patience = 10;
  std::string mode = "auto";
  double min_delta = 1e-4;
  std::int64_t cooldown = 0;
  double min_lr = 0.0;
};
Callback ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});

/// Ends training after a batch after which the loss of the epoch is NaN or infinite, as Keras's.
/// It looks at the loss of each batch, for which it waits for the devices.
Callback TerminateOnNaN();

// A line of figures an epoch.
Callback CSVLogger(const std::filesystem::path& path, bool append = false);

// Event files that TensorBoard reads: scalars an epoch under `directory`/train and /validation.
Callback TensorBoard(const std::filesystem::path& directory);

struct TrainingCheckpointOptions {
  // Steps between checkpoints, counted in each epoch; besides, there is one at the end of each
  // epoch.
  std::optional<std::int64_t> save_freq{};
  // Goes on from the file (NotFoundError when it is not there) instead of starting anew.
  bool resume = false;
  // Kept in the file; must be the same when training goes on (InvalidArgumentError naming what is
  // not).
  std::map<std::string, std::string> config{};
};
// Keeps all that training needs in one safetensors file: weights, the optimizer's variables, the
// random stream, the place in the data, the epoch's sums so far, the callbacks' states, the
// history. Resumed from it, a program that is otherwise the same ends with the same bits as an
// unbroken run.
Callback TrainingCheckpoint(const std::filesystem::path& path,
                            const TrainingCheckpointOptions& options = {});

struct StopOnSignalOptions {
  /// Numbers of <csignal>. Not given: SIGINT, which Ctrl-C sends, and SIGTERM.
  std::vector<int> signals{};
  /// Called once, where fit() is about to end, with the number of the signal; where several workers
  /// train together, on each of them.
  std::function<void(Model&, int signal)> on_stop{};
};
/// Ends fit() in good order when the process gets one of the signals: after the present step, as
/// Model::stop_training() does, so that a TrainingCheckpoint saves that step and a resumed run ends
/// with the bits of an unbroken one. A second signal has the effect that it has by itself, which is
/// to end the process at once. While fit() runs, and after a stop until the callback is destroyed,
/// the callback is the process's handler of these signals; then the former ones are in place again.
/// Only one at a time: FailedPreconditionError. Where several workers train together they stop
/// after the same step, some tenths of a second after the signal, whichever of them got it.
Callback StopOnSignal(const StopOnSignalOptions& options = {});

struct BackupAndRestoreOptions {
  // Steps between backups, counted in each epoch; besides, there is one at the end of each epoch.
  std::optional<std::int64_t> save_freq{};
  // At the end of training, unless it was stopped within an epoch.
  bool delete_checkpoint = true;
};
// A TrainingCheckpoint in `directory` (made if need be) that training goes on from by itself when
// it starts again.
Callback BackupAndRestore(const std::filesystem::path& directory,
                          const BackupAndRestoreOptions& options = {});

// Calls of the user's own, without a class.
struct LambdaOptions {
  std::function<void(Model&)> on_train_begin{}, on_train_end{};
  std::function<void(Model&, std::int64_t epoch)> on_epoch_begin{};
  std::function<void(Model&, std::int64_t epoch, const Logs&)> on_epoch_end{};
  std::function<void(Model&, std::int64_t batch, const Logs&)> on_batch_end{};
};
Callback LambdaCallback(LambdaOptions options);

}  // namespace tandem::callbacks
