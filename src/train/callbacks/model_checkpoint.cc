#include <fmt/args.h>

#include "core/status.h"
#include "tandem/model.h"
#include "train/callbacks/monitor.h"
#include "train/callbacks/state.h"

namespace tandem::callbacks {
namespace {

class ModelCheckpointImpl final : public CallbackBase {
 public:
  ModelCheckpointImpl(std::filesystem::path path, const ModelCheckpointOptions& options)
      : path_(std::move(path)),
        best_only_(options.save_best_only),
        monitor_("ModelCheckpoint", options.monitor, options.mode),
        best_(monitor_.worst()) {}

  void on_epoch_end(Model& model, std::int64_t epoch, const Logs& logs) override {
    if (best_only_) {
      const std::optional<double> value = monitor_.value(logs);
      if (!value || !monitor_.improves(*value, best_)) return;
      best_ = *value;
    }
    model.save_weights(path_for(epoch, logs));
  }

  State state() const override { return {{"best", number(best_)}}; }
  void restore(Model&, const State& state) override { best_ = number(state, "best"); }

 private:
  std::filesystem::path path_for(std::int64_t epoch, const Logs& logs) const {
    fmt::dynamic_format_arg_store<fmt::format_context> names;
    names.push_back(fmt::arg("epoch", epoch + 1));
    for (const auto& [name, value] : logs) names.push_back(fmt::arg(name.c_str(), value));
    try {
      return fmt::vformat(path_.string(), names);
    } catch (const fmt::format_error& e) {
      fail<InvalidArgumentError>(
          "[ModelCheckpoint] the path '{}' cannot be filled in: {}; it may name epoch and the "
          "epoch's metrics in braces",
          path_.string(), e.what());
    }
  }

  std::filesystem::path path_;
  bool best_only_;
  Monitor monitor_;
  double best_;
};

}  // namespace

Callback ModelCheckpoint(const std::filesystem::path& path, const ModelCheckpointOptions& options) {
  return Callback(std::make_shared<ModelCheckpointImpl>(path, options));
}

}  // namespace tandem::callbacks
