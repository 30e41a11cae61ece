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
};

// A shared handle.
class Callback {
 public:
  Callback(std::shared_ptr<CallbackBase> callback) : callback_(std::move(callback)) {}  // NOLINT
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
Callback ModelCheckpoint(const std::filesystem::path& path, const ModelCheckpointOptions& options = {});

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0.0;
  std::int64_t patience = 0;
  std::string mode = "auto";
  std::optional<double> baseline;
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

// A line of figures an epoch.
Callback CSVLogger(const std::filesystem::path& path, bool append = false);

// Event files that TensorBoard reads: scalars an epoch under `directory`/train and /validation.
Callback TensorBoard(const std::filesystem::path& directory);

struct BackupAndRestoreOptions {
  // Steps between backups; not given: one an epoch.
  std::optional<std::int64_t> save_freq;
  bool delete_checkpoint = true;  // at the end of training
};
// Keeps one training checkpoint in `directory` and goes on from it, to the very step and with the
// same result as an unbroken run, when training starts again.
Callback BackupAndRestore(const std::filesystem::path& directory, const BackupAndRestoreOptions& options = {});

// Calls of the user's own, without a class.
struct LambdaOptions {
  std::function<void(Model&)> on_train_begin, on_train_end;
  std::function<void(Model&, std::int64_t epoch)> on_epoch_begin;
  std::function<void(Model&, std::int64_t epoch, const Logs&)> on_epoch_end;
  std::function<void(Model&, std::int64_t batch, const Logs&)> on_batch_end;
};
Callback LambdaCallback(LambdaOptions options);

}  // namespace tandem::callbacks
