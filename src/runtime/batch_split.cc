#include "core/status.h"
#include "tandem/per_replica.h"

namespace tandem::distribute {

void BatchSplit::check(std::size_t replicas) const {
  if (total >= 0 && (offsets.size() != replicas || counts.size() != replicas))
    fail<InvalidArgumentError>(
        "[PerReplica] expected a split of the batch over {} replica(s), one for each value, got {} "
        "offsets and {} counts",
        replicas, offsets.size(), counts.size());
}

BatchSplit BatchSplit::even(std::int64_t examples, int replicas) {
  BatchSplit split;
  split.total = examples;
  std::int64_t offset = 0;
  for (int replica = 0; replica < replicas; ++replica) {
    const std::int64_t count = examples / replicas + (replica < examples % replicas ? 1 : 0);
    split.offsets.push_back(offset);
    split.counts.push_back(count);
    offset += count;
  }
  return split;
}

}  // namespace tandem::distribute
