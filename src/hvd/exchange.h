// Reduces the gradients of a DistributedOptimizer by operations that ranks match by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "hvd/process_set_coordinator.h"
#include "nn/optimizer_impl.h"
#include "tandem/variable.h"

namespace tandem::hvd {

class HorovodExchange final : public optimizers::GradientExchange {
 public:
  // `name`: prefix of its operations' names, the same on every rank.
  HorovodExchange(std::string name, const DistributedOptions& options);
  ~HorovodExchange() override;

  std::unique_ptr<GradientSync> start(const std::vector<Variable>& variables) override;
  void apply(const std::vector<Variable>& variables, const std::function<void()>& update) override;

  // Starts a pass that reduces gradients even if the options ask for several backward passes
  // per step or for Adasum.
  std::unique_ptr<GradientSync> start_reduction(const std::vector<Variable>& variables);

  // Replaces grad() of the variables by the reduced gradients.
  void synchronize(const std::vector<Variable>& variables);
  // Steps reduce nothing until each of these calls was undone.
  void skip() { ++skips_; }
  void undo_skip() { --skips_; }
  // Throws UnimplementedError with kAdasum, which reduces the changes that steps make.
  void require_gradients(const char* what) const;

 private:
  class LocalPass;
  struct VariableSync;
  VariableSync& sync_for(const std::vector<Variable>& variables);

  std::string name_;
  DistributedOptions options_;
  std::shared_ptr<ProcessSetCoordinator> coordinator_;
  Request request_;  // template of the gradients' requests, without name, dtype and shape
  std::vector<std::unique_ptr<VariableSync>> syncs_;
  int skips_ = 0;
  bool synchronized_ = false;  // by synchronize(), since the last step
};

}  // namespace tandem::hvd
