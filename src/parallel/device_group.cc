#include "parallel/device_group.h"

#include <numeric>
#include <optional>

#include "core/status.h"
#include "runtime/placement.h"
#include "runtime/replica_context.h"
#include "tandem/array.h"

namespace tandem::parallel {
namespace {

// The context of one call: it computes its part of the batch as one device would compute a batch.
class CallContext final : public ReplicaContext {
 public:
  CallContext(const ReplicaContext& replica, bool by_examples) : replica_(replica) {
    strategy_ = replica.shared_strategy();
    replica_id_ = replica.replica_id();
    local_replica_id_ = replica.local_replica_id();
    num_local_replicas_ = replica.num_local_replicas();
    num_replicas_ = 1;
    averages_gradients_ = true;
    if (!by_examples) return;
    example_offset_ = replica.example_offset();
    local_examples_ = global_examples_ = replica.local_examples();
  }

  std::vector<Tensor> all_reduce(std::span<const Tensor>, ReduceOp) override {
    refuse("all_reduce");
  }
  Tensor broadcast(const Tensor&) override { refuse("broadcast"); }
  std::unique_ptr<GradientSync> start_sync(const std::vector<Variable>&, ReduceOp) override {
    refuse("an optimizer step");
  }
  void run_for_idle_replicas(const std::function<void()>&) override {
    refuse("an update of variables");
  }
  void add_to_key(std::string& key) const override {
    replica_.add_to_key(key);
    key += example_offset_ >= 0 ? 'e' : 'd';
  }

 private:
  // The other replicas need not call the same, since backward passes run after the calls.
  [[noreturn]] static void refuse(const char* what) {
    fail<UnimplementedError>(
        "[DataParallel] {} was called in the forward pass of a replica, expected only computation: "
        "replicas exchange nothing. MirroredStrategy and DistributedDataParallel support it",
        what);
  }

  const ReplicaContext& replica_;
};

}  // namespace

std::vector<std::int64_t> DeviceGroup::split(std::int64_t examples) const {
  std::vector<std::int64_t> sizes =
      distribute::BatchSplit::even(examples, static_cast<int>(size())).counts;
  while (sizes.size() > 1 && sizes.back() == 0) sizes.pop_back();
  return sizes;
}

distribute::LocalStrategy& DeviceGroup::strategy() {
  std::call_once(started_, [this] {
    strategy_ = std::make_shared<distribute::LocalStrategy>(
        "DataParallel", devices_, distribute::connect_threads(devices_, LocalPlan()));
  });
  return *strategy_;
}

void DeviceGroup::run(std::span<const std::int64_t> sizes, bool by_examples,
                      std::span<VariableCopies> copies,
                      const std::function<void(std::size_t)>& call) {
  TANDEM_ASSERT(!sizes.empty() && sizes.size() <= size());
  if (sizes.size() == 1) {
    std::optional<OnDevice> on;
    if (!devices_.empty()) on.emplace(*devices_.front());
    call(0);
    return;
  }
  distribute::BatchSplit split{.counts = {sizes.begin(), sizes.end()}};
  split.counts.resize(size());
  split.offsets.resize(size());
  std::exclusive_scan(split.counts.begin(), split.counts.end(), split.offsets.begin(),
                      std::int64_t{0});
  split.total = split.offsets.back() + split.counts.back();
  strategy().run(
      [&](int device) {
        const auto index = static_cast<std::size_t>(device);
        CallContext own_part(*ReplicaContext::current(), by_examples);
        const Scoped scope(context.replica, &own_part);
        const Scoped own(context.copies, index == 0 || copies.empty() ? nullptr : &copies[index]);
        call(index);
      },
      split);
}

namespace {

void check_home(const Variable& variable, DeviceImpl& home) {
  const VariableImpl& impl = variable.impl();
  if (impl.distributed() || impl.of_graph())
    fail<InvalidArgumentError>(
        "[DataParallel] expected variables that were made outside of strategies and graphs, but {} "
        "belongs to a {}",
        quoted_name(variable), impl.of_graph() ? "graph" : "strategy");
  if (&impl.storage().home(0) != &home)
    fail<InvalidArgumentError>(
        "[DataParallel] module must have its parameters and buffers on device {} (device_ids[0]) "
        "but found one of them on device: {}. It is variable {}: make the model in a DeviceScope "
        "of "
        "the first device",
        home.full_name(), impl.storage().home(0).full_name(), quoted_name(variable));
}

}  // namespace

std::vector<VariableCopies> copy_variables(const std::vector<Variable>& variables,
                                           const DeviceGroup& group, std::size_t count) {
  if (!group.devices().empty())
    for (const Variable& variable : variables) check_home(variable, *group.devices().front());
  std::vector<VariableCopies> copies(count);
  const Scoped tag(memory_tag, MemoryTag::kWeights);
  for (const Variable& variable : variables) {
    if (count == 1) break;
    const Tensor value = variable.value();
    // A backward pass visits the latest copy first.
    for (std::size_t i = count - 1; i > 0; --i) {
      const OnDevice on(*group.devices()[i]);
      copies[i].add(variable.impl(), identity(value));
    }
  }
  return copies;
}

}  // namespace tandem::parallel
