// The callbacks of Model::fit() for jobs.
#include <cmath>

#include "core/log.h"
#include "core/status.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/hvd_callbacks.h"
#include "tandem/math.h"
#include "tandem/model.h"
#include "train/model_impl.h"
#include "train/training_state.h"

namespace tandem::hvd {
namespace {

using tandem::callbacks::CallbackBase;
using tandem::callbacks::Logs;

class BroadcastImpl final : public CallbackBase {
 public:
  BroadcastImpl(int root_rank, ProcessSet set) : root_rank_(root_rank), set_(std::move(set)) {}
  void on_train_begin(Model& model) override {
    std::vector<Variable> variables = model.variables();
    for (const Variable& variable : model.optimizer().variables()) variables.push_back(variable);
    broadcast_variables(variables, root_rank_, set_);
  }

 private:
  int root_rank_;
  ProcessSet set_;
};

class MetricAverageImpl final : public CallbackBase {
 public:
  explicit MetricAverageImpl(ProcessSet set) : set_(std::move(set)) {}
  void on_epoch_logs(Model&, std::int64_t, Logs& logs) override {
    std::vector<double> values;
    for (const auto& [name, value] : logs) values.push_back(value);
    if (values.empty()) return;
    const Tensor mean =
        allreduce(constant(values, {.dtype = float64}),
                  {.name = "MetricAverageCallback", .op = kAverage, .process_set = set_});
    std::size_t next = 0;
    values = mean.to_vector<double>();
    for (auto& [name, value] : logs) value = values[next++];
  }

 private:
  ProcessSet set_;
};

// The slots of Keras's momentum, which contain the learning rate. (Slots of this name of other
// optimizers do not.)
std::vector<Variable> momentum_slots(const optimizers::Optimizer& optimizer) {
  std::vector<Variable> slots;
  if (optimizer.name() != "sgd" && optimizer.name() != "rmsprop") return slots;
  for (const Variable& variable : optimizer.variables())
    if (variable.name().ends_with("/momentum")) slots.push_back(variable);
  return slots;
}

class RateImpl : public CallbackBase {
 public:
  RateImpl(const char* name, const callbacks::LearningRateScheduleOptions& options)
      : name_(name), options_(options) {
    if (!(options.initial_lr > 0.0 && std::isfinite(options.initial_lr)))
      fail<InvalidArgumentError>("[{}] expected an initial_lr above 0, got {}", name,
                                 options.initial_lr);
    if (options.steps_per_epoch && *options.steps_per_epoch < 1)
      fail<InvalidArgumentError>("[{}] expected steps_per_epoch of at least 1, got {}", name,
                                 *options.steps_per_epoch);
  }

  void on_train_begin(Model& model) override {
    if (options_.staircase) return;
    steps_ = options_.steps_per_epoch;
    if (!steps_) steps_ = impl_of(model, name_).progress->steps_per_epoch;
    if (!steps_)
      fail<FailedPreconditionError>(
          "[{}] Could not autodetect the number of steps per epoch. Please specify the "
          "steps_per_epoch parameter",
          name_);
  }

  // An epoch that was resumed may begin with a later step than the first.
  void on_epoch_begin(Model& model, std::int64_t epoch) override {
    epoch_ = epoch;
    before_step(model, impl_of(model, name_).progress->step);
  }
  void on_train_batch_end(Model& model, std::int64_t batch, const Logs&) override {
    if (!options_.staircase && batch + 1 < *steps_) before_step(model, batch + 1);
  }

 protected:
  std::int64_t steps_per_epoch() const { return *steps_; }

 private:
  virtual double factor(double epoch) const {
    return options_.multiplier.at(epoch, options_.start_epoch);
  }

