#include "comm/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "comm/checked_communicator.h"
#include "comm/device_memory.h"
#include "comm/hierarchical/build_work.h"
#include "comm/hierarchical/pipeline.h"
#include "core/status.h"

namespace tandem {
namespace {

using hierarchical::HierarchyLayout;
using hierarchical::Pipeline;

class HierarchicalCommunicator final : public CheckedCommunicator {
 public:
  explicit HierarchicalCommunicator(std::shared_ptr<Pipeline> pipeline)
      : pipeline_(std::move(pipeline)) {}
  ~HierarchicalCommunicator() override { pipeline_->close(); }

  int rank() const override { return pipeline_->layout.rank(); }
  int size() const override { return pipeline_->layout.size(); }
  Device& device() const override { return pipeline_->inner->device(); }

  void progress() override { pipeline_->progress(); }
  bool allows_any_thread() const override { return pipeline_->allows_any_thread(); }
  void label(std::string_view name, std::int64_t step) override {
    pipeline_->label = {std::string(name), step};
  }
  // Memory for the reduction inside the group; the broadcast back copies from it.
  std::shared_ptr<void> allocate(std::size_t bytes) override {
    return pipeline_->inner->allocate(bytes);
  }
  void abort(GroupFailure failure, const std::string& text) noexcept override {
    pipeline_->abort(failure, text);
  }

 private:
  std::shared_ptr<CollectiveWork> start(const CheckedCall& call) override {
    return pipeline_->submit([&] { return hierarchical::build_work(pipeline_, call); });
  }

  std::unique_ptr<Communicator> split_off(const std::vector<int>& ranks, int) override {
    return pipeline_->split([&] { return split_communicators(ranks); });
  }
  std::unique_ptr<Communicator> split_communicators(const std::vector<int>& ranks) const;

