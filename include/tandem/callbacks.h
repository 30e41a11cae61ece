/// @file
/// Callbacks of Model::fit(). As tf.keras.callbacks.
#pragma once

#include <concepts>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
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

/// Base class of callbacks whose methods get the model; Callback has Keras's signatures. All
/// methods are called on the thread that called fit().
class CallbackBase {
 public:
  virtual ~CallbackBase() = default;
  /// Called before the first epoch.
  virtual void on_train_begin(Model&) {}
  /// Called after the last epoch.
  virtual void on_train_end(Model&) {}
  /// Called before each epoch; epochs count from 0.
  virtual void on_epoch_begin(Model&, std::int64_t /*epoch*/) {}
  /// Called with the metrics of an epoch and its validation before all others get them: may change
  /// them.
  virtual void on_epoch_logs(Model&, std::int64_t /*epoch*/, Logs&) {}
  /// Called after each epoch and its validation, with the epoch's metrics.
  virtual void on_epoch_end(Model&, std::int64_t /*epoch*/, const Logs&) {}
  /// Called before each training step.
  virtual void on_train_batch_begin(Model&, std::int64_t /*batch*/) {}
  /// Called after each training step, with the running means if needs_batch_logs().
  virtual void on_train_batch_end(Model&, std::int64_t /*batch*/, const Logs&) {}
  /// Whether on_train_batch_end() reads its logs. Computing them waits for the devices.
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

class Callback;

/// For Tandem's own code.
namespace internal {

/// Whether a method has these arguments.
template <class Method, class... Args>
inline constexpr bool is_hook = false;
template <class Class, class... Args>
inline constexpr bool is_hook<void (Class::*)(Args...), Args...> = true;
template <class Class, class... Args>
inline constexpr bool is_hook<void (Class::*)(Args...) noexcept, Args...> = true;

/// Refuses methods that Callback does not call because their signatures are others.
template <class C>
constexpr void check_hooks() {
  if constexpr (requires { &C::on_epoch_begin; })
    static_assert(
        is_hook<decltype(&C::on_epoch_begin), int, const Logs&>,
        "write: void on_epoch_begin(int epoch, const td::callbacks::Logs& logs) override");
  if constexpr (requires { &C::on_epoch_end; })
    static_assert(is_hook<decltype(&C::on_epoch_end), int, const Logs&>,
                  "write: void on_epoch_end(int epoch, const td::callbacks::Logs& logs) override");
  if constexpr (requires { &C::on_train_batch_begin; })
    static_assert(
        is_hook<decltype(&C::on_train_batch_begin), int, const Logs&>,
        "write: void on_train_batch_begin(int batch, const td::callbacks::Logs& logs) override");
  if constexpr (requires { &C::on_train_batch_end; })
    static_assert(
        is_hook<decltype(&C::on_train_batch_end), int, const Logs&>,
        "write: void on_train_batch_end(int batch, const td::callbacks::Logs& logs) override");
  if constexpr (requires { &C::on_train_begin; })
    static_assert(is_hook<decltype(&C::on_train_begin), const Logs&>,
                  "write: void on_train_begin(const td::callbacks::Logs& logs) override");
  if constexpr (requires { &C::on_train_end; })
    static_assert(is_hook<decltype(&C::on_train_end), const Logs&>,
                  "write: void on_train_end(const td::callbacks::Logs& logs) override");
}

/// The callback that calls the methods of `own`. Throws InvalidArgumentError for a null pointer.
std::shared_ptr<CallbackBase> call_hooks_of(std::shared_ptr<Callback> own, bool reads_batches);

}  // namespace internal

/// The member `model` of a callback: `model->stop_training = true`, or model() as in Keras's own
/// callbacks. Empty while fit() does not run.
class TrainedModel {
 public:
  Model* operator->() const { return model_; }    ///< the model
  Model& operator*() const { return (*this)(); }  ///< the model
  /// The model. Throws FailedPreconditionError while fit() does not run.
  Model& operator()() const;
  /// The model, or null.
  operator Model*() const { return model_; }  // NOLINT: usable as a pointer