  void before_step(const Model& model, std::int64_t step) const {
    if (epoch_ < options_.start_epoch || (options_.end_epoch && epoch_ >= *options_.end_epoch))
      return;
    double epoch = static_cast<double>(epoch_);
    if (options_.staircase) {
      if (step != 0) return;
    } else {
      epoch += static_cast<double>(step) / static_cast<double>(*steps_);
    }
    optimizers::Optimizer optimizer = model.optimizer();
    const double before = optimizer.learning_rate();
    const double rate = options_.initial_lr * factor(epoch);
    optimizer.set_learning_rate(rate);
    if (!options_.momentum_correction || before <= 0.0 || rate == before) return;
    const NoGradScope no_grad;
    for (Variable& slot : momentum_slots(optimizer)) slot.assign(slot.value() * (rate / before));
  }

  const char* name_;
  callbacks::LearningRateScheduleOptions options_;
  std::optional<std::int64_t> steps_;  // per epoch; set unless the options say staircase
  std::int64_t epoch_ = 0;
};

class WarmupImpl final : public RateImpl {
 public:
  explicit WarmupImpl(const callbacks::LearningRateWarmupOptions& options)
      : RateImpl("LearningRateWarmupCallback", {.initial_lr = options.initial_lr,
                                                .end_epoch = options.warmup_epochs,
                                                .staircase = false,
                                                .momentum_correction = options.momentum_correction,
                                                .steps_per_epoch = options.steps_per_epoch}),
        epochs_(options.warmup_epochs),
        verbose_(options.verbose) {
    if (options.warmup_epochs < 1)
      fail<InvalidArgumentError>(
          "[LearningRateWarmupCallback] expected warmup_epochs of at least 1, got {}",
          options.warmup_epochs);
  }

  void on_epoch_end(Model& model, std::int64_t epoch, const Logs&) override {
    if (epoch == epochs_ - 1 && verbose_ > 0 && rank() == 0)
      logging::info(
          "[LearningRateWarmupCallback] epoch {}: finished gradual learning rate warmup to {}",
          epoch + 1, model.optimizer().learning_rate());
  }

 private:
  // As Horovod, counts the step to come, so that the last step of an epoch has a round number.
  double factor(double epoch) const override {
    const double ranks = size();
    epoch += 1.0 / static_cast<double>(steps_per_epoch());
    return (epoch * (ranks - 1.0) / static_cast<double>(epochs_) + 1.0) / ranks;
  }

  std::int64_t epochs_;
  int verbose_;
};

}  // namespace

namespace callbacks {

BroadcastGlobalVariables::BroadcastGlobalVariables(int root_rank, const ProcessSet& process_set)
    : Callback(std::make_shared<BroadcastImpl>(root_rank, process_set)) {}

MetricAverageCallback::MetricAverageCallback(const ProcessSet& process_set)
    : Callback(std::make_shared<MetricAverageImpl>(process_set)) {}

double Multiplier::at(double epoch, std::int64_t start_epoch) const {
  return function_ ? function_(epoch) : std::pow(base_, epoch - static_cast<double>(start_epoch));
}

namespace {

LearningRateScheduleOptions with(double initial_lr, const Multiplier& multiplier,
                                 LearningRateScheduleOptions options) {
  options.initial_lr = initial_lr;
  options.multiplier = multiplier;
  return options;
}

LearningRateWarmupOptions with(double initial_lr, LearningRateWarmupOptions options) {
  options.initial_lr = initial_lr;
  return options;
}

}  // namespace

LearningRateScheduleCallback::LearningRateScheduleCallback(
    const LearningRateScheduleOptions& options)
    : Callback(std::make_shared<RateImpl>("LearningRateScheduleCallback", options)) {}
LearningRateScheduleCallback::LearningRateScheduleCallback(double initial_lr,
                                                           const Multiplier& multiplier,
                                                           LearningRateScheduleOptions options)
    : LearningRateScheduleCallback(with(initial_lr, multiplier, std::move(options))) {}

LearningRateWarmupCallback::LearningRateWarmupCallback(const LearningRateWarmupOptions& options)
    : Callback(std::make_shared<WarmupImpl>(options)) {}
LearningRateWarmupCallback::LearningRateWarmupCallback(double initial_lr,
                                                       LearningRateWarmupOptions options)
    : LearningRateWarmupCallback(with(initial_lr, std::move(options))) {}

}  // namespace callbacks
}  // namespace tandem::hvd
