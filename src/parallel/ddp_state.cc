#include "parallel/ddp_state.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>

#include "autodiff/engine.h"
#include "comm/communicator.h"
#include "comm/exchange_bytes.h"
#include "core/status.h"
#include "graph/graph.h"
#include "op/context.h"
#include "parallel/bucket_tensors.h"
#include "runtime/gradient_buffer.h"
#include "runtime/variable_impl.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"
#include "tandem/variable.h"

namespace tandem::parallel {
namespace {

// Adds the leaves that `tensor` was computed from to `leaves`.
void add_leaves_of(const Tensor& tensor, std::unordered_set<const Leaf*>& leaves) {
  std::unordered_set<const OpNode*> seen;
  std::vector<const OpNode*> stack;
  const auto reach = [&](const GradEdge& edge) {
    if (!edge) return;
    const auto* node = static_cast<const GradNode*>(edge.node.get());
    if (!node->op)
      leaves.insert(static_cast<const Leaf*>(node));
    else if (const auto* op_node = static_cast<const OpNode*>(node); seen.insert(op_node).second)
      stack.push_back(op_node);
  };
  reach(impl_of(tensor).grad);
  while (!stack.empty()) {
    const OpNode* node = stack.back();
    stack.pop_back();
    for (const OpNode::Input& input : node->inputs) reach(input.edge);
  }
}

struct Described {
  std::string name, dtype, sizes;
  bool operator==(const Described&) const = default;
};

std::string describe(const std::vector<Variable>& variables) {
  std::string text;
  for (const Variable& variable : variables)
    text += fmt::format("{}\x1f{}\x1f{}\x1e", variable.name(), name_of(variable.dtype()),
                        variable.shape().to_string());
  return text;
}

std::vector<Described> read_described(std::string_view text) {
  std::vector<Described> variables;
  const auto next = [&](char end) {
    const std::size_t at = std::min(text.find(end), text.size());
    std::string field(text.substr(0, at));
    text.remove_prefix(std::min(at + 1, text.size()));
    return field;
  };
  while (!text.empty()) {
    Described& described = variables.emplace_back();
    described.name = next('\x1f');
    described.dtype = next('\x1f');
    described.sizes = next('\x1e');
  }
  return variables;
}

// Throws InvalidArgumentError, the same on every rank, if names, dtypes or shapes differ from those
// of the group's first rank. The message has `op` and the ranks' names.
void check_same_variables(Communicator& communicator, const std::vector<Variable>& variables,
                          std::string_view op, const RankNames& names) {
  const std::vector<std::string> descriptions = exchange_bytes(communicator, describe(variables));
  const std::vector<Described> first = read_described(descriptions[0]);
  for (int rank = 1; rank < communicator.size(); ++rank) {
    const std::vector<Described> other =
        read_described(descriptions[static_cast<std::size_t>(rank)]);
    const std::string process = rank == communicator.rank()
                                    ? std::string("this process")
                                    : fmt::format("process {}", names[rank]);
    if (other.size() != first.size())
      fail<InvalidArgumentError>(
          "[{}] expects same model across all ranks, but Rank {} has {} params, while rank {} has "
          "inconsistent {} params.",
          op, names[0], first.size(), names[rank], other.size());
    for (std::size_t i = 0; i < first.size(); ++i) {
      if (other[i] == first[i]) continue;
      fail<InvalidArgumentError>(
          "[{}] params[{}] in {} with sizes {} appears not to match sizes of the same param in "
          "process {}: there it is '{}', {} of {}, in process {} '{}', {} of {}",
          op, i, process, other[i].sizes, names[0], first[i].name, first[i].sizes, first[i].dtype,
          names[rank], other[i].name, other[i].sizes, other[i].dtype);
    }
  }
}

// Copies the values of rank `root` to all ranks.
void broadcast_variables(Communicator& communicator, const std::vector<Variable>& variables,
                         int root) {
  std::vector<Buffer> parts;
  parts.reserve(variables.size());
  for (const Variable& variable : variables) {
    const TensorImpl& impl =
        impl_of(variable.impl().storage().writable(variable.impl().local_index()));
    parts.push_back({impl.data(), impl.shape.num_elements(), impl.dtype});
  }
  if (!parts.empty()) communicator.broadcast(parts, root)->wait();
}

std::vector<Variable> trainable(const Model& module) {
  if (!module.built())
    fail<FailedPreconditionError>(
        "[{}] Modules with uninitialized parameters can't be used with `DistributedDataParallel`. "
        "Run a dummy forward pass to correctly initialize the modules, or give the first layer an "
        "input_shape",
        kDdp);
  std::vector<Variable> parameters = module.trainable_variables();
  if (parameters.empty())
    fail<InvalidArgumentError>(
        "[{}] DistributedDataParallel is not needed when a module doesn't have any parameter that "
        "requires a gradient.",
        kDdp);
  return parameters;
}

// The device of all variables. Throws if they are on several.
DeviceImpl& device_of(const std::vector<Variable>& variables) {
  DeviceImpl* found = nullptr;
  for (const Variable& variable : variables) {
    VariableImpl& impl = variable.impl();
    if (impl.of_graph() || impl.distributed())
      fail<InvalidArgumentError>(
          "[{}] {} belongs to a {}; expected variables made outside of strategies and graphs", kDdp,
          quoted_name(variable), impl.of_graph() ? "graph" : "strategy");
    DeviceImpl& device = impl.device();
    if (!found) found = &device;
    if (found != &device)
      fail<InvalidArgumentError>(
          "[{}] expected the variables of one device, got {} on {} and others on {}", kDdp,
          quoted_name(variable), device.full_name(), found->full_name());
  }
  return *found;
}

GradientReduction reduction_of(const DistributedDataParallelOptions& options) {
  if (options.bucket_cap_mb < 1)
    fail<InvalidArgumentError>("[{}] expected a bucket_cap_mb of at least 1, got {}", kDdp,
                               options.bucket_cap_mb);
  return {.sizes = {.others = static_cast<std::size_t>(options.bucket_cap_mb) << 20}};
}

std::shared_ptr<comm::ProcessGroupImpl> own_group(const comm::ProcessGroup& group,
                                                  DeviceImpl& device) {
  const auto outer = comm::detail::group_of(group, kDdp);
  outer->require_use(kDdp);
  return std::make_shared<comm::ProcessGroupImpl>(*outer, outer->ranks(), outer->name() + "/ddp",
                                                  outer->duplicate(device));
}

}  // namespace

DistributedDataParallel::State::State(Model module, const DistributedDataParallelOptions& options)
    : State(std::move(module), options, reduction_of(options)) {}

DistributedDataParallel::State::State(Model module, const DistributedDataParallelOptions& options,
                                      GradientReduction reduction)
    : module_(std::move(module)),
      options_(options),
      reduction_(std::move(reduction)),
      parameters_(trainable(module_)),
      device_(&device_of(module_.variables())),
      group_(own_group(options.process_group, *device_)),
      communicator_(group_->shared_communicator()),
      names_(group_->ranks()),
      check_(std::make_shared<ParameterCheck>(*communicator_, parameters_, names_,
                                              options_.parameter_check_steps)),
      traced_(std::make_shared<TracedReductions>(communicator_, *device_, parameters_,
                                                 reduction_.sizes, check_)),
      announcements_(*communicator_, sizeof(StepAnnouncement)),
      touched_(parameters_.size(), 0) {
  if (reduction_.hook) {
    hook_ = reduction_.hook;
    traced_->set_hook(hook_, group_, false);
  }
  for (const Variable& variable : module_.non_trainable_variables())
    (variable.impl().options().trainable ? frozen_ : buffers_).push_back(variable);
  const std::vector<Variable> variables = module_.variables();
  check_same_variables(*communicator_, variables, kDdp, names_);
  broadcast_variables(*communicator_, variables, 0);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    leaves_.push_back(parameters_[i].impl().leaf());
    leaf(i).on_grad_ready.push_back(GradientReady{this, i});
    set_gradient_buffer(leaf(i), [this, i] { return gradient_buffer(i); });
  }
}

