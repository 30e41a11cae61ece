// Which rank is where in a hierarchy.
#pragma once

#include <span>
#include <vector>

namespace tandem::hierarchical {

// Ranks are counted in two ways: by group and place, as `index`, and as callers do, as `rank`. The
// two differ where a group was split off with its ranks in another order.
struct Layout {
  std::vector<int> first;     // by group: how many ranks are in those before; last: in all
  int group = 0;              // this rank's
  int place = 0;              // of this rank in its group
  std::vector<int> rank_at;   // by index
  std::vector<int> index_of;  // by rank

  int groups() const { return static_cast<int>(first.size()) - 1; }
  int size() const { return first.back(); }
  int group_size(int of) const { return at(first, of + 1) - at(first, of); }
  int group_size() const { return group_size(group); }
  int index() const { return at(first, group) + place; }
  int rank() const { return at(rank_at, index()); }
  // The first of its group speaks for it.
  bool leads() const { return place == 0; }

  int group_of(int rank) const {
    int result = 0;
    while (at(first, result + 1) <= at(index_of, rank)) ++result;
    return result;
  }
  int place_of(int rank) const { return at(index_of, rank) - at(first, group_of(rank)); }
  // As callers count them.
  std::vector<int> ranks_of(int of) const {
    return {rank_at.begin() + at(first, of), rank_at.begin() + at(first, of + 1)};
  }

 private:
  static int at(const std::vector<int>& list, int i) { return list[static_cast<std::size_t>(i)]; }
};

// Of groups of these sizes; ranks are `rank_at`, by index.
Layout make_layout(std::span<const int> sizes, int group, int place, std::vector<int> rank_at);

}  // namespace tandem::hierarchical
