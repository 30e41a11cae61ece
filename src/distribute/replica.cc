#include "distribute/replica.h"

#include <algorithm>

#include "core/bytes.h"
#include "core/profile.h"
#include "distribute/strategy_impl.h"
#include "runtime/placement.h"
#include "sync/external_group.h"
#include "tandem/creation.h"
#include "tensor/tensor_buffers.h"

namespace tandem::distribute {

Replica::Replica(std::shared_ptr<const StrategyMark> strategy, int local,
                 ReplicaConnections& connections, DeviceImpl& device, LocalReplicas& replicas,
                 TracedRun* run)
    : connections_(connections),
      device_(device),
      replicas_(replicas),
      run_(run),
      communicator_(run ? nullptr : connections.communicator(local)),
      traced_(run ? CollectiveMember{run->ranks.group,
                                     run->ranks.of_replica[static_cast<std::size_t>(local)]}
                  : CollectiveMember{std::make_shared<ExternalGroup>(communicator_),
                                     connections.first_replica() + local},
              device) {
  strategy_ = std::move(strategy);
  replica_id_ = connections.first_replica() + local;
  num_replicas_ = connections.num_replicas();
  local_replica_id_ = local;
  replicas_.all.push_back(this);
}

void Replica::begin(const BatchSplit& split, const std::vector<bool>& participating) {
  const auto local = static_cast<std::size_t>(local_replica_id_);
  const bool has_batch = split.total >= 0;
  num_local_replicas_ = static_cast<int>(replicas_.all.size());
  active_ = participating[local];
  num_contributors_ = -1;
  if (!connections_.requires_all_replicas())
    num_contributors_ = static_cast<int>(std::ranges::count(participating, true));
  else if (has_batch && split.of_processes.empty())
    num_contributors_ = static_cast<int>(std::min<std::int64_t>(split.total, num_replicas_));
  leader_ = connections_.requires_all_replicas()
                ? split.leader
                : static_cast<int>(std::find(participating.begin(), participating.end(), true) -
                                   participating.begin());
  example_offset_ = has_batch ? split.offsets[local] : -1;
  local_examples_ = has_batch ? split.counts[local] : -1;
  global_examples_ = split.total;
  is_padding_ = active_ && local_examples_ == 0;
  passed_.clear();
  if (run_)
    generator_.follow(Generator::current());
  else
    generator_.set_state(Generator::current().state());
}

void Replica::add_to_key(std::string& key) const {
  if (run_) return;  // the key belongs to functions; those called in a traced run() are inlined
  ByteWriter(key).add(reinterpret_cast<std::uintptr_t>(&connections_), replica_id_, leader_,
                      is_padding_, example_offset_, local_examples_, global_examples_);
  for (const Replica* replica : replicas_.all) key += replica->active() ? '1' : '0';
}

void Replica::build(const void* what, const std::function<void()>& make) {
  if (context.graph && !context.trace) return make();  // of a session: has variables of its own
  const std::lock_guard lock(replicas_.building);
  replicas_.builds.store(true, std::memory_order_relaxed);
  const std::uint64_t before = generator_.state().offset;
  {
    StrategyImpl& strategy = *replicas_.strategy;
    const std::shared_ptr<StepRunner> runner = strategy.shared_from_this();
    const Scoped<ReplicaContext*> replica(context.replica, nullptr);
    const Scoped<VariableCreator*> creator(context.creator, &strategy);
    const Scoped<const std::shared_ptr<StepRunner>*> runner_scope(context.runner, &runner);
    const Scoped<const PlacementFrame*> placement(context.placement, nullptr);
    make();
  }
  if (replicas_.built.emplace(what, generator_.state().offset - before).second)
    passed_.insert(what);
  else
    skip_numbers_of(what);
}

void Replica::find_built(const void* what) {
  if (!replicas_.builds.load(std::memory_order_relaxed)) [[likely]]
    return;
  const std::lock_guard lock(replicas_.building);
  skip_numbers_of(what);
}

void Replica::skip_numbers_of(const void* built) {
  const auto found = replicas_.built.find(built);
  if (found == replicas_.built.end() || !passed_.insert(built).second) return;
  random::GeneratorState state = generator_.state();
  state.offset += found->second;
  generator_.set_state(state);
}

const Replica& Replica::writer() const {
  const std::vector<Replica*>& all = replicas_.all;
  if (const Replica& writer = *all[replicas_.writer]; writer.active()) return writer;
  return **std::find_if(all.rbegin(), all.rend(),
                        [](const Replica* replica) { return replica->active(); });
}

namespace {

std::vector<Buffer> buffers_of(const std::vector<Tensor>& tensors) {
  std::vector<Buffer> buffers;
  buffers.reserve(tensors.size());
  for (const Tensor& tensor : tensors) buffers.push_back(buffer_of(tensor));
  return buffers;
}

}  // namespace

std::vector<Tensor> Replica::all_reduce(std::span<const Tensor> tensors, ReduceOp op) {
  if (context.graph) return traced_.all_reduce(tensors, op, is_padding_);
  std::vector<Tensor> sums;
  sums.reserve(tensors.size());
  for (const Tensor& tensor : tensors)
    sums.push_back(exclusive_on(device_, is_padding_ ? zeros_like(tensor) : tensor));
  communicator_->all_reduce(buffers_of(sums), op)->wait();
  return sums;
}

Tensor Replica::broadcast(const Tensor& tensor) {
  if (context.graph) return traced_.broadcast(tensor, run_ ? run_->root : leader_);
  std::vector<Tensor> value = {exclusive_on(device_, tensor)};
  communicator_->broadcast(buffers_of(value), leader_)->wait();
  return value.front();
}

std::unique_ptr<GradientSync> Replica::start_sync(const std::vector<Variable>& variables,
                                                  ReduceOp op) {
  if (context.graph) {
    TracedSyncOptions options;
    if (run_) options = {.agreements = &run_->agreements, .pass = passes_++};
    return std::make_unique<TracedSync>(variables, device_, traced_.reduce(op, is_padding_),
                                        options);
  }
  const auto found = std::find_if(syncs_.begin(), syncs_.end(), [&](const auto& sync) {
    return same_variables(sync->variables(), variables);
  });
  if (found != syncs_.end()) return (*found)->start(is_padding_, op);
  const ReducerOptions options{.rebuild = communicator_->packs()};
  auto transport = std::make_shared<CommunicatorTransport>(communicator_);
  return syncs_
      .emplace_back(std::make_unique<EagerSync>(std::move(transport), device_, variables, options))
      ->start(is_padding_, op);
}

void Replica::run_for_idle_replicas(const std::function<void()>& update) {
  if (&writer() != this) return;
  for (Replica* replica : replicas_.all) {
    if (replica->active()) continue;
    const Scoped theirs(context.replica, replica);
    const Scoped profiled(profile::current_replica, replica->replica_id());
    const OnDevice on(replica->device());
    update();
  }
}

}  // namespace tandem::distribute