DistributedDataParallel::State::~State() {
  for (const RefPtr<Leaf>& leaf : leaves_) {
    set_gradient_buffer(*leaf, nullptr);
    std::erase_if(leaf->on_grad_ready, [&](const auto& hook) {
      const auto* mine = hook.template target<GradientReady>();
      return mine && mine->state == this;
    });
  }
}

void DistributedDataParallel::State::set_hook(CommHook hook) {
  if (hook_)
    throw FailedPreconditionError(
        "[DistributedDataParallel] register_comm_hook can only be called once.");
  if (eager_)
    throw FailedPreconditionError(
        "[DistributedDataParallel] register_comm_hook must come before the first backward()");
  if (!hook) throw InvalidArgumentError("[DistributedDataParallel] expected a hook, got none");
  hook_ = std::move(hook);
  traced_->set_hook(hook_, group_, true);
}

bool DistributedDataParallel::State::set_sync(bool sync) {
  note_setting(sync_);
  return sync_->exchange(sync);
}

EagerSync& DistributedDataParallel::State::eager() {
  if (eager_) return *eager_;
  transport_ = hook_ ? make_hook_transport(hook_, *device_, parameters_, group_)
                     : std::make_shared<CommunicatorTransport>(communicator_);
  const ReducerOptions options{.sizes = reduction_.sizes, .rebuild = true};
  eager_ = std::make_unique<EagerSync>(transport_, *device_, parameters_, options);
  return *eager_;
}

