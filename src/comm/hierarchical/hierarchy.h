// The ranks and communicators of a hierarchy, and the steps that a collective of it consists of.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "comm/process/announcement.h"
#include "comm/signature.h"

namespace tandem::hierarchical {

// Which rank is at which position of a hierarchy. Ranks have two numbers: `index` counts by group
// and position, `rank` is the caller's. They differ if a group was split off with its ranks in
// another order.
struct HierarchyLayout {
  std::vector<int> first;  // by group: number of ranks in earlier groups; last: number of all ranks
  int group = 0;           // of this rank
  int place = 0;           // this rank's position in its group
  std::vector<int> rank_at;   // by index
  std::vector<int> index_of;  // by rank

  int groups() const { return static_cast<int>(first.size()) - 1; }
  int size() const { return first.back(); }
  int group_size(int of) const { return at(first, of + 1) - at(first, of); }
  int group_size() const { return group_size(group); }
  int index() const { return at(first, group) + place; }
  int rank() const { return at(rank_at, index()); }
  // A group's first rank takes part in collectives between the groups.
  bool leads() const { return place == 0; }

  int group_of(int rank) const {
    int result = 0;
    while (at(first, result + 1) <= at(index_of, rank)) ++result;
    return result;
  }
  int place_of(int rank) const { return at(index_of, rank) - at(first, group_of(rank)); }
  // The ranks of a group, as callers number them.
  std::vector<int> ranks_of(int of) const {
    return {rank_at.begin() + at(first, of), rank_at.begin() + at(first, of + 1)};
  }

 private:
  static int at(const std::vector<int>& list, int i) { return list[static_cast<std::size_t>(i)]; }
};

// `sizes`: of the groups. `rank_at`: rank by index.
HierarchyLayout make_hierarchy_layout(std::span<const int> sizes, int group, int place,
                                      std::vector<int> rank_at);

// `sizes`: of the groups. `rank_at`: rank by index.
HierarchyLayout make_hierarchy_layout(std::span<const int> sizes, int group, int place,
                                      std::vector<int> rank_at);

// One rank's part of a hierarchy. See HierarchicalOptions.
struct Hierarchy {
  HierarchyLayout layout;
  std::size_t piece_bytes = 0;
  std::optional<RankNames> names;
  std::unique_ptr<Communicator> direct, inner, outer, out;  // `out`: as inner, from the leader
};

// The communicator that a step runs on. Every rank of one starts the same steps on it in the same
// order, whatever else is slow. Reducing towards the leader and broadcasting from it are therefore
// separate communicators.
enum class HierarchyLink {
  kToLeader,        // inside the group, towards its leader
  kBetweenLeaders,  // between the groups' leaders
  kFromLeader,      // inside the group, from its leader
  kDirect,          // between any two ranks
};
constexpr std::size_t kLinks = 4;

// Prefix of error messages that name ranks of the whole group.
inline constexpr std::string_view kErrorPrefix = "[hierarchical] ";

struct HierarchyStep {
  HierarchyLink link = HierarchyLink::kToLeader;
  std::function<std::shared_ptr<CollectiveWork>()> start;
  std::vector<const HierarchyStep*> after;  // steps that must have ended before
  std::function<void()> then;            // this rank's action when the step has ended; may be empty
  bool message = false;                  // starts at once, independent of the link's other steps
  std::shared_ptr<CollectiveWork> work;  // null: not started
  std::chrono::steady_clock::time_point started = {};
  bool done = false;

  // The first of `after` that has not ended; null if there is none.
  const HierarchyStep* awaited() const;
};

// The steps of a collective or message of the whole group.
class HierarchySteps {
 public:
  HierarchySteps(DeviceImpl& device, const Collective& of)
      : collective(of), mine(announce(of)), device_(device) {}
  ~HierarchySteps();
  HierarchySteps(const HierarchySteps&) = delete;
  HierarchySteps& operator=(const HierarchySteps&) = delete;

  // The step runs after those in `after` (null ones are ignored) and after earlier steps of the
  // link.
  const HierarchyStep* add(HierarchyLink link,
                           std::function<std::shared_ptr<CollectiveWork>()> start,
                           std::initializer_list<const HierarchyStep*> after = {},
                           std::function<void()> then = {});
  void add_message(HierarchyLink link, std::function<std::shared_ptr<CollectiveWork>()> start);
  // Device memory that lives as long as the steps.
  void* scratch(std::size_t bytes);
  // The first step that has not ended; null if all have.
  const HierarchyStep* first_open() const;
  // The first step that is under way; null if there is none.
  const HierarchyStep* first_under_way() const;

  std::deque<HierarchyStep> all;
  const Collective& collective;
  // This rank's announcement, those of its group, and those between the groups' leaders.
  const Announcement mine;
  std::vector<Announcement> inside, between;

 private:
  DeviceImpl& device_;
  std::vector<std::shared_ptr<void>> scratch_;
  mutable std::size_t ended_ = 0;  // number of leading steps that have ended
};

}  // namespace tandem::hierarchical
