// Optimizers and learning-rate schedules. Update rules and defaults are those of Keras,
// but for LAMB.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem::optimizers {

// A learning rate: a number, or a function of the number of steps taken. A value.
class LearningRate {
 public:
  using Schedule = std::function<double(std::int64_t step)>;
  LearningRate(double rate) : rate_(rate) {}                           // NOLINT: implicit
  LearningRate(Schedule schedule) : schedule_(std::move(schedule)) {}  // NOLINT: implicit
  double at(std::int64_t step) const { return schedule_ ? schedule_(step) : rate_; }
  bool scheduled() const { return static_cast<bool>(schedule_); }
  const Schedule& schedule() const { return schedule_; }  // empty: a number

 private:
  double rate_ = 0.0;
  Schedule schedule_;
};

// Bounds on gradients, applied after they have been summed over the replicas. At most one.
struct Clipping {
  std::optional<double> clipvalue{};        // each element
  std::optional<double> clipnorm{};         // each gradient's norm
  std::optional<double> global_clipnorm{};  // the norm of all together
};

struct ApplyOptions {
  // The gradients have been summed over the replicas already.
  bool skip_gradients_aggregation = false;
};

class GradientExchange;

// A shared handle. Inside a strategy's replicas every replica calls it with its own gradients,
// which are summed over the replicas first; each replica then updates its own copies, side by side.
// Otherwise not thread-safe.
class Optimizer {
 public:
  Optimizer() = default;
  bool defined() const { return impl_ != nullptr; }
  const std::string& name() const;

  // One step. A variable whose gradient is undefined stays as it is, of which the first step that
  // meets one warns ("Gradients do not exist for variables [...]"), as Keras does. Throws
  // InvalidArgumentError "No gradients provided for any variable: ..." when none has one, and when
  // the lists differ in length, a gradient and its variable in shape or dtype, or variables in the
  // number of replicas that they were made for; RuntimeError "Mixing different ..." in a replica of
  // another strategy than theirs.
  void apply_gradients(std::vector<Tensor> gradients, const std::vector<Variable>& variables,
                       const ApplyOptions& options = {});
  // Backward from the scalar `loss`, summing each gradient over the replicas as soon as it is
  // there, then one step. Variables without a gradient are treated as by apply_gradients().
  void minimize(const Tensor& loss, const std::vector<Variable>& variables);

  // The other face: over the parameters given to the factory, their grad() and zero_grad().
  // Parameters without a gradient stay as they are, without a warning, as in PyTorch.
  void step();
  void zero_grad();
  const std::vector<Variable>& parameters() const;

  std::int64_t iterations() const;
  // The rate of the next step; setting it replaces a schedule.
  double learning_rate() const;
  // Whether the rate follows a schedule, so that the number of steps tells it.
  bool scheduled() const;
  void set_learning_rate(const LearningRate& rate);
  // "iterations" and the slots made so far, named "<optimizer>/<variable>/<slot>".
  std::vector<Variable> variables() const;
  // Makes the slots of these variables now, so that variables() is complete before the first step.
  void build(const std::vector<Variable>& variables);

  struct Impl;
  // `exchange`: what brings the gradients together with those of other processes before each step
  // that is taken through this handle, such as hvd::DistributedOptimizer's.
  explicit Optimizer(std::shared_ptr<Impl> impl,
                     std::shared_ptr<GradientExchange> exchange = nullptr)
      : impl_(std::move(impl)), exchange_(std::move(exchange)) {}
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  std::shared_ptr<Impl> impl_;
  std::shared_ptr<GradientExchange> exchange_;
};

/// Each optimizer also takes its learning rate by itself: SGD(0.1), Adam(1e-3, model.parameters()).
struct SGDOptions {
  LearningRate learning_rate = 0.01;
  double momentum = 0.0;
  bool nesterov = false;
  double weight_decay = 0.0;  // decoupled
  Clipping clipping{};
};
Optimizer SGD(const SGDOptions& options = {}, std::vector<Variable> parameters = {});
inline Optimizer SGD(const LearningRate& rate, std::vector<Variable> parameters = {}) {
  return SGD(SGDOptions{.learning_rate = rate}, std::move(parameters));
}