void DistributedDataParallel::State::require_usable() const {
  if (!failure_.empty())
    fail<FailedPreconditionError>("[{}] an earlier step has failed: {}", kDdp, failure_);
  for (const Variable& variable : frozen_)
    if (variable.trainable())
      fail<FailedPreconditionError>(
          "[{}] variable {} was frozen when DistributedDataParallel was made: its gradients would "
          "not be averaged. Unfreeze it before",
          kDdp, quoted_name(variable));
}

// --- forward ---

Tensor DistributedDataParallel::State::forward(std::span<const Tensor> inputs,
                                               const CallOptions& options) {
  if (!context.records) return module_(inputs, options);
  require_usable();
  const Scoped weights(context.weighted_by_examples, options_.average_by_examples);
  const std::int64_t examples =
      !inputs.empty() && inputs[0].shape().rank() > 0 ? inputs[0].size_word(0) : 1;
  if (context.graph) {
    if (joining_)
      fail<UnimplementedError>(
          "[{}] expected eager steps inside join(), got a traced one: a rank that has exhausted "
          "its inputs runs no program; call it outside td::function, or give every rank the same "
          "number of steps (DistributedSampler)",
          kDdp);
    traced_->forward(options_.average_by_examples ? examples : -1,
                     options_.broadcast_buffers && syncs() ? buffers_ : std::vector<Variable>());
    return module_(inputs, options);
  }
  if (syncs()) prepare_forward();
  examples_ += examples;
  Tensor output = module_(inputs, options);
  if (options_.find_unused_parameters || options_.strict) add_leaves_of(output, reachable_);
  return output;
}

void DistributedDataParallel::State::prepare_forward() {
  if (!options_.broadcast_buffers || buffers_.empty()) return;
  int root = 0;
  if (joining_) {
    announce(Kind::kForward);
    announcements_.wait();
    const std::vector<int> active = active_ranks();
    require_kind(Kind::kForward);
    check_early_termination(active);
    root = active.front();
  }
  broadcast_variables(*communicator_, buffers_, root);
}

// --- announcements ---

void DistributedDataParallel::State::announce(Kind kind) {
  const StepAnnouncement mine = {kind, kind == Kind::kBackward ? examples_ : 0};
  std::memcpy(announcements_.mine(), &mine, sizeof(mine));
  announcements_.start();
}

DistributedDataParallel::State::StepAnnouncement DistributedDataParallel::State::announced(
    int rank) const {
  StepAnnouncement announcement;
  std::memcpy(&announcement, announcements_.of(rank), sizeof(announcement));
  return announcement;
}

std::vector<int> DistributedDataParallel::State::active_ranks() const {
  std::vector<int> ranks;
  for (int rank = 0; rank < communicator_->size(); ++rank)
    if (announced(rank).kind != Kind::kJoined) ranks.push_back(rank);
  return ranks;
}

void DistributedDataParallel::State::require_kind(Kind kind) const {
  const auto name = [](Kind of) { return of == Kind::kForward ? "a forward" : "a backward pass"; };
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    const Kind theirs = announced(rank).kind;
    if (theirs != kind && theirs != Kind::kJoined)
      fail<InvalidArgumentError>(
          "[{}] ranks diverged: rank {} is in {}, rank {} in {}; every rank must run forward and "
          "backward the same number of times",
          kDdp, names_[communicator_->rank()], name(kind), names_[rank], name(theirs));
  }
}

