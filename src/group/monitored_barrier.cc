// A barrier through the store. If it fails, the group's collectives remain usable.
#include "comm/rendezvous/consultation.h"
#include "comm/signature.h"
#include "core/status.h"
#include "graph/graph.h"
#include "group/process_group_impl.h"

namespace tandem::comm {
namespace {

std::string text_for(const ProcessGroupImpl& group, const std::vector<int>& missing,
                     std::chrono::milliseconds time) {
  std::vector<int> named;
  for (const int rank : missing) named.push_back(group.ranks()[static_cast<std::size_t>(rank)]);
  return fmt::format("[monitored_barrier] {} failed to pass monitored_barrier in {} ms",
                     list_ranks(named), time.count());
}

}  // namespace

void monitored_barrier(const MonitoredBarrierOptions& options) {
  const auto group = detail::group_of(options.group, "monitored_barrier");
  group->require_use("monitored_barrier");
  if (context.graph)
    throw UnimplementedError("[monitored_barrier] cannot be part of a traced function or graph");
  const auto size = static_cast<std::size_t>(group->size());
  consult({.store = *group->job()->store(),
           .name = fmt::format("monitored_barrier/{}/{}", group->name(), group->next_barrier()),
           .rank = group->rank(),
           .size = group->size(),
           .limit = options.timeout.value_or(group->time_limit()),
           .describe_missing =
               [&](const std::vector<int>& missing, std::chrono::milliseconds time) {
                 return text_for(*group, missing, time);
               }},
          "", [&](const auto&) { return std::vector<std::string>(size); });
}

}  // namespace tandem::comm
