#include "comm/hierarchical/hierarchy_layout.h"

namespace tandem::hierarchical {

HierarchyLayout make_hierarchy_layout(std::span<const int> sizes, int group, int place,
                                      std::vector<int> rank_at) {
  HierarchyLayout layout{
      .first = {0}, .group = group, .place = place, .rank_at = std::move(rank_at)};
  for (int size : sizes) layout.first.push_back(layout.first.back() + size);
  layout.index_of.resize(layout.rank_at.size());
  for (std::size_t i = 0; i < layout.rank_at.size(); ++i)
    layout.index_of[static_cast<std::size_t>(layout.rank_at[i])] = static_cast<int>(i);
  return layout;
}

}  // namespace tandem::hierarchical
