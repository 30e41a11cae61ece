#include <fmt/args.h>

#include <filesystem>
#include <optional>

#include "core/file_error.h"
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
        best_only_(options.save_best_only),
        monitor_("ModelCheckpoint", options.monitor, options.mode) {}

  // The best value remains from fit() to fit().
  void on_train_begin(Model& model) override {
    if (best_only_) monitor_.begin(model);
    Logs logs;
    for (const std::string& name : log_names(model)) logs[name] = 0.0;
    if (logs.empty()) return;
    expect_safetensors_name(path_for(0, logs));
    std::filesystem::path folder = path_.parent_path();
    while (folder.string().find('{') != std::string::npos) folder = folder.parent_path();
    make_folder(model, folder);
  }

  void on_epoch_end(Model& model, std::int64_t epoch, const Logs& logs) override {
    if (best_only_) {
      const std::optional<double> value = monitor_.value(logs);
      if (!value || (best_ && !monitor_.improves(*value, *best_))) return;
      best_ = *value;
    }
    const std::filesystem::path path = path_for(epoch, logs);
    make_folder(model, path.parent_path());
    model.save_weights(path);
  }

  State state() const override { return best_ ? State{{"best", number(*best_)}} : State(); }
  void restore(Model&, const State& state) override {
    best_.reset();
    if (state.contains("best")) best_ = number(state, "best");
  }

 private:
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
  bool best_only_;
  Monitor monitor_;
  std::optional<double> best_;
};

}  // namespace

Callback ModelCheckpoint(const std::filesystem::path& path, const ModelCheckpointOptions& options) {
  return Callback(std::make_shared<ModelCheckpointImpl>(path, options));
}

}  // namespace tandem::callbacks
