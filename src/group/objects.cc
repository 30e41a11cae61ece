// Bytes of any kind between ranks.
#include <algorithm>

#include "core/status.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "group/process_group_impl.h"
#include "tensor/tensor_impl.h"

namespace tandem::comm {
namespace {

std::shared_ptr<ProcessGroupImpl> usable(const ProcessGroup& group, std::string_view op) {
  if (building) fail<UnimplementedError>("[{}] cannot be part of a traced function or graph", op);
  auto impl = detail::group_of(group, op);
  impl->require_use(op);
  return impl;
}

// Every rank's number of bytes.
std::vector<std::int64_t> exchange_sizes(Communicator& communicator, const std::string& object) {
  const auto mine = static_cast<std::int64_t>(object.size());
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(communicator.size()));
  communicator.exchange(&mine, sizeof(mine), sizes.data());
  return sizes;
}

}  // namespace

std::vector<std::string> all_gather_object(const std::string& object,
                                           const CollectiveOptions& options) {
  const auto group = usable(options.group, "all_gather_object");
  Communicator& communicator = group->communicator();
  const std::vector<std::int64_t> sizes = exchange_sizes(communicator, object);
  // All alike: as long as the longest.
  const auto length = static_cast<std::size_t>(*std::max_element(sizes.begin(), sizes.end()));
  std::string mine = object, all(length * sizes.size(), '\0');
  mine.resize(length);
  if (length > 0) communicator.exchange(mine.data(), length, all.data());
  std::vector<std::string> objects;
  for (std::size_t rank = 0; rank < sizes.size(); ++rank)
    objects.push_back(all.substr(rank * length, static_cast<std::size_t>(sizes[rank])));
  return objects;
}

std::string broadcast_object(const std::string& object, int source,
                             const CollectiveOptions& options) {
  const auto group = usable(options.group, "broadcast_object");
  const int root = group->rank_of(source, "broadcast_object");
  const std::vector<std::int64_t> sizes = exchange_sizes(group->communicator(), object);
  const std::int64_t length = sizes[static_cast<std::size_t>(root)];
  std::string bytes = object;
  bytes.resize(static_cast<std::size_t>(length));
  const Tensor mine = from_host(group->device(), {length}, uint8, bytes.data());
  to_host(broadcast(mine, source, options), bytes.data());
  return bytes;
}

}  // namespace tandem::comm
