// The base of all optimizers: the slots of each variable, the step counter, and reducing and
// clipping gradients. Each optimizer adds its kinds of slots and its update rule.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/mutex.h"
#include "nn/loss_scale.h"
#include "sync/gradient_sync.h"
#include "tandem/optimizers.h"

namespace tandem::optimizers {

// Limits on gradients, applied after they have been summed over the replicas. At most one may be
// set.
struct Clipping {
  std::optional<double> clipnorm{};         // of the norm of each gradient
  std::optional<double> clipvalue{};        // of the absolute value of each element
  std::optional<double> global_clipnorm{};  // of the norm of all gradients together
};

// How an optimizer reduces its gradients outside strategies (Horovod). Not thread-safe.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  // Null: this step's gradients are reduced already.
  virtual std::unique_ptr<GradientSync> start(const std::vector<Variable>& variables) = 0;
  // Calls `update`, which applies the gradients of GradientSync::finish() to `variables`.
  virtual void apply(const std::vector<Variable>& variables, const std::function<void()>& update) {
    static_cast<void>(variables);
    update();
  }
};

// One step of a loss scale.
struct LossScaledStep {
  LossScale* scale = nullptr;
  // Whether the replica's gradients were finite when they were divided by the scale, before the
  // step. Undefined if the step divides them.
  Tensor unscaled;
  // Set by the step: whether it was taken. Undefined without gradients.
  Tensor finite;
};

// The slots of a variable are created once, by the first replica that needs them. Every replica
// then uses its own copies of the variables, the slots and the step counter.
struct Optimizer::Impl : std::enable_shared_from_this<Optimizer::Impl> {
 public:
  struct SlotSpec {
    const char* name;
    double initial_value = 0.0;
  };
  struct StepInfo {
    double learning_rate = 0.0;
    std::int64_t number = 1;  // counts from 1
    std::size_t group = 0;    // of the variables
  };

  // Scales the step of each variable to the ratio of the norms of the variable and its gradient
  // (LARC).
  struct TrustRatio {
    double coefficient = 0.02;
    bool clip = true;  // the learning rate is the largest rate that a variable gets
    double epsilon = 1e-8;
    double weight_decay = 0.0;  // added to the gradient with the ratio
  };

  Impl(std::string name, LearningRate rate, const Clipping& clipping,
       std::vector<Variable> parameters);
  virtual ~Impl() = default;

  // The same optimizer with trust ratios, which take over its weight decay. It shares the learning
  // rate, but no slots.
  virtual std::shared_ptr<Impl> with_trust(TrustRatio trust) const = 0;

  const std::string& name() const { return name_; }
  const std::vector<Variable>& parameters() const { return parameters_; }
  // Whether to report variables without a gradient. step() does not: it expects those that no
  // backward() has reached since zero_grad().
  enum class Missing { kReported, kExpected };
  // `exchange` may be null.
  // `scaled` may be null; else the step is skipped if the reduced gradients are not finite.
  void apply(std::vector<Tensor> gradients, const std::vector<Variable>& variables,
             const ApplyOptions& options, GradientExchange* exchange, Missing missing,
             LossScaledStep* scaled = nullptr);
  void minimize(const Tensor& loss, const std::vector<Variable>& variables,
                GradientExchange* exchange);
  std::int64_t iterations() const;
  double learning_rate(std::size_t group = 0) const {
    const LearningRate& rate = *groups_[group].rate;
    return rate.at(rate.scheduled() ? iterations() : 0);
  }
  bool scheduled(std::size_t group = 0) const { return groups_[group].rate->scheduled(); }
  // The last schedule, which a fixed rate may have replaced; none if there was none.
  const std::optional<LearningRate>& schedule() const { return schedule_; }
  // Sets the rate of the first group; the others' change by the same factor.
  void set_learning_rate(const LearningRate& rate);
  // Groups of parameters, each with a learning rate and a rule of its own (tandem/optim.h).
  // Variables that are in none belong to the first.
  std::size_t num_groups() const { return groups_.size(); }
  const std::vector<Variable>& group_parameters(std::size_t group) const {
    return groups_[group].parameters;
  }
  void set_group_rate(std::size_t group, const LearningRate& rate);
  std::vector<Variable> variables() const;
  // The number of steps and the slots of parameters(), which are created, with PyTorch's names:
  // "state.0.exp_avg".
  std::vector<std::pair<std::string, Variable>> named_state();
  // Without those of loss scales, which belong to whatever strategy uses them.
  std::vector<Variable> variables_of_steps() const;
  // Null without loss scaling.
  LossScale* loss_scale() const { return loss_scales_.empty() ? nullptr : loss_scales_[0].get(); }
  // One for each loss (amp::initialize).
  const std::vector<std::shared_ptr<LossScale>>& loss_scales() const { return loss_scales_; }
  // `plain_steps`: step() takes gradients as they are if nothing has scaled the loss, as Apex does.
  // Otherwise it divides all.
  void set_loss_scales(std::vector<std::shared_ptr<LossScale>> scales, bool plain_steps = false) {
    loss_scales_ = std::move(scales);
    plain_steps_ = plain_steps;
  }
  // The calling replica has scaled a loss.
  void note_scaled();
  // The replica's next step() gets these gradients.
  void note_step(std::span<const Tensor> gradients);
  // Divides grad() of the parameters by the scale before the replica's next step.
  void unscale_parameters();
  // After the backward pass of a loss with `scale` (amp::scale_loss). `earlier`: grad() before,
  // already divided; empty if grad() was kept, because the earlier losses delayed it.
  void finish_backward(LossScale& scale, std::span<const Tensor> earlier, bool delay_unscale);
  // Whether the replica's grad() is still scaled, because the losses before delayed it.
  bool takes_scaled_gradients();
  void build(const std::vector<Variable>& variables) { static_cast<void>(states_of(variables)); }