  /// For Tandem's own code.
  void set(Model* model) { model_ = model; }

 private:
  Model* model_ = nullptr;
};

/// A callback: the base class of your own ones, with Keras's signatures, and a shared handle to
/// any. As tf.keras.callbacks.Callback.
/// @code
/// class StopAtLoss : public td::callbacks::Callback {
///   void on_epoch_end(int epoch, const td::callbacks::Logs& logs) override {
///     if (logs.at("loss") < 0.01) model->stop_training = true;
///   }
/// };
/// model.fit(x, y, {.callbacks = {StopAtLoss()}});
/// @endcode
///
/// fit() calls a copy of an own callback that is given by value: members of the original do not
/// change. To read them after fit(), give it a std::make_shared<StopAtLoss>().
class Callback {
 public:
  /// A handle to a callback. Throws InvalidArgumentError for a null pointer.
  template <std::derived_from<CallbackBase> C>
  Callback(std::shared_ptr<C> callback)  // NOLINT: from make_shared<Mine>()
      : Callback(std::shared_ptr<CallbackBase>(std::move(callback)), 0) {}
  /// A handle to your own callback. Throws InvalidArgumentError for a null pointer.
  template <std::derived_from<Callback> C>
  Callback(std::shared_ptr<C> callback) : Callback(wrapped(std::move(callback)), 0) {}  // NOLINT
  /// A handle to a copy of a callback.
  template <class C>
  requires(std::derived_from<C, CallbackBase> ||
           (std::derived_from<C, Callback> && !std::same_as<C, Callback>))
      Callback(C callback)  // NOLINT: Mine() where a callback is expected
      : Callback(std::make_shared<C>(std::move(callback))) {}
  /// @{
  /// Copies of a handle refer to the same callback.
  Callback(const Callback&) = default;
  Callback(Callback&&) = default;
  Callback& operator=(const Callback&) = default;
  Callback& operator=(Callback&&) = default;
  virtual ~Callback() = default;
  /// @}

  /// @{
  /// Called by fit(); epochs and batches count from 0. `logs` of the end of an epoch are its
  /// metrics, with those of its validation; of a batch, the running means; else empty.
  virtual void on_train_begin(const Logs& logs);
  virtual void on_train_end(const Logs& logs);
  virtual void on_epoch_begin(int epoch, const Logs& logs);
  virtual void on_epoch_end(int epoch, const Logs& logs);
  virtual void on_train_batch_begin(int batch, const Logs& logs);
  virtual void on_train_batch_end(int batch, const Logs& logs);
  /// @}
  /// Whether on_train_batch_end() reads its logs. Computing them waits for the devices. Not asked
  /// if your class does not override on_train_batch_end(). Default of own callbacks: true.
  virtual bool needs_batch_logs() const;
  /// @{
  /// As CallbackBase::state() and restore().
  virtual std::map<std::string, Tensor> state() const;
  virtual void restore(const std::map<std::string, Tensor>& state);
  /// @}

  /// The model that fit() trains, while it runs: `model->stop_training = true` ends it.
  TrainedModel model;

  /// @{
  /// The callback that the handle refers to. Throws FailedPreconditionError for an own callback
  /// that was not given to fit() or another handle.
  CallbackBase& operator*() const;
  CallbackBase* operator->() const { return &**this; }
  /// @}
  /// For Tandem's own code.
  const std::shared_ptr<CallbackBase>& shared() const { return callback_; }

 protected:
  Callback() = default;

 private:
  Callback(std::shared_ptr<CallbackBase> callback, int);
  template <class C>
  static std::shared_ptr<CallbackBase> wrapped(std::shared_ptr<C> own) {
    bool reads_batches = true;
    if constexpr (!std::same_as<C, Callback>) {
      internal::check_hooks<C>();
      if constexpr (requires { &C::on_train_batch_end; })
        reads_batches = !std::same_as<decltype(&C::on_train_batch_end),
                                      decltype(&Callback::on_train_batch_end)>;
    }
    return internal::call_hooks_of(std::move(own), reads_batches);
  }