  std::shared_ptr<Pipeline> pipeline_;
};

// The positions in each group that are in `ranks`, in order. Groups without any are absent.
std::map<int, std::vector<int>> places_by_group(const HierarchyLayout& layout,
                                                const std::vector<int>& ranks) {
  std::map<int, std::vector<int>> groups;
  for (int rank : ranks) groups[layout.group_of(rank)].push_back(layout.place_of(rank));
  for (auto& [group, places] : groups) std::sort(places.begin(), places.end());
  return groups;
}

std::optional<RankNames> names_of(const std::optional<RankNames>& names,
                                  const std::vector<int>& ranks) {
  return names ? std::optional(names->of(ranks)) : std::nullopt;
}

std::unique_ptr<Communicator> HierarchicalCommunicator::split_communicators(
    const std::vector<int>& ranks) const {
  const HierarchyLayout& layout = pipeline_->layout;
  const auto groups = places_by_group(layout, ranks);
  Communicator* const direct = pipeline_->options.direct.get();
  if (groups.size() == 1) {
    std::vector<int> places;
    for (int rank : ranks) places.push_back(layout.place_of(rank));
    return pipeline_->inner->split(places);
  }
  const bool all_lead = std::all_of(groups.begin(), groups.end(),
                                    [](const auto& group) { return group.second.front() == 0; });
  if (!all_lead && !direct)
    fail<FailedPreconditionError>(
        "[split] this hierarchical communicator has no direct communicator of all ranks, so "
        "that ranks of several groups need the groups' first ranks among them");
  if (groups.size() == ranks.size()) {  // one rank per group
    if (!all_lead) return direct->split(ranks);
    std::vector<int> order;
    for (int rank : ranks) order.push_back(layout.group_of(rank));
    return pipeline_->outer->split(order);
  }

  std::vector<int> sizes, group_order, first_ranks, rank_at;
  int mine = 0;
  for (const auto& [group, places] : groups) {
    if (group == layout.group) mine = static_cast<int>(sizes.size());
    sizes.push_back(static_cast<int>(places.size()));
    group_order.push_back(group);
    const std::vector<int> members = layout.ranks_of(group);
    first_ranks.push_back(members[static_cast<std::size_t>(places.front())]);
    for (int place : places)
      rank_at.push_back(static_cast<int>(
          std::find(ranks.begin(), ranks.end(), members[static_cast<std::size_t>(place)]) -
          ranks.begin()));
  }
  auto inner = pipeline_->inner->split(groups.at(layout.group));
  std::unique_ptr<Communicator> outer;
  if (inner->rank() == 0)
    outer = all_lead ? pipeline_->outer->split(group_order) : direct->split(first_ranks);
  HierarchicalOptions options{.time_limit = pipeline_->options.time_limit,
                              .piece_bytes = pipeline_->options.piece_bytes,
                              .names = names_of(pipeline_->options.names, ranks),
                              .direct = direct ? direct->split(ranks) : nullptr};
  const int place = inner->rank();
  return std::make_unique<HierarchicalCommunicator>(std::make_shared<Pipeline>(
      hierarchical::make_hierarchy_layout(sizes, mine, place, std::move(rank_at)), std::move(inner),
      std::move(outer), std::move(options)));
}

// Exchanges the sizes of the groups and this rank's group between all ranks.
struct GroupSizes {
  std::vector<int> sizes;
  int group = 0;
};

GroupSizes agree_on_sizes(Communicator& inner, Communicator* outer) {
  GroupSizes result;
  std::vector<int> counts(static_cast<std::size_t>(inner.size()) * 2);
  if (outer) {
    result.sizes.resize(static_cast<std::size_t>(outer->size()));
    const int own = inner.size();
    outer->exchange(&own, sizeof(own), result.sizes.data());
  }
  const int mine[] = {static_cast<int>(result.sizes.size()), outer ? outer->rank() : 0};
  inner.exchange(mine, sizeof(mine), counts.data());
  const auto groups = static_cast<std::size_t>(counts[0]);
  result.group = counts[1];
  result.sizes.resize(groups);
  std::vector<int> all(groups * static_cast<std::size_t>(inner.size()));
  inner.exchange(result.sizes.data(), groups * sizeof(int), all.data());
  result.sizes.assign(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(groups));
  return result;
}

}  // namespace

std::unique_ptr<Communicator> make_hierarchical_communicator(std::unique_ptr<Communicator> inner,
                                                             std::unique_ptr<Communicator> outer,
                                                             HierarchicalOptions options) {
  if (!inner || (outer != nullptr) != (inner->rank() == 0))
    fail<InvalidArgumentError>(
        "[hierarchical] expected a communicator between the groups on the first rank of each "
        "group, "
        "and on no other");
  if (outer && &outer->device() != &inner->device())
    fail<InvalidArgumentError>("[hierarchical] expected communicators of one device, got {} and {}",
                               inner->device().full_name(), outer->device().full_name());
  GroupSizes found;
  try {
    found = agree_on_sizes(*inner, outer.get());
  } catch (const Error& error) {
    inner->abort(failure_of(error), error.what());
    throw;
  }
  std::vector<int> counted(
      static_cast<std::size_t>(std::accumulate(found.sizes.begin(), found.sizes.end(), 0)));
  std::iota(counted.begin(), counted.end(), 0);
  std::vector<int> rank_at = options.ranks.empty() ? counted : std::move(options.ranks);
  if (!std::is_permutation(rank_at.begin(), rank_at.end(), counted.begin(), counted.end()))
    fail<InvalidArgumentError>("[hierarchical] expected the ranks 0 to {} in some order, got {}",
                               counted.size() - 1, list_ranks(rank_at));
  // A single group, or one rank per group: one of the two communicators suffices.
  if (found.sizes.size() == 1) return rank_at == counted ? std::move(inner) : inner->split(rank_at);
  if (rank_at.size() == found.sizes.size())
    return rank_at == counted ? std::move(outer) : outer->split(rank_at);
  HierarchyLayout layout = hierarchical::make_hierarchy_layout(found.sizes, found.group,
                                                               inner->rank(), std::move(rank_at));
  if (options.direct &&
      (options.direct->rank() != layout.rank() || options.direct->size() != layout.size()))
    fail<InvalidArgumentError>(
        "[hierarchical] the direct communicator has rank {} of {} for what is rank {} of {}",
        options.direct->rank(), options.direct->size(), layout.rank(), layout.size());
  return std::make_unique<HierarchicalCommunicator>(std::make_shared<Pipeline>(
      std::move(layout), std::move(inner), std::move(outer), std::move(options)));
}

}  // namespace tandem