// --- backward ---

// The gradient's place in its bucket, unless there is a gradient already to accumulate into.
Tensor DistributedDataParallel::State::gradient_buffer(std::size_t index) {
  if (context.graph || !syncs() || leaf(index).grad().defined()) return {};
  if (!in_pass_) begin_pass();
  return eager_->gradient_buffer(index);
}

void DistributedDataParallel::State::gradient_ready(std::size_t index, Leaf& leaf) {
  if (context.graph) {
    if (!syncs()) return;
    if (!traced_->active()) {
      traced_->begin();
      after_backward([this](bool completed) {
        if (!completed) return traced_->abort();
        for (std::size_t i = 0; i < leaves_.size(); ++i)  // gradients accumulated under no_sync()
          if (const Tensor& gradient = this->leaf(i).grad(); gradient.defined())
            traced_->ready(i, gradient);
        const std::vector<Tensor> averages = traced_->finish();
        for (std::size_t i = 0; i < averages.size(); ++i)
          if (averages[i].defined()) this->leaf(i).set_grad(averages[i]);
      });
    }
    traced_->ready(index, leaf.grad());
    return;
  }
  touched_[index] = 1;
  if (!syncs()) return;
  if (!in_pass_) begin_pass();
  if (eager_->contributed(index))
    fail<RuntimeError>(
        "[{}] Expected to mark a variable ready only once: {} was marked as unused, because the "
        "outputs of the model do not depend on it",
        kDdp, quoted_name(parameters_[index]));
  unweighted_.push_back(index);
  if (!reduction_.delayed && (weighted_ || announcements_.test())) weight_gradients();
}

// Ranks that have left join() take no part in comparisons.
void DistributedDataParallel::State::compare_parameters() {
  try {
    if (!joining_) check_->step();
  } catch (const std::exception& error) {
    failure_ = error.what();
    throw;
  }
}

void DistributedDataParallel::State::begin_pass() {
  require_usable();
  compare_parameters();
  eager().begin();
  in_pass_ = true;
  weighted_ = false;
  unweighted_.clear();
  after_backward([this](bool completed) { end_pass(completed); });
  announce(Kind::kBackward);
  if (options_.find_unused_parameters && !reachable_.empty())
    for (std::size_t i = 0; i < leaves_.size(); ++i)
      if (!reachable_.contains(leaves_[i].get())) unweighted_.push_back(i);
}

// Computes the weight once all announcements have arrived; then copies the gradients that wait
// for it into buckets.
void DistributedDataParallel::State::weight_gradients() {
  if (!weighted_) {
    announcements_.wait();
    require_kind(Kind::kBackward);
    const std::vector<int> active = active_ranks();
    check_early_termination(active);
    std::int64_t all = 0;
    for (int rank : active) all += announced(rank).examples;
    const auto ranks = static_cast<std::size_t>(communicator_->size());
    const bool counts = options_.average_by_examples && all > 0;
    const bool equal = active.size() == ranks &&
                       (!counts || std::all_of(active.begin(), active.end(), [&](int rank) {
                         return announced(rank).examples == announced(0).examples;
                       }));
    const bool whole = !joining_ || joining_->divide_by_initial_world_size;
    weight_ = counts ? static_cast<double>(examples_) / static_cast<double>(all)
                     : 1.0 / static_cast<double>(whole ? ranks : active.size());
    if (reduction_.hook) weight_ = 1.0;
    if (equal && !hook_) {  // equal weights: the collective itself computes the mean
      weight_ = 1.0;
      eager_->set_reduce_op(ReduceOp::kMean);
    }
    if (joining_) last_active_ = active;
    weighted_ = true;
  }
  for (std::size_t index : unweighted_) send(index);
  unweighted_.clear();
}

void DistributedDataParallel::State::send(std::size_t index) {
  const Tensor gradient = leaf(index).grad();
  if (gradient.defined())
    eager_->ready(index, gradient, weight_);
  else
    eager_->zeros(index);
}