  std::shared_ptr<CallbackBase> callback_;
};

/// Callbacks, as a list of callbacks of any kind or as a vector of pointers.
class CallbackList : public std::vector<Callback> {
 public:
  using std::vector<Callback>::vector;
  /// The callbacks of a vector.
  CallbackList(std::vector<Callback> callbacks)  // NOLINT: a vector is a list
      : std::vector<Callback>(std::move(callbacks)) {}
  /// The callbacks that the pointers point to.
  template <class C>
  requires(std::derived_from<C, Callback> || std::derived_from<C, CallbackBase>)
      CallbackList(const std::vector<std::shared_ptr<C>>& callbacks)  // NOLINT: a vector is a list
      : std::vector<Callback>(callbacks.begin(), callbacks.end()) {}
};

/// Steps after which something is saved, or "epoch", which stands for none.
class SaveFrequency : public std::optional<std::int64_t> {
 public:
  using std::optional<std::int64_t>::optional;
  /// The steps, or none.
  SaveFrequency(std::optional<std::int64_t> steps)  // NOLINT: implicit
      : std::optional<std::int64_t>(steps) {}
  /// "epoch". Throws InvalidArgumentError for another string.
  SaveFrequency(const char* text);  // NOLINT: implicit
};

/// Options of ModelCheckpoint().
struct ModelCheckpointOptions {
  std::string monitor = "val_loss";  ///< metric that decides which epoch is best
  int verbose = 0;                   ///< 1: logs each save
  bool save_best_only = false;       ///< save only when the monitored metric has improved
  /// Must be true: the architecture of a model is not saved. (Keras's default is false.)
  bool save_weights_only = true;
  std::string mode = "auto";  ///< "min", "max", or "auto": as the metric says
  /// Steps after which the weights are saved, instead of after each epoch. The metrics are then the
  /// running means, which wait for the devices after each step.
  SaveFrequency save_freq{};
};
/// Saves the weights after each epoch. "{epoch}" in the path is replaced by the number of the
/// epoch, from 1, and the name of a metric in braces by its value. Folders are made. Before the
/// first step, fit() throws InvalidArgumentError for another name in braces, for an extension that
/// Model::save_weights() refuses, and with mode "auto" for a metric that does not know its
/// direction (MetricBase::larger_is_better()). As
/// tf.keras.callbacks.ModelCheckpoint with save_weights_only.
class ModelCheckpoint : public Callback {
 public:
  /// A callback that writes to `path`.
  explicit ModelCheckpoint(const std::filesystem::path& path,
                           const ModelCheckpointOptions& options = {});
};

/// Options of EarlyStopping(). As Keras.
struct EarlyStoppingOptions {
  std::string monitor = "val_loss";   ///< metric to watch
  double min_delta = 0.0;             ///< smallest change that counts as an improvement
  std::int64_t patience = 0;          ///< epochs without improvement after which training stops
  int verbose = 0;                    ///< no effect: a stop is always logged
  std::string mode = "auto";          ///< "min", "max", or "auto": as the metric says
  std::optional<double> baseline{};   ///< value that the metric has to improve on
  bool restore_best_weights = false;  ///< restore those of the best epoch, however training ends
  std::int64_t start_from_epoch = 0;  ///< number of the first epoch that counts
};
/// Stops training when the monitored metric has stopped improving. With mode "auto", fit() throws
/// InvalidArgumentError for a metric that does not know its direction. As
/// tf.keras.callbacks.EarlyStopping.
class EarlyStopping : public Callback {
 public:
  /// A callback.
  explicit EarlyStopping(const EarlyStoppingOptions& options = {});
  /// @{
  /// The number of the epoch that ended training, from 0 (0: none did); that of the best epoch; and
  /// the best value. As the attributes of Keras's callback.
  std::int64_t stopped_epoch() const;
  std::int64_t best_epoch() const;
  double best() const;
  /// @}
};

/// Sets the learning rate at the start of each epoch to schedule(epoch, current rate). As
/// tf.keras.callbacks.LearningRateScheduler.
class LearningRateScheduler : public Callback {
 public:
  /// A callback that calls `schedule`.
  explicit LearningRateScheduler(std::function<double(std::int64_t epoch, double rate)> schedule);
  /// A callback that calls `schedule` with the number of the epoch alone.
  template <class F>
  requires(
      std::is_invocable_r_v<double, F&, std::int64_t> &&
      !std::is_invocable_v<F&, std::int64_t, double>) explicit LearningRateScheduler(F schedule)
      : LearningRateScheduler([schedule = std::move(schedule)](std::int64_t epoch, double) mutable {
          return static_cast<double>(schedule(epoch));
        }) {}
};

/// Options of ReduceLROnPlateau(). As Keras.
struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";  ///< metric to watch
  double factor = 0.1;               ///< factor by which the rate is multiplied
  std::int64_t patience = 10;        ///< epochs without improvement after which the rate is reduced
  int verbose = 0;                   ///< no effect: a reduction is always logged
  std::string mode = "auto";         ///< "min", "max", or "auto": as the metric says
  double min_delta = 1e-4;           ///< smallest change that counts as an improvement
  std::int64_t cooldown = 0;         ///< epochs to wait after a reduction
  double min_lr = 0.0;               ///< lower bound of the rate
};
/// Reduces the learning rate when the monitored metric has stopped improving. As
/// tf.keras.callbacks.ReduceLROnPlateau.
class ReduceLROnPlateau : public Callback {
 public:
  /// A callback.
  explicit ReduceLROnPlateau(const ReduceLROnPlateauOptions& options = {});
};

