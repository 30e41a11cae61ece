// Which rank is at which position of a hierarchy.
#pragma once

#include <span>
#include <vector>

namespace tandem::hierarchical {

// Ranks have two numbers: `index` counts by group and position, `rank` is the caller's. They differ
// if a group was split off with its ranks in another order.
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

}  // namespace tandem::hierarchical
