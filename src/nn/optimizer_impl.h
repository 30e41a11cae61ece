// What optimizers share: the slots of each variable, the count of steps, summing and clipping of
// the gradients. A kind of optimizer adds its slots and its update rule.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sync/gradient_sync.h"
#include "tandem/optimizers.h"

namespace tandem::optimizers {

// How an optimizer's gradients are synchronised outside strategies. Belongs to one thread.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;
  virtual std::unique_ptr<GradientSync> start(const std::vector<Variable>& variables) = 0;
  // Calls `update`, which applies what GradientSync::finish() gave to `variables`.
  virtual void apply(const std::vector<Variable>& variables, const std::function<void()>& update) {
    static_cast<void>(variables);
    update();
  }
};

// Variables' slots are made once, by whichever replica comes first; every replica then works on its
// own copies of variables, slots and the count of steps.
struct Optimizer::Impl : std::enable_shared_from_this<Optimizer::Impl> {
 public:
  struct SlotSpec {
    const char* name;
    double initial_value = 0.0;
  };
  struct Step {
    double learning_rate = 0.0;
    std::int64_t number = 1;  // of this step, from 1
  };

  Impl(std::string name, LearningRate rate, const Clipping& clipping,
       std::vector<Variable> parameters);
  virtual ~Impl() = default;

  const std::string& name() const { return name_; }
  const std::vector<Variable>& parameters() const { return parameters_; }
  // Whether variables without a gradient are to be spoken of: not in step(), where they are those
  // that no backward() has reached since zero_grad().
  enum class Missing { kReported, kExpected };
  // `exchange` may be null.
  void apply(std::vector<Tensor> gradients, const std::vector<Variable>& variables,
             const ApplyOptions& options, GradientExchange* exchange, Missing missing);
  void minimize(const Tensor& loss, const std::vector<Variable>& variables,
                GradientExchange* exchange);
  std::int64_t iterations() const;
  double learning_rate() const { return rate_->at(scheduled() ? iterations() : 0); }
  bool scheduled() const { return rate_->scheduled(); }
  void set_learning_rate(const LearningRate& rate) { *rate_ = rate; }
  std::vector<Variable> variables() const;
  void build(const std::vector<Variable>& variables) { static_cast<void>(states_of(variables)); }

 protected:
  virtual std::vector<SlotSpec> slots() const = 0;
  // Changes `variable` and `slots` (in the order of slots()) in place; all are on one device.
  virtual void update(const Step& step, const Tensor& variable, const Tensor& gradient,
                      std::span<const Tensor> slots) const = 0;
  // Puts a later step into the attributes of what update() ran.
  using Renew = void (*)(const Step& step, void* attrs);
  virtual Renew renewal() const = 0;

 private:
  class StepUpdate;
  struct State {
    Variable variable;  // kept, so that its address means no other one
    std::vector<Variable> slots;
  };

  std::vector<State*> states_of(const std::vector<Variable>& variables);
  // Checks final gradients: throws InvalidArgumentError when no variable has one, and warns once
  // of the variables that have none.
  void report_missing(std::span<const Tensor> gradients, const std::vector<Variable>& variables);
  // The step itself, with gradients that are final.
  void take_step(std::span<State* const> states, std::vector<Tensor> gradients,
                 const std::vector<Variable>& variables, GradientExchange* exchange);
  void check_copies(const Variable& variable) const;
  static Variable make_count(const VariableImpl& like);
  std::unique_ptr<State> make_state(const Variable& variable) const;
  void clip(std::vector<Tensor>& gradients) const;
  Step step_at(std::int64_t count) const {
    return {.learning_rate = rate_->at(count), .number = count + 1};
  }
  // One step of the copies of replica `copy`.
  void update_copy(std::size_t copy, std::span<State* const> states,
                   std::span<const Tensor> gradients);

  // The same in a graph that sessions run: what an update depends on is then counted by a variable.
  void update_in_graph(std::size_t copy, std::span<State* const> states,
                       std::span<const Tensor> gradients);
  void update_states(const StepUpdate& update, std::size_t copy, std::span<State* const> states,
                     std::span<const Tensor> gradients);

  std::string name_;
  std::shared_ptr<LearningRate> rate_;  // shared with graphs
  Clipping clipping_;
  std::vector<Variable> parameters_;

  mutable std::mutex mutex_;  // of what follows
  Variable iterations_;       // on the host, a copy a replica; undefined before the first variable
  std::unordered_map<const VariableImpl*, std::unique_ptr<State>> states_;
  std::vector<State*> order_;  // of creation
  bool missing_reported_ = false;
};

}  // namespace tandem::optimizers
