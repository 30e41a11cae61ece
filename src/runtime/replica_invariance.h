// The replica-invariant mode (config::set_replica_invariant_parts): assigns parts of a global batch
// to replicas.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// The number of parts of a global batch; 0 if the mode is off.
int invariant_parts();

// The number of parts per replica. Throws InvalidArgumentError unless the number of replicas is a
// power of two and at most the number of parts. REQUIRES: the mode is on.
int parts_per_replica(int replicas);

// A range of examples of the global batch.
struct BatchPart {
  int index = 0;  // among all parts
  std::int64_t offset = 0;
  std::int64_t examples = 0;
};
// The non-empty parts of replica `replica` of `replicas`, for a batch of `total` examples.
std::vector<BatchPart> parts_of_replica(std::int64_t total, int replica, int replicas);

// Splits `count` items into `shares` sizes that differ by at most one, larger ones first.
std::vector<std::int64_t> even_shares(std::int64_t count, int shares);

}  // namespace tandem
