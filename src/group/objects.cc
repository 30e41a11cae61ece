// Collectives on byte strings.
#include "comm/exchange_bytes.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "group/process_group_impl.h"
#include "tensor/tensor_impl.h"

namespace tandem::comm {
namespace {

std::shared_ptr<ProcessGroupImpl> usable_eagerly(const ProcessGroup& group, std::string_view op) {
  if (context.graph)
    fail<UnimplementedError>("[{}] cannot be part of a traced function or graph", op);
  auto impl = detail::group_of(group, op);
  impl->require_use(op);
  return impl;
}

}  // namespace

std::vector<std::string> all_gather_object(const std::string& object,
                                           const CollectiveOptions& options) {
  const auto group = usable_eagerly(options.group, "all_gather_object");
  return exchange_bytes(group->communicator(), object);
}

std::string broadcast_object(const std::string& object, int source,
                             const CollectiveOptions& options) {
  const auto group = usable_eagerly(options.group, "broadcast_object");
  const int root = group->rank_of(source, "broadcast_object");
  const auto own = static_cast<std::int64_t>(object.size());
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(group->size()));
  group->communicator().exchange(&own, sizeof(own), sizes.data());
  const std::int64_t length = sizes[static_cast<std::size_t>(root)];
  std::string bytes = object;
  bytes.resize(static_cast<std::size_t>(length));
  const Tensor mine = from_host(group->device(), {length}, uint8, bytes.data());
  to_host(broadcast(mine, source, options), bytes.data());
  return bytes;
}

}  // namespace tandem::comm
