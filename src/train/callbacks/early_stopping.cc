#include "core/log.h"
#include "core/status.h"
#include "tandem/autodiff.h"
#include "tandem/model.h"
#include "train/callbacks/monitor.h"
#include "train/callbacks/state.h"

namespace tandem::callbacks {
namespace {

constexpr const char* kBestWeights = "best_weights/";

// Behaves as in Keras.
class EarlyStoppingImpl final : public CallbackBase {
 public:
  explicit EarlyStoppingImpl(const EarlyStoppingOptions& options)
      : options_(options),
        monitor_("EarlyStopping", options.monitor, options.mode, options.min_delta) {
    if (options.patience < 0)
      fail<InvalidArgumentError>("[EarlyStopping] expected patience of at least 0, got {}",
                                 options.patience);
  }

  void on_train_begin(Model& model) override {
    monitor_.begin(model);
    wait_ = 0;
    best_ = monitor_.worst();
    best_weights_.clear();
    stopped_epoch_ = best_epoch_ = 0;
  }

  void on_epoch_end(Model& model, std::int64_t epoch, const Logs& logs) override {
    const std::optional<double> value = monitor_.value(logs);
    if (!value || epoch < options_.start_from_epoch) return;
    if (options_.restore_best_weights && best_weights_.empty()) keep_weights(model);
    ++wait_;
    if (monitor_.improves(*value, best_)) {
      best_ = *value;
      best_epoch_ = epoch;
      if (options_.restore_best_weights) keep_weights(model);
      // As in Keras, patience is not reset while the value is worse than the baseline.
      if (!options_.baseline || monitor_.improves(*value, *options_.baseline)) wait_ = 0;
      return;
    }
    if (wait_ < options_.patience || epoch == 0) return;
    model.stop_training();
    stopped_epoch_ = epoch;
    logging::info("[EarlyStopping] epoch {}: '{}' has not improved for {} epochs", epoch + 1,
                  options_.monitor, wait_);
  }

  // However training ends.
  void on_train_end(Model& model) override {
    if (!options_.restore_best_weights || best_weights_.empty()) return;
    for (Variable variable : model.variables()) variable.assign(best_weights_.at(variable.name()));
  }

  State state() const override {
    State state = {{"wait", number(static_cast<double>(wait_))},
                   {"best", number(best_)},
                   {"best_epoch", number(static_cast<double>(best_epoch_))}};
    for (const auto& [name, value] : best_weights_) state[kBestWeights + name] = value;
    return state;
  }

  void restore(Model&, const State& state) override {
    wait_ = static_cast<std::int64_t>(number(state, "wait"));
    best_ = number(state, "best");
    best_epoch_ = static_cast<std::int64_t>(number(state, "best_epoch"));
    best_weights_.clear();
    for (const auto& [name, value] : state)
      if (name.starts_with(kBestWeights))
        best_weights_[name.substr(std::string(kBestWeights).size())] = value;
  }

  std::int64_t stopped_epoch() const { return stopped_epoch_; }
  std::int64_t best_epoch() const { return best_epoch_; }
  double best() const { return best_; }

 private:
  // Copies: tensors read from variables do not change with them.
  void keep_weights(const Model& model) {
    for (const Variable& variable : model.variables())
      best_weights_[variable.name()] = variable.value().detach();
  }

  EarlyStoppingOptions options_;
  Monitor monitor_;
  std::int64_t wait_ = 0;
  double best_ = 0.0;
  std::int64_t stopped_epoch_ = 0, best_epoch_ = 0;
  State best_weights_;
};

const EarlyStoppingImpl& stopping(const EarlyStopping& callback) {
  return static_cast<const EarlyStoppingImpl&>(*callback);
}

}  // namespace

EarlyStopping::EarlyStopping(const EarlyStoppingOptions& options)
    : Callback(std::make_shared<EarlyStoppingImpl>(options)) {}
std::int64_t EarlyStopping::stopped_epoch() const { return stopping(*this).stopped_epoch(); }
std::int64_t EarlyStopping::best_epoch() const { return stopping(*this).best_epoch(); }
double EarlyStopping::best() const { return stopping(*this).best(); }

}  // namespace tandem::callbacks
