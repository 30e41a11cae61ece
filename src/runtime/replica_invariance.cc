#include "runtime/replica_invariance.h"

#include <atomic>
#include <bit>

#include "core/status.h"
#include "tandem/config.h"

namespace tandem {
namespace {

constinit std::atomic<int> parts_of_batch{0};

bool is_power_of_two(int number) {
  return number > 0 && std::has_single_bit(static_cast<unsigned>(number));
}

}  // namespace

int invariant_parts() { return parts_of_batch.load(std::memory_order_relaxed); }

int parts_per_replica(int replicas) {
  const int parts = invariant_parts();
  if (!is_power_of_two(replicas) || replicas > parts)
    fail<InvalidArgumentError>(
        "[replica invariance] expected 1, 2, 4, ... replicas, at most the {} parts of a batch "
        "(config::set_replica_invariant_parts), got {}",
        parts, replicas);
  return parts / replicas;
}

std::vector<std::int64_t> even_shares(std::int64_t count, int shares) {
  std::vector<std::int64_t> sizes;
  for (int share = 0; share < shares; ++share)
    sizes.push_back(count / shares + (share < count % shares ? 1 : 0));
  return sizes;
}

std::vector<BatchPart> parts_of_replica(std::int64_t total, int replica, int replicas) {
  const int each = parts_per_replica(replicas);
  std::vector<BatchPart> mine;
  std::int64_t offset = 0;
  const std::vector<std::int64_t> sizes = even_shares(total, invariant_parts());
  for (int part = 0; part < (replica + 1) * each; ++part) {
    const std::int64_t size = sizes[static_cast<std::size_t>(part)];
    if (part >= replica * each && size > 0) mine.push_back({part, offset, size});
    offset += size;
  }
  return mine;
}

namespace config {

void set_replica_invariant_parts(int parts) {
  constexpr int kMost = 1024;
  if (parts != 0 && (!is_power_of_two(parts) || parts > kMost))
    fail<InvalidArgumentError>(
        "[config] expected a power of two of at most {} as the number of replica-invariant parts, "
        "or 0 for none, got {}",
        kMost, parts);
  parts_of_batch.store(parts);
}

int get_replica_invariant_parts() { return invariant_parts(); }

}  // namespace config
}  // namespace tandem