struct AdamOptions {
  LearningRate learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  Clipping clipping{};
};
Optimizer Adam(const AdamOptions& options = {},
               std::vector<Variable> parameters = {});  // Kingma and Ba 2015
inline Optimizer Adam(const LearningRate& rate, std::vector<Variable> parameters = {}) {
  return Adam(AdamOptions{.learning_rate = rate}, std::move(parameters));
}

struct AdamWOptions {
  LearningRate learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-7;
  double weight_decay = 0.004;
  Clipping clipping{};
};
Optimizer AdamW(const AdamWOptions& options = {},
                std::vector<Variable> parameters = {});  // Loshchilov and Hutter 2019
inline Optimizer AdamW(const LearningRate& rate, std::vector<Variable> parameters = {}) {
  return AdamW(AdamWOptions{.learning_rate = rate}, std::move(parameters));
}

struct RMSpropOptions {
  LearningRate learning_rate = 1e-3;
  double rho = 0.9;
  double momentum = 0.0;
  double epsilon = 1e-7;
  bool centered = false;
  Clipping clipping{};
};
Optimizer RMSprop(const RMSpropOptions& options = {}, std::vector<Variable> parameters = {});
inline Optimizer RMSprop(const LearningRate& rate, std::vector<Variable> parameters = {}) {
  return RMSprop(RMSpropOptions{.learning_rate = rate}, std::move(parameters));
}

struct AdagradOptions {
  LearningRate learning_rate = 1e-3;
  double initial_accumulator_value = 0.1;
  double epsilon = 1e-7;
  Clipping clipping{};
};
Optimizer Adagrad(const AdagradOptions& options = {},
                  std::vector<Variable> parameters = {});  // Duchi et al. 2011
inline Optimizer Adagrad(const LearningRate& rate, std::vector<Variable> parameters = {}) {
  return Adagrad(AdagradOptions{.learning_rate = rate}, std::move(parameters));
}

/// You et al. 2020, algorithm 2: the step of a variable is scaled to the variable's norm. As in the
/// paper and in Apex's FusedLAMB, and unlike in Keras 3, `weight_decay` is a part of the direction
/// that is scaled, and epsilon is 1e-6.
struct LAMBOptions {
  LearningRate learning_rate = 1e-3;
  double beta_1 = 0.9;
  double beta_2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0.0;
  Clipping clipping{};
};
Optimizer LAMB(const LAMBOptions& options = {}, std::vector<Variable> parameters = {});
inline Optimizer LAMB(const LearningRate& rate, std::vector<Variable> parameters = {}) {
  return LAMB(LAMBOptions{.learning_rate = rate}, std::move(parameters));
}

// "sgd", "adam", ... with their defaults. Throws InvalidArgumentError naming them all.
Optimizer from_name(std::string_view name, std::optional<LearningRate> rate = std::nullopt);

// Schedules as in Keras; steps count from 0.
namespace schedules {

LearningRate exponential_decay(double initial, std::int64_t decay_steps, double decay_rate,
                               bool staircase = false);
// boundaries.size() + 1 values; values[i] up to and including step boundaries[i].
LearningRate piecewise_constant(std::vector<std::int64_t> boundaries, std::vector<double> values);
LearningRate polynomial_decay(double initial, std::int64_t decay_steps, double end = 1e-4,
                              double power = 1.0, bool cycle = false);
LearningRate inverse_time_decay(double initial, std::int64_t decay_steps, double decay_rate,
                                bool staircase = false);
// From `initial` to `alpha` * target over decay_steps, after a linear warm-up to `warmup_target`.
struct CosineOptions {
  double alpha = 0.0;
  std::optional<double> warmup_target{};
  std::int64_t warmup_steps = 0;
};
LearningRate cosine_decay(double initial, std::int64_t decay_steps,
                          const CosineOptions& options = {});

}  // namespace schedules
}  // namespace tandem::optimizers
