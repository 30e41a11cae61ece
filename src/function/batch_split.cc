#include <numeric>

#include "core/status.h"
#include "runtime/replica_invariance.h"
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
  const int parts = invariant_parts() > 0 ? parts_per_replica(replicas) : 1;
  const std::vector<std::int64_t> sizes = even_shares(examples, replicas * parts);
  std::int64_t offset = 0;
  for (auto size = sizes.begin(); size != sizes.end(); size += parts) {
    split.offsets.push_back(offset);
    split.counts.push_back(std::accumulate(size, size + parts, std::int64_t{0}));
    offset += split.counts.back();
  }
  return split;
}

}  // namespace tandem::distribute
