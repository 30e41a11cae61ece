#include "device/memory_report.h"

#include <sys/resource.h>

#include <algorithm>
#include <vector>

#include "core/joined.h"
#include "core/status.h"
#include "device/device_manager.h"

namespace tandem {
namespace {

std::int64_t free_bytes(const AllocatorStats& stats) {
  return stats.bytes_limit - stats.bytes_in_use;
}

// The device of the same type with the most free memory, if that suffices.
std::optional<Alternative> alternative_to(const DeviceImpl& device, std::int64_t bytes) {
  std::optional<Alternative> best;
  for (DeviceImpl* other : DeviceManager::get().devices(device.type(), "an out-of-memory report")) {
    if (other == &device) continue;
    const std::int64_t free = free_bytes(other->allocator().stats());
    if (free >= bytes && (!best || free > best->free)) best = {other->full_name(), free};
  }
  return best;
}

// The tag with the most memory.
MemoryTag largest_tag(const BytesByTag& bytes) {
  return static_cast<MemoryTag>(std::max_element(bytes.begin(), bytes.end()) - bytes.begin());
}

// The limits of the process on memory of the host: ", of the process 2048.0 MiB (ulimit -v)". Empty
// without one.
std::string limits_of_process() {
  std::string text;
  for (const auto& [resource, option] : {std::pair(RLIMIT_AS, "-v"), std::pair(RLIMIT_DATA, "-d")})
    if (rlimit limit; getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
      text += fmt::format(", of the process {} (ulimit {})",
                          mebibytes(static_cast<std::int64_t>(limit.rlim_cur)), option);
  return text;
}

}  // namespace

std::string describe_by_tag(const BytesByTag& bytes) {
  std::vector<int> tags;
  for (int tag = 0; tag < kMemoryTags; ++tag)
    if (bytes[static_cast<std::size_t>(tag)] > 0) tags.push_back(tag);
  std::stable_sort(tags.begin(), tags.end(), [&](int a, int b) {
    return bytes[static_cast<std::size_t>(a)] > bytes[static_cast<std::size_t>(b)];
  });
  std::vector<std::string> parts;
  for (int tag : tags)
    parts.push_back(fmt::format("{} {}", name_of(static_cast<MemoryTag>(tag)),
                                mebibytes(bytes[static_cast<std::size_t>(tag)])));
  return parts.empty() ? "nothing" : joined(parts, ", ");
}

std::string what_to_try(std::int64_t bytes, const AllocatorStats& stats,
                        const std::optional<Alternative>& alternative) {
  std::vector<std::string> ideas = {"a smaller batch"};
  if (bytes > stats.bytes_limit)
    ideas.push_back("splitting the request, which alone is above the limit");
  else if (bytes > free_bytes(stats))
    switch (largest_tag(stats.bytes_by_tag)) {
      case MemoryTag::kWeights:
      case MemoryTag::kOptimizer:
        ideas.push_back("a smaller model, or an optimizer that keeps less");
        break;
      case MemoryTag::kGradients: ideas.push_back("dropping gradients (zero_grad) earlier"); break;
      default: ideas.push_back("freeing tensors that are no longer needed"); break;
    }
  else
    ideas.push_back(
        "allocating large tensors before small ones: enough is free, but in pieces "
        "(config::trim_memory gives back regions that are wholly free)");
  ideas.push_back("a higher memory limit for this device");
  if (alternative)
    ideas.push_back(
        fmt::format("{}, which has {} free", alternative->device, mebibytes(alternative->free)));
  else
    ideas.push_back("more devices");
  return fmt::format("Try {}.", joined(ideas, "; "));
}

void throw_out_of_memory(DeviceImpl& device, const FailedRequest& request) {
  const AllocatorStats stats = device.allocator().stats();
  const auto bytes = static_cast<std::int64_t>(request.bytes);
  const std::string limits =
      device.backend() == DeviceBackend::kCuda ? std::string() : limits_of_process();
  const bool by_process = !limits.empty() && bytes <= free_bytes(stats);
  fail<ResourceExhaustedError>(
      "OOM when allocating {} on {} by allocator {}{}: requested {} ({} bytes), limit {}{}, in use "
      "{} "
      "({}), peak {}, reserved {}, largest free block {}, fragmentation {:.0f}%. {}",
      request.what, device.full_name(), device.allocator().name(),
      request.op.empty() ? "" : fmt::format(" for operation {}", request.op), mebibytes(bytes),
      bytes, mebibytes(stats.bytes_limit), limits, mebibytes(stats.bytes_in_use),
      describe_by_tag(stats.bytes_by_tag), mebibytes(stats.peak_bytes_in_use),
      mebibytes(stats.bytes_reserved), mebibytes(stats.largest_free_block),
      100.0 * stats.fragmentation(),
      by_process ? "Try a higher limit of the process; a smaller batch."
                 : what_to_try(bytes, stats, alternative_to(device, bytes)));
}

}  // namespace tandem
