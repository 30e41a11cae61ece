// DistributedOptimizer and DistributedGradientTape.
#include <algorithm>
#include <atomic>
#include <optional>
#include <set>

#include "core/joined.h"
#include "core/status.h"
#include "hvd/exchange.h"
#include "runtime/variable_impl.h"
#include "tandem/hvd.h"

namespace tandem::hvd {

// --- the optimizer ---

namespace {

using NamedParameters = std::vector<std::pair<std::string, Variable>>;

void check_named(const NamedParameters& named, const std::vector<Variable>& parameters) {
  if (named.empty()) return;
  std::set<std::string> names, twice;
  for (const auto& [name, variable] : named)
    if (!names.insert(name).second) twice.insert(name);
  if (!twice.empty())
    fail<InvalidArgumentError>(
        "[DistributedOptimizer] Parameter names in named_parameters must be unique. Found "
        "duplicates: {}",
        joined(twice, ", "));
  for (const Variable& parameter : parameters)
    if (std::none_of(named.begin(), named.end(),
                     [&](const auto& each) { return each.second == parameter; }))
      fail<InvalidArgumentError>(
          "[DistributedOptimizer] named_parameters was specified, but one or more model parameters "
          "were not named: {}",
          quoted_name(parameter));
}

const optimizers::Optimizer& checked(const optimizers::Optimizer& optimizer,
                                     const DistributedOptions& options) {
  if (!optimizer.defined())
    throw InvalidArgumentError(
        "[DistributedOptimizer] expected an optimizer, got an undefined one");
  check_named(options.named_parameters, optimizer.parameters());
  return optimizer;
}

std::shared_ptr<HorovodExchange> make_exchange(const DistributedOptions& options) {
  static std::atomic<int> count{0};
  return std::make_shared<HorovodExchange>("DistributedOptimizer." + std::to_string(count++),
                                           options);
}

HorovodExchange& exchange_of(const std::shared_ptr<optimizers::GradientExchange>& exchange) {
  return static_cast<HorovodExchange&>(*exchange);
}

}  // namespace

DistributedOptimizer::DistributedOptimizer(const optimizers::Optimizer& optimizer,
                                           const DistributedOptions& options)
    : Optimizer(checked(optimizer, options).impl(), make_exchange(options)) {}

void DistributedOptimizer::synchronize() {
  if (parameters().empty())
    throw FailedPreconditionError(
        "[DistributedOptimizer] synchronize() needs parameters, got none: pass them to the "
        "optimizer that it wraps");
  exchange_of(exchange()).synchronize(parameters());
}

DistributedOptimizer::SkipSynchronize DistributedOptimizer::skip_synchronize() const {
  exchange_of(exchange()).require_gradients("skip_synchronize()");
  return SkipSynchronize(exchange());
}

DistributedOptimizer::SkipSynchronize::SkipSynchronize(
    std::shared_ptr<optimizers::GradientExchange> exchange)
    : exchange_(std::move(exchange)) {
  exchange_of(exchange_).skip();
}

DistributedOptimizer::SkipSynchronize::~SkipSynchronize() { exchange_of(exchange_).undo_skip(); }

// --- the tape ---

struct DistributedGradientTape::Impl {
  Impl(GradientTape* tape, const DistributedOptions& options)
      : tape(tape), exchange("DistributedGradientTape", options) {
    if (options.backward_passes_per_step != 1)
      throw InvalidArgumentError(
          "[DistributedGradientTape] expected backward_passes_per_step of 1; a tape adds nothing "
          "up");
  }

  std::optional<GradientTape> own;
  GradientTape* tape;
  HorovodExchange exchange;
};

DistributedGradientTape::DistributedGradientTape(const DistributedOptions& options,
                                                 GradientTapeOptions tape)
    : impl_(std::make_unique<Impl>(nullptr, options)) {
  impl_->tape = &impl_->own.emplace(tape);
}
DistributedGradientTape::DistributedGradientTape(GradientTape& tape,
                                                 const DistributedOptions& options)
    : impl_(std::make_unique<Impl>(&tape, options)) {}
DistributedGradientTape::~DistributedGradientTape() = default;

void DistributedGradientTape::watch(const Tensor& tensor) { impl_->tape->watch(tensor); }
void DistributedGradientTape::watch(const Variable& variable) { impl_->tape->watch(variable); }

std::vector<Tensor> DistributedGradientTape::gradient(const Tensor& target,
                                                      const std::vector<Variable>& sources,
                                                      const GradientOptions& options) {
  std::vector<Tensor> gradients = impl_->tape->gradient(target, sources, options);
  const auto pass = impl_->exchange.start_reduction(sources);
  for (std::size_t i = 0; i < gradients.size(); ++i) pass->ready(i, std::move(gradients[i]));
  return *pass->finish();
}

}  // namespace tandem::hvd