/// Stops training after a batch if the running loss is NaN or infinite. Reads the loss after each
/// batch, which waits for the devices. As tf.keras.callbacks.TerminateOnNaN.
class TerminateOnNaN : public Callback {
 public:
  /// A callback.
  TerminateOnNaN();
};

/// Writes one CSV row of metrics per epoch. `append` keeps the rows of an existing file; fit()
/// throws InvalidArgumentError before the first step if its columns are others. As
/// tf.keras.callbacks.CSVLogger.
class CSVLogger : public Callback {
 public:
  /// A callback that writes to `path`.
  explicit CSVLogger(const std::filesystem::path& path, bool append = false);
};

/// Options of TensorBoard().
struct TensorBoardOptions {
  std::filesystem::path log_dir = "logs";  ///< directory
};
/// Writes event files for TensorBoard: scalars per epoch under `directory`/train and
/// `directory`/validation. As tf.keras.callbacks.TensorBoard.
class TensorBoard : public Callback {
 public:
  /// A callback that writes to this directory.
  explicit TensorBoard(const std::filesystem::path& directory);
  /// The same with options.
  template <std::same_as<TensorBoardOptions> Options = TensorBoardOptions>
  explicit TensorBoard(const Options& options) : TensorBoard(options.log_dir) {}
};

