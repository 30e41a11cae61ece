// The replica-invariant mode (config::set_replica_invariant_parts): which part of a global batch is
// whose.
#pragma once

#include <cstdint>
#include <vector>

namespace tandem {

// How many parts a global batch has; 0: the mode is off.
int invariant_parts();

// How many of them each replica computes. Throws InvalidArgumentError where the number of replicas
// is not a power of two of at most as many. REQUIRES: the mode is on.
int parts_per_replica(int replicas);

// Examples of a part, from `offset` of the global batch on.
struct BatchPart {
  int index = 0;  // among all parts
  std::int64_t offset = 0;
  std::int64_t examples = 0;
};
// The parts with examples of replica `replica` of `replicas`, of a batch of `total` examples.
std::vector<BatchPart> parts_of_replica(std::int64_t total, int replica, int replicas);

// `count` things in `shares` shares whose sizes differ by at most one, the larger ones first.
std::vector<std::int64_t> even_shares(std::int64_t count, int shares);

}  // namespace tandem