 protected:
  Impl(const Impl& other, const TrustRatio& trust);
  // Adds a group. Throws InvalidArgumentError if a parameter is in a group already. REQUIRES: no
  // step has been taken.
  void add_group(const LearningRate& rate, const std::vector<Variable>& parameters);

  virtual std::vector<SlotSpec> slots() const = 0;
  // Changes `variable` and `slots` (in the order of slots()) in place; all are on one device.
  virtual void update(const StepInfo& step, const Tensor& variable, const Tensor& gradient,
                      std::span<const Tensor> slots) const = 0;
  // Writes the learning rate and number of a later step to the attributes of the operation that
  // update() runs. Graphs call it before each run.
  using SetStep = void (*)(const StepInfo& step, void* attrs);
  virtual SetStep step_setter() const = 0;

 private:
  class StepUpdate;
  struct State {
    Variable variable;  // kept alive, so that its address stays unique
    std::vector<Variable> slots;
    std::size_t group = 0;
  };

  std::vector<State*> states_of(const std::vector<Variable>& variables);
  // Checks reduced gradients: throws InvalidArgumentError if no variable has one, and warns once
  // about variables without one.
  void report_missing(std::span<const Tensor> gradients, const std::vector<Variable>& variables);
  // Applies reduced gradients to the variables of all local replicas.
  void take_step(std::span<State* const> states, std::vector<Tensor> gradients,
                 const std::vector<Variable>& variables, GradientExchange* exchange,
                 LossScaledStep* scaled);
  // Divides grad() of the parameters by `scale` and adds `earlier`, if it is not empty.
  void unscale_and_add(LossScale& scale, std::span<const Tensor> earlier);
  // The replica's step with loss_scale(); none without loss scaling.
  std::optional<LossScaledStep> own_scaled_step();
  // The same with `scaled`: unscales, and takes the step if the gradients are finite.
  void take_scaled_step(std::span<State* const> states, std::vector<Tensor> gradients,
                        const std::vector<Variable>& variables, GradientExchange* exchange,
                        LossScaledStep& scaled);
  void update_replicas(std::span<State* const> states, std::span<const Tensor> gradients,
                       const std::vector<Variable>& variables, GradientExchange* exchange);
  void check_copies(const Variable& variable) const;
  static Variable make_step_counter(const VariableImpl& like);
  std::unique_ptr<State> make_state(const Variable& variable) const;
  void clip(std::vector<Tensor>& gradients) const;
  // Throws InvalidArgumentError "[name] ..." for a rate that would make NaN of weights.
  static double rate_at(const std::string& name, const LearningRate& rate, std::int64_t step);
  StepInfo step_at(std::int64_t count, std::size_t group = 0) const {
    return {.learning_rate = rate_at(name_, *groups_[group].rate, count),
            .number = count + 1,
            .group = group};
  }
  // Updates the copies of local replica `copy`.
  void update_copy(std::size_t copy, std::span<State* const> states,
                   std::span<const Tensor> gradients);

  // The step when a program runs, if it has taken `more` steps than the counter says.
  using StepOfRun = std::function<StepInfo(std::int64_t more)>;
  struct CountedStep {
    StepOfRun of_run;  // null outside functions
    RefPtr<Resource> counter;
  };
  // The gradients, with trust ratios if there are any.
  std::vector<Tensor> trusted(std::size_t copy, std::span<State* const> states,
                              std::span<const Tensor> gradients, const StepInfo& step,
                              const CountedStep& counted) const;

  // The same in a graph for sessions, where a variable of the graph counts the steps.
  void update_in_graph(std::size_t copy, std::span<State* const> states,
                       std::span<const Tensor> gradients);
  // Updates the states of the step's group.
  void update_states(const StepUpdate& update, std::size_t copy, std::span<State* const> states,
                     std::span<const Tensor> gradients);

  std::string name_;
  struct Group {
    std::shared_ptr<LearningRate> rate;  // shared with graphs, and with with_trust()'s optimizer
    std::vector<Variable> parameters;
  };
  std::vector<Group> groups_;  // at least one
  std::unordered_map<const VariableImpl*, std::size_t> group_of_;
  std::optional<LearningRate> schedule_;
  Clipping clipping_;
  std::vector<Variable> parameters_;
  std::vector<std::shared_ptr<LossScale>> loss_scales_;  // empty: no loss scaling
  bool plain_steps_ = false;
  std::optional<TrustRatio> trust_;

  mutable Mutex mutex_{"Optimizer"};  // guards the following
  Variable iterations_;  // on the host, one copy per replica; undefined before the first slots
  std::unordered_map<const VariableImpl*, std::unique_ptr<State>> states_;
  std::vector<State*> order_;  // in order of creation
  bool missing_reported_ = false;
  // By replica: LossScaledStep::unscaled of the next step.
  std::unordered_map<std::size_t, Tensor> unscaled_;
  std::unordered_set<std::size_t> delayed_;  // replicas whose grad() is scaled
  std::unordered_set<std::size_t> scaled_;   // replicas that have scaled a loss since their step
};

}  // namespace tandem::optimizers
