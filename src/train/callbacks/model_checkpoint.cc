#include <fmt/args.h>

#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "core/file_error.h"
#include "core/log.h"
#include "core/status.h"
#include "train/callbacks/monitor.h"
#include "train/callbacks/state.h"
#include "train/checkpoint/safetensors.h"
#include "train/model_impl.h"
#include "train/training_state.h"

namespace tandem::callbacks {
namespace {

class ModelCheckpointImpl final : public CallbackBase {
 public:
  ModelCheckpointImpl(std::filesystem::path path, const ModelCheckpointOptions& options)
      : path_(std::move(path)),
        verbose_(options.verbose > 0),
        best_only_(options.save_best_only),
        save_freq_(options.save_freq),
        monitor_("ModelCheckpoint", options.monitor, options.mode) {
    if (!options.save_weights_only)
      throw InvalidArgumentError(
          "[ModelCheckpoint] expected save_weights_only = true: a model's architecture is C++ code "
          "and is not saved; TrainingCheckpoint saves the weights with the optimizer's state");
    if (save_freq_ && *save_freq_ < 1)
      fail<InvalidArgumentError>("[ModelCheckpoint] expected save_freq of at least 1, got {}",
                                 *save_freq_);
  }

  // The best value remains from fit() to fit().
  void on_train_begin(Model& model) override {
    if (best_only_) monitor_.begin(model);
    unsaved_ = 0;
    Logs logs;
    for (const std::string& name : log_names(model)) logs[name] = 0.0;
    if (!impl_of(model, "ModelCheckpoint").progress) return;  // outside of fit()
    // The steps of a class of the user's choose the names.
    if (!logs.empty()) expect_safetensors_name(path_for(0, logs));
    std::filesystem::path folder = path_.parent_path();
    while (folder.string().find('{') != std::string::npos) folder = folder.parent_path();
    make_folder(model, folder);
  }

  void on_epoch_begin(Model&, std::int64_t epoch) override {
    epoch_ = epoch;
    steps_ = 0;
  }

  bool needs_batch_logs() const override { return save_freq_.has_value(); }

  void on_train_batch_end(Model& model, std::int64_t batch, const Logs& logs) override {
    if (!save_freq_) return;
    unsaved_ +=
        batch + 1 - std::exchange(steps_, batch + 1);  // an execution may have several steps
    if (unsaved_ < *save_freq_) return;
    unsaved_ = 0;
    save(model, epoch_, logs);
  }

  void on_epoch_end(Model& model, std::int64_t epoch, const Logs& logs) override {
    if (!save_freq_) save(model, epoch, logs);
  }

  State state() const override { return best_ ? State{{"best", number(*best_)}} : State(); }
  void restore(Model&, const State& state) override {
    best_.reset();
    if (state.contains("best")) best_ = number(state, "best");
  }

 private:
  void save(const Model& model, std::int64_t epoch, const Logs& logs) {
    if (best_only_) {
      const std::optional<double> value = monitor_.value(logs);
      if (!value || (best_ && !monitor_.improves(*value, *best_))) return;
      best_ = *value;
    }
    const std::filesystem::path path = path_for(epoch, logs);
    make_folder(model, path.parent_path());
    model.save_weights(path);
    if (verbose_)
      logging::info("[ModelCheckpoint] epoch {}: saved the weights to '{}'", epoch + 1,
                    path.string());
  }

  static void make_folder(const Model& model, const std::filesystem::path& folder) {
    if (folder.empty() || !impl_of(model, "ModelCheckpoint").is_chief()) return;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error)
      throw_file_error(fmt::format("[ModelCheckpoint] cannot make '{}'", folder.string()),
                       error.value());
  }

  std::filesystem::path path_for(std::int64_t epoch, const Logs& logs) const {
    fmt::dynamic_format_arg_store<fmt::format_context> names;
    names.push_back(fmt::arg("epoch", epoch + 1));
    for (const auto& [name, value] : logs) names.push_back(fmt::arg(name.c_str(), value));
    try {
      return fmt::vformat(path_.string(), names);
    } catch (const fmt::format_error& e) {
      std::string known = "epoch";
      for (const auto& [name, value] : logs) known += ", " + name;
      fail<InvalidArgumentError>(
          "[ModelCheckpoint] the path '{}' cannot be filled in: {}; in braces it may name {}",
          path_.string(), e.what(), known);
    }
  }

  std::filesystem::path path_;
  bool verbose_;
  bool best_only_;
  std::optional<std::int64_t> save_freq_;
  Monitor monitor_;
  std::int64_t epoch_ = 0;
  std::int64_t steps_ = 0;    // of the epoch
  std::int64_t unsaved_ = 0;  // steps since the last save
  std::optional<double> best_;
};

}  // namespace

SaveFrequency::SaveFrequency(const char* text) {
  if (std::string_view(text) != "epoch")
    fail<InvalidArgumentError>("[SaveFrequency] expected a number of steps or 'epoch', got '{}'",
                               text);
}

ModelCheckpoint::ModelCheckpoint(const std::filesystem::path& path,
                                 const ModelCheckpointOptions& options)
    : Callback(std::make_shared<ModelCheckpointImpl>(path, options)) {}

}  // namespace tandem::callbacks
