#include "distribute/input.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>

#include "core/status.h"
#include "data/node.h"
#include "runtime/placement.h"
#include "runtime/replica_invariance.h"
#include "tensor/tensor_impl.h"

namespace tandem::distribute {
namespace {

// Sizes and beginnings of a batch's components: enough to tell other data or another order.
std::string fingerprint(const data::NextExample& batch) {
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
  return fmt::format("{} that begins with bytes of checksum {:08x}", shapes, crc);
}

// What this worker reads of `data`, and whether it is its own.
std::pair<data::Dataset, bool> shared_out(StrategyImpl& strategy, const data::Dataset& data) {
  using data::AutoShardPolicy;
  const std::shared_ptr<Workers> workers = strategy.workers();
  const AutoShardPolicy policy = data.auto_shard_policy();
  if (!workers || policy == AutoShardPolicy::kOff || policy == AutoShardPolicy::kData)
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

Input::Input(std::shared_ptr<StrategyImpl> strategy, const data::Dataset& data,
             const data::IterateOptions& options, std::function<void(const data::Example&)> check)
    : strategy_(std::move(strategy)), check_(std::move(check)) {
  const auto [mine, own] = shared_out(*strategy_, data);
  own_ = own;
  batches_ = mine.iterate(options);
}

std::optional<GlobalBatch> Input::next() {
  data::NextExample batch = batches_.next();
  if (batch) check_(*batch);
  const std::shared_ptr<Workers> workers = strategy_->workers();
  if (workers && own_) return join(std::move(batch));
  if (workers && !begun_) compare(batch);
  begun_ = true;
  if (!batch) return std::nullopt;
  return strategy_->split(*batch);
}

void Input::compare(const data::NextExample& batch) const {
  const std::vector<std::string> all =
      strategy_->workers()->gather_bytes(fingerprint(batch), "first batch");
  for (std::size_t worker = 1; worker < all.size(); ++worker)
    if (all[worker] != all[0])
      fail<InvalidArgumentError>(
          "[{}] worker {} has other data than worker 0: an epoch's first batch is {} there, and {} "
          "here. Every worker gives the same global batches, which are shared out: shuffle with "
          "the "
          "same seed. For data of its own on each worker: AutoShardPolicy::kOff",
          strategy_->name(), worker, all[worker], all[0]);
}

std::optional<GlobalBatch> Input::join(data::NextExample batch) {
  if (invariant_parts() > 0)
    fail<UnimplementedError>(
        "[{}] in the replica-invariant mode every worker gives the same global batches; data of "
        "its "
        "own on each worker (AutoShardPolicy::kOff, kFile) is split elsewhere on another number of "
        "them. Use AutoShardPolicy::kData",
        strategy_->name());
  struct Share {
    std::int64_t examples = -1;  // -1: the worker's data has ended
    std::int64_t first_replica = 0;
  };
  const Share mine{.examples = batch ? (*batch)[0].dim(0) : -1,
                   .first_replica = strategy_->first_replica()};
  const std::vector<std::string> all = strategy_->workers()->gather_bytes(
      {reinterpret_cast<const char*>(&mine), sizeof(mine)}, "next batch");
  std::int64_t before = 0, total = 0, leader = -1;
  std::vector<std::int64_t> of_processes;
  for (const std::string& bytes : all) {
    Share theirs;
    std::memcpy(&theirs, bytes.data(), std::min(bytes.size(), sizeof(theirs)));
    of_processes.push_back(std::max<std::int64_t>(theirs.examples, 0));
    if (theirs.examples <= 0) continue;
    if (theirs.first_replica < mine.first_replica) before += theirs.examples;
    if (leader < 0) leader = theirs.first_replica;
    total += theirs.examples;
  }
  if (leader < 0) return std::nullopt;
  if (batch && !batch->empty()) stand_in_ = *batch;
  if (stand_in_.empty())
    fail<InvalidArgumentError>(
        "[{}] the dataset of worker {} has no batch, those of others have: a worker needs at least "
        "one example",
        strategy_->name(), strategy_->workers()->rank());
  BatchSplit split = BatchSplit::even(std::max<std::int64_t>(mine.examples, 0),
                                      static_cast<int>(strategy_->devices().size()));
  for (std::int64_t& offset : split.offsets) offset += before;
  split.total = total;
  split.leader = static_cast<int>(leader);
  split.of_processes = std::move(of_processes);
  return strategy_->parts_of(stand_in_, std::move(split), before);
}

}  // namespace tandem::distribute
