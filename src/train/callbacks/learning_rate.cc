#include <algorithm>

#include "core/log.h"
#include "core/status.h"
#include "tandem/model.h"
#include "train/callbacks/monitor.h"
#include "train/callbacks/state.h"

namespace tandem::callbacks {
namespace {

void set_rate(const Model& model, double rate) {
  optimizers::Optimizer optimizer = model.optimizer();
  optimizer.set_learning_rate(rate);
}

class SchedulerImpl final : public CallbackBase {
 public:
  using Schedule = std::function<double(std::int64_t, double)>;
  explicit SchedulerImpl(Schedule schedule) : schedule_(std::move(schedule)) {
    if (!schedule_)
      throw InvalidArgumentError("[LearningRateScheduler] expected a function, got none");
  }

  void on_train_begin(Model&) override { epoch_ = -1; }

  void on_epoch_begin(Model& model, std::int64_t epoch) override {
    if (epoch == epoch_) return;  // resumed within the epoch: keeps its rate
    set_rate(model, schedule_(epoch, model.optimizer().learning_rate()));
    epoch_ = epoch;
  }

  State state() const override { return {{"epoch", number(static_cast<double>(epoch_))}}; }
  void restore(Model&, const State& state) override {
    epoch_ = static_cast<std::int64_t>(number(state, "epoch"));
  }

 private:
  Schedule schedule_;
  std::int64_t epoch_ = -1;  // the last epoch for which the rate was set
};

// Behaves as in Keras.
class PlateauImpl final : public CallbackBase {
 public:
  explicit PlateauImpl(const ReduceLROnPlateauOptions& options)
      : options_(options),
        monitor_("ReduceLROnPlateau", options.monitor, options.mode, options.min_delta) {
    if (options.factor <= 0.0 || options.factor >= 1.0)
      fail<InvalidArgumentError>("[ReduceLROnPlateau] expected a factor between 0 and 1, got {}",
                                 options.factor);
  }

  void on_train_begin(Model& model) override {
    monitor_.begin(model);
    best_ = monitor_.worst();
    wait_ = cooldown_ = 0;
  }

  void on_epoch_end(Model& model, std::int64_t epoch, const Logs& logs) override {
    const std::optional<double> value = monitor_.value(logs);
    if (!value) return;
    if (cooldown_ > 0) {
      --cooldown_;
      wait_ = 0;
    }
    if (monitor_.improves(*value, best_)) {
      best_ = *value;
      wait_ = 0;
    } else if (cooldown_ == 0 && ++wait_ >= options_.patience) {
      reduce(model, epoch);
    }
  }

  State state() const override {
    return {{"best", number(best_)},
            {"wait", number(static_cast<double>(wait_))},
            {"cooldown", number(static_cast<double>(cooldown_))}};
  }

  void restore(Model&, const State& state) override {
    best_ = number(state, "best");
    wait_ = static_cast<std::int64_t>(number(state, "wait"));
    cooldown_ = static_cast<std::int64_t>(number(state, "cooldown"));
  }

 private:
  void reduce(const Model& model, std::int64_t epoch) {
    const double present = model.optimizer().learning_rate();
    if (present <= options_.min_lr) return;
    const double rate = std::max(present * options_.factor, options_.min_lr);
    set_rate(model, rate);
    logging::info("[ReduceLROnPlateau] epoch {}: reducing the learning rate to {}", epoch + 1,
                  rate);
    cooldown_ = options_.cooldown;
    wait_ = 0;
  }

  ReduceLROnPlateauOptions options_;
  Monitor monitor_;
  double best_ = 0.0;
  std::int64_t wait_ = 0, cooldown_ = 0;
};

}  // namespace

LearningRateScheduler::LearningRateScheduler(std::function<double(std::int64_t, double)> schedule)
    : Callback(std::make_shared<SchedulerImpl>(std::move(schedule))) {}

ReduceLROnPlateau::ReduceLROnPlateau(const ReduceLROnPlateauOptions& options)
    : Callback(std::make_shared<PlateauImpl>(options)) {}

}  // namespace tandem::callbacks
