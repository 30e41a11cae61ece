// DistributedOptimizer, DistributedGradientTape and the callbacks.
#include <atomic>

#include "hvd/exchange.h"
#include "runtime/variable_impl.h"
#include "tandem/hvd.h"
#include "tandem/model.h"

namespace tandem::hvd {

optimizers::Optimizer DistributedOptimizer(const optimizers::Optimizer& optimizer,
                                           const DistributedOptions& options) {
  if (!optimizer.defined())
    throw InvalidArgumentError(
        "[DistributedOptimizer] expected an optimizer, got an undefined one");
  static std::atomic<int> count{0};
  return optimizers::Optimizer(optimizer.impl(),
                               std::make_shared<HorovodExchange>(
                                   "DistributedOptimizer." + std::to_string(count++), options));
}

struct DistributedGradientTape::Impl {
  Impl(const std::string& name, const DistributedOptions& options, GradientTapeOptions tape_options)
      : tape(tape_options), exchange(name, options) {}
  GradientTape tape;
  HorovodExchange exchange;
};

DistributedGradientTape::DistributedGradientTape(const DistributedOptions& options,
                                                 GradientTapeOptions tape)
    : impl_(std::make_unique<Impl>("DistributedGradientTape", options, tape)) {
  if (options.backward_passes_per_step != 1)
    throw InvalidArgumentError(
        "[DistributedGradientTape] expected backward_passes_per_step of 1; a tape adds nothing up");
}
DistributedGradientTape::~DistributedGradientTape() = default;

void DistributedGradientTape::watch(const Tensor& tensor) { impl_->tape.watch(tensor); }
void DistributedGradientTape::watch(const Variable& variable) { impl_->tape.watch(variable); }

std::vector<Tensor> DistributedGradientTape::gradient(const Tensor& target,
                                                      const std::vector<Variable>& sources) {
  std::vector<Tensor> gradients = impl_->tape.gradient(target, sources);
  const auto pass = impl_->exchange.start_reduction(sources);
  for (std::size_t i = 0; i < gradients.size(); ++i) pass->ready(i, std::move(gradients[i]));
  return *pass->finish();
}

namespace {

class BroadcastCallback final : public tandem::callbacks::CallbackBase {
 public:
  BroadcastCallback(int root_rank, ProcessSet set) : root_rank_(root_rank), set_(std::move(set)) {}
  void on_train_begin(Model& model) override {
    std::vector<Variable> variables = model.variables();
    for (const Variable& variable : model.optimizer().variables()) variables.push_back(variable);
    broadcast_variables(variables, root_rank_, set_);
  }

 private:
  int root_rank_;
  ProcessSet set_;
};

}  // namespace

tandem::callbacks::Callback callbacks::BroadcastGlobalVariables(int root_rank,
                                                                const ProcessSet& process_set) {
  return {std::make_shared<BroadcastCallback>(root_rank, process_set)};
}

}  // namespace tandem::hvd
