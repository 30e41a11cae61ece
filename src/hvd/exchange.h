// What brings a DistributedOptimizer's gradients together: a lane, by names.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hvd/lane_transport.h"
#include "nn/optimizer_impl.h"
#include "sync/eager_sync.h"

namespace tandem::hvd {

class LaneExchange final : public optimizers::GradientExchange {
 public:
  // `name`: of its operations, the same on every rank.
  LaneExchange(std::string name, const DistributedOptions& options);

  std::unique_ptr<GradientSync> start(const std::vector<Variable>& variables) override;
  void apply(const std::vector<Variable>& variables, const std::function<void()>& update) override;

  // A pass whose gradients are combined, whatever the options say of passes and of Adasum.
  std::unique_ptr<GradientSync> start_combining(const std::vector<Variable>& variables);

 private:
  class LocalPass;
  // What the gradients of some variables need.
  struct Plan {
    std::vector<RefPtr<VariableImpl>> variables;
    GradientRequests requests;
    std::size_t bytes = 0;          // of all buckets
    std::optional<EagerSync> sync;  // made by the first eager pass
    std::vector<Tensor> added_up;   // over the passes before
    int passes = 0;
  };
  Plan& plan_for(const std::vector<Variable>& variables);

  std::string name_;
  DistributedOptions options_;
  std::shared_ptr<Lane> lane_;
  Request request_;  // of every gradient, but for its name, dtype and shape
  std::vector<std::unique_ptr<Plan>> plans_;
};

}  // namespace tandem::hvd
