// What brings a DistributedOptimizer's gradients together: a lane, by names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hvd/lane.h"
#include "nn/optimizer_impl.h"

namespace tandem::hvd {

// How DistributedOptions has gradients combined.
struct Combination {
  Op op = kAverage;
  double prescale = 1.0, postscale = 1.0;
  Compression compression = Compression::kNone;
};
// Throws InvalidArgumentError for options that make no sense.
Combination combination_of(const DistributedOptions& options, int ranks);

class LaneExchange final : public optimizers::GradientExchange {
 public:
  // `name`: of its operations, the same on every rank.
  LaneExchange(std::string name, const DistributedOptions& options);

  std::unique_ptr<GradientSync> start(const std::vector<Variable>& variables) override;
  void apply(const std::vector<Variable>& variables, const std::function<void()>& update) override;

  // A pass whose gradients are combined, whatever the options say of passes and of Adasum.
  std::unique_ptr<GradientSync> start_combining(const std::vector<Variable>& variables);

 private:
  class EagerPass;
  class LocalPass;
  // Where the gradients of some variables lie one behind the other, as they are submitted.
  struct Home {
    Bucket bucket;
    std::vector<std::size_t> place_of;  // by variable
  };
  // What is asked for each of some variables: with a gradient, and without one.
  struct Plan {
    std::vector<RefPtr<VariableImpl>> variables;
    std::vector<RequestRef> present, absent;
    std::vector<Tensor> added_up;  // over the passes before
    int passes = 0;
    bool may_have_home = false;
    std::vector<std::size_t> order;  // in which the first pass submitted the variables
    std::optional<Home> home;        // behind that pass
  };
  Plan& plan_for(const std::vector<Variable>& variables);
  // For a pass, where nobody reads what the last one left there; null: there is none.
  Home* home_of(Plan& plan);

  std::string name_;
  DistributedOptions options_;
  std::shared_ptr<Lane> lane_;
  Combination combination_;
  std::vector<std::unique_ptr<Plan>> plans_;
};

// A pass of a thread that builds a graph: buckets of gradients become nodes; the lane brings them
// together when the program runs. `requests`: of each variable.
std::unique_ptr<GradientSync> start_traced_pass(std::shared_ptr<Lane> lane,
                                                std::span<const RequestRef> requests,
                                                const std::vector<Variable>& variables);

}  // namespace tandem::hvd