void DistributedDataParallel::State::end_pass(bool completed) {
  in_pass_ = false;
  if (!completed) {
    try {
      throw;  // rethrows the error of the pass
    } catch (const std::exception& error) {
      failure_ = error.what();
    } catch (...) {
      failure_ = "a backward pass ended with an exception";
    }
    return;
  }
  try {
    for (std::size_t i = 0; i < leaves_.size(); ++i)
      if (!eager_->contributed(i) &&
          std::find(unweighted_.begin(), unweighted_.end(), i) == unweighted_.end())
        unweighted_.push_back(i);
    weight_gradients();
    finish_step();
  } catch (const std::exception& error) {
    failure_ = error.what();
    throw;
  }
  const std::string missing = options_.strict ? unused_parameters() : std::string();
  std::fill(touched_.begin(), touched_.end(), 0);
  examples_ = 0;
  reachable_.clear();
  if (!missing.empty()) throw RuntimeError(missing);
}

// REQUIRES: every gradient is in its bucket.
void DistributedDataParallel::State::finish_step() {
  std::vector<Tensor> reduced = eager_->finish(touched_);
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (reduced[i].defined()) leaf(i).set_grad(std::move(reduced[i]));
}

// The error message of the strict mode; empty if every rank had every gradient.
std::string DistributedDataParallel::State::unused_parameters() const {
  std::string missing;
  for (int rank : active_ranks())
    if (const std::string names = unused_parameters_on(rank); !names.empty())
      missing += fmt::format("; rank {}: {}", names_[rank], names);
  if (missing.empty()) return {};
  return fmt::format(
      "[{}] Expected to have finished reduction: parameters that did not receive a gradient in "
      "this step{}",
      kDdp, missing);
}

std::string DistributedDataParallel::State::unused_parameters_on(int rank) const {
  std::string names;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (transport_->was_present(rank, i)) continue;
    if (!names.empty()) names += ", ";
    names += quoted_name(parameters_[i]);
    if (rank == communicator_->rank())
      names += reachable_.contains(leaves_[i].get())
                   ? " (used in forward, but the loss does not depend on it)"
                   : " (not used in forward)";
  }
  return names;
}

// --- join ---

void DistributedDataParallel::State::check_early_termination(const std::vector<int>& active) const {
  if (joining_ && joining_->throw_on_early_termination &&
      active.size() < static_cast<std::size_t>(communicator_->size()))
    throw RuntimeError(
        "[DistributedDataParallel] Detected at least one rank that exhausted inputs. Throwing "
        "across all ranks.");
}

void DistributedDataParallel::State::join(const std::function<void()>& inputs,
                                          const JoinOptions& options) {
  require_usable();
  if (joining_)
    throw FailedPreconditionError("[DistributedDataParallel] join() was called inside join()");
  struct Joining {
    State& state;
    ~Joining() {
      state.joining_.reset();
      state.traced_->allow_runs(true);
    }
  } joining{*this};
  joining_ = options;
  last_active_.clear();
  traced_->allow_runs(false);
  inputs();
  try {
    shadow_steps();
    broadcast_variables(*communicator_, module_.variables(),
                        last_active_.empty() ? 0 : last_active_.front());
  } catch (const std::exception& error) {
    failure_ = error.what();
    throw;
  }
}

// Takes part in the steps of the ranks that have inputs left, as PyTorch's join() shadows them.
void DistributedDataParallel::State::shadow_steps() {
  for (;;) {
    announce(Kind::kJoined);
    announcements_.wait();
    const std::vector<int> active = active_ranks();
    if (active.empty()) return;
    if (joining_->throw_on_early_termination)
      fail<RuntimeError>("[{}] Rank {} exhausted all inputs.", kDdp, names_[communicator_->rank()]);
    const Kind kind = announced(active.front()).kind;
    require_kind(kind);
    if (kind == Kind::kForward) {
      broadcast_variables(*communicator_, buffers_, active.front());
      continue;
    }
    last_active_ = active;
    eager().begin();
    std::fill(touched_.begin(), touched_.end(), 0);
    finish_step();
    if (const std::string missing = options_.strict ? unused_parameters() : std::string();
        !missing.empty())
      throw RuntimeError(missing);
    if (joining_->shadow_step) joining_->shadow_step();
  }
}

}  // namespace tandem::parallel
