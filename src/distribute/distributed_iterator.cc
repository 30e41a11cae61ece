#include "distribute/distributed_iterator.h"

#include <zlib.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/status.h"
#include "data/node.h"
#include "runtime/placement.h"
#include "runtime/replica_invariance.h"
#include "tensor/tensor_impl.h"

namespace tandem::distribute {
namespace {

// The number of batches, and shapes and first bytes of the first one's components: enough to notice
// different data or another order.
std::string fingerprint(const data::NextExample& batch, std::int64_t batches) {
  if (!batch) return "no batch";
  constexpr std::size_t kMost = 64 * 1024;
  uLong crc = 0;
  std::string shapes;
  for (const Tensor& component : *batch) {
    const Tensor host = component.cpu();
    const TensorImpl& impl = impl_of(host);
    shapes += fmt::format("{}{} {}", shapes.empty() ? "" : ", ", name_of(impl.dtype),
                          impl.shape.to_string());
    if (impl.bytes() > 0)
      crc =
          crc32_z(crc, reinterpret_cast<const Bytef*>(impl.data()), std::min(kMost, impl.bytes()));
  }
  return fmt::format("{}{} that begins with bytes of checksum {:08x}",
                     batches < 0 ? "" : fmt::format("one of {}: ", batches), shapes, crc);
}

// This worker's shard of `data`, and whether it differs from the data of the other workers.
std::pair<data::Dataset, bool> shard_for_worker(StrategyImpl& strategy, const data::Dataset& data) {
  using data::AutoShardPolicy;
  const std::shared_ptr<WorkerCollectives> workers = strategy.workers();
  const AutoShardPolicy policy = data.auto_shard_policy();
  if (policy == AutoShardPolicy::kOff || policy == AutoShardPolicy::kData)
    return {data, policy == AutoShardPolicy::kOff};
  const data::NodePtr files = data.node()->sharded(
      {.workers = workers->size(),
       .worker = workers->rank(),
       .replicas = strategy.num_replicas(),
       .first_replica = strategy.first_replica(),
       .local_replicas = static_cast<std::int64_t>(strategy.devices().size())});
  if (files) return {data::Dataset(files), true};
  if (policy == AutoShardPolicy::kFile)
    fail<NotFoundError>(
        "[{}] Found an unshardable source dataset: AutoShardPolicy::kFile expects batches of "
        "elements that come from Dataset::from_files()",
        strategy.name());
  return {data, false};
}

}  // namespace

DistributedIterator::DistributedIterator(std::shared_ptr<StrategyImpl> strategy,
                                         const data::Dataset& data,
                                         const data::IterateOptions& options,
                                         std::function<void(const data::Example&)> check)
    : strategy_(std::move(strategy)), check_(std::move(check)) {
  const auto [mine, own] = shard_for_worker(*strategy_, data);
  own_ = own;
  count_ = mine.cardinality();
  batches_ = mine.iterate(options);
}

std::optional<GlobalBatch> DistributedIterator::next() {
  data::NextExample batch = batches_.next();
  if (batch) check_(*batch);
  if (own_) return join(std::move(batch));
  if (!compared_) compare(batch);
  compared_ = true;
  if (!batch) return std::nullopt;
  return strategy_->split(*batch);
}

void DistributedIterator::compare(const data::NextExample& batch) const {
  const std::vector<std::string> all =
      strategy_->workers()->gather_bytes(fingerprint(batch, count_), "first batch");
  for (std::size_t worker = 1; worker < all.size(); ++worker)
    if (all[worker] != all[0])
      fail<InvalidArgumentError>(
          "[{}] expected the same dataset on every worker, but the data of worker {} differs from "
          "that of worker 0: the first batch of the epoch is {}, on worker 0 it is {}. Shuffle "
          "with the same seed on all workers, or use AutoShardPolicy::kOff if each worker has its "
          "own data",
          strategy_->name(), worker, all[worker], all[0]);
}

std::optional<GlobalBatch> DistributedIterator::join(data::NextExample batch) {
  if (invariant_parts() > 0)
    fail<UnimplementedError>(
        "[{}] expected AutoShardPolicy::kData in the replica-invariant mode: with kOff and kFile "
        "the global batches depend on the number of workers",
        strategy_->name());
  struct WorkerBatch {
    std::int64_t examples = -1;  // -1: the worker's data has ended
    std::int64_t first_replica = 0;
  };
  const WorkerBatch mine{.examples = batch ? (*batch)[0].size_word(0) : -1,
                         .first_replica = strategy_->first_replica()};
  const std::vector<std::string> all =
      strategy_->workers()->gather_bytes(std::string(plain_bytes(mine)), "next batch");
  std::int64_t before = 0, total = 0, leader = -1;
  std::vector<std::int64_t> of_processes;
  for (const std::string& bytes : all) {
    const auto theirs = ByteReader("[fit] a worker's batch", bytes).number<WorkerBatch>();
    of_processes.push_back(std::max<std::int64_t>(theirs.examples, 0));
    if (theirs.examples <= 0) continue;
    if (theirs.first_replica < mine.first_replica) before += theirs.examples;
    if (leader < 0) leader = theirs.first_replica;
    total += theirs.examples;
  }
  if (leader < 0) return std::nullopt;
  if (batch && !batch->empty()) padding_ = *batch;
  if (padding_.empty())
    fail<InvalidArgumentError>(
        "[{}] the dataset of worker {} is empty, but those of other workers are not: every worker "
        "needs at least one example",
        strategy_->name(), strategy_->workers()->rank());
  BatchSplit split = BatchSplit::even(std::max<std::int64_t>(mine.examples, 0),
                                      static_cast<int>(strategy_->devices().size()));
  for (std::int64_t& offset : split.offsets) offset += before;
  split.total = total;
  split.leader = static_cast<int>(leader);
  split.of_processes = std::move(of_processes);
  return strategy_->split_rows(padding_, std::move(split), before);
}

}  // namespace tandem::distribute