/// Options of TrainingCheckpoint().
struct TrainingCheckpointOptions {
  /// Steps between checkpoints, counted within each epoch. A checkpoint is also saved at the end of
  /// each epoch.
  SaveFrequency save_freq{};
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
class TrainingCheckpoint : public Callback {
 public:
  /// A callback that writes to `path`.
  explicit TrainingCheckpoint(const std::filesystem::path& path,
                              const TrainingCheckpointOptions& options = {});
};

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
class StopOnSignal : public Callback {
 public:
  /// A callback.
  explicit StopOnSignal(const StopOnSignalOptions& options = {});
};

/// Options of BackupAndRestore().
struct BackupAndRestoreOptions {
  /// Steps between backups, counted within each epoch. A backup is also saved at the end of each
  /// epoch.
  SaveFrequency save_freq{};
  /// Deletes the backup at the end of training, unless training was stopped within an epoch.
  bool delete_checkpoint = true;
  /// As TrainingCheckpointOptions::background.
  bool background = false;
};
/// Saves a TrainingCheckpoint in `directory`, which is created if necessary, and resumes from it
/// automatically when the program is started again. As tf.keras.callbacks.BackupAndRestore.
class BackupAndRestore : public Callback {
 public:
  /// A callback that writes to this directory.
  explicit BackupAndRestore(const std::filesystem::path& directory,
                            const BackupAndRestoreOptions& options = {});
};

/// A function for LambdaCallback: of (epoch or batch, logs), as in Keras, or of (model, epoch or
/// batch, logs); the last arguments may be left out.
class EpochHook {
 public:
  EpochHook() = default;
  /// From a function.
  template <class F>
  requires(!std::same_as<F, EpochHook>) EpochHook(F function) {  // NOLINT: a function stands for it
    if constexpr (requires { function.target_type(); })
      if (!function) return;
    if constexpr (std::is_invocable_v<F&, std::int64_t, const Logs&>)
      function_ = [f = std::move(function)](Model&, std::int64_t number, const Logs& logs) mutable {
        f(number, logs);
      };
    else if constexpr (std::is_invocable_v<F&, Model&, std::int64_t, const Logs&>)
      function_ = std::move(function);
    else if constexpr (std::is_invocable_v<F&, std::int64_t>)
      function_ = [f = std::move(function)](Model&, std::int64_t number, const Logs&) mutable {
        f(number);
      };
    else {
      static_assert(
          std::is_invocable_v<F&, Model&, std::int64_t>,
          "expected a function such as [](int epoch, const td::callbacks::Logs& logs) {}");
      function_ = [f = std::move(function)](Model& model, std::int64_t number,
                                            const Logs&) mutable { f(model, number); };
    }
  }
  explicit operator bool() const { return static_cast<bool>(function_); }  ///< whether there is one
  /// Calls the function.
  void operator()(Model& model, std::int64_t number, const Logs& logs) const {
    function_(model, number, logs);
  }

 private:
  std::function<void(Model&, std::int64_t, const Logs&)> function_;
};
/// A function for LambdaCallback: of (logs), as in Keras, of (model), or of nothing.
class TrainHook {
 public:
  TrainHook() = default;
  /// From a function.
  template <class F>
  requires(!std::same_as<F, TrainHook>) TrainHook(F function) {  // NOLINT: a function stands for it
    if constexpr (requires { function.target_type(); })
      if (!function) return;
    if constexpr (std::is_invocable_v<F&, const Logs&>)
      function_ = [f = std::move(function)](Model&) mutable { f(Logs()); };
    else if constexpr (std::is_invocable_v<F&, Model&>)
      function_ = std::move(function);
    else {
      static_assert(std::is_invocable_v<F&>,
                    "expected a function such as [](const td::callbacks::Logs& logs) {}");
      function_ = [f = std::move(function)](Model&) mutable { f(); };
    }
  }
  explicit operator bool() const { return static_cast<bool>(function_); }  ///< whether there is one
  void operator()(Model& model) const { function_(model); }                ///< calls the function

 private:
  std::function<void(Model&)> function_;
};

/// Options of LambdaCallback: functions to call; each may be empty. As Keras.
struct LambdaOptions {
  EpochHook on_epoch_begin{};        ///< as Callback::on_epoch_begin()
  EpochHook on_epoch_end{};          ///< as Callback::on_epoch_end()
  TrainHook on_train_begin{};        ///< as Callback::on_train_begin()
  TrainHook on_train_end{};          ///< as Callback::on_train_end()
  EpochHook on_train_batch_begin{};  ///< as Callback::on_train_batch_begin()
  EpochHook on_train_batch_end{};    ///< as Callback::on_train_batch_end()
};
/// Makes a callback from functions. As tf.keras.callbacks.LambdaCallback.
class LambdaCallback : public Callback {
 public:
  /// A callback that calls these functions.
  explicit LambdaCallback(LambdaOptions options);
};

}  // namespace tandem::callbacks
