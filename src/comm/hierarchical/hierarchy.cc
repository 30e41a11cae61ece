#include "comm/hierarchical/hierarchy.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "comm/device_memory.h"

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

const HierarchyStep* HierarchyStep::awaited() const {
  const auto found = std::find_if(after.begin(), after.end(),
                                  [](const HierarchyStep* step) { return !step->done; });
  return found == after.end() ? nullptr : *found;
}

// A failed collective may be impossible to cancel: MPI may still write to its memory.
HierarchySteps::~HierarchySteps() {
  if (scratch_.empty() || !first_open()) return;
  static auto* const kept_for_good = new std::vector<std::shared_ptr<void>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  kept_for_good->insert(kept_for_good->end(), scratch_.begin(), scratch_.end());
}

const HierarchyStep* HierarchySteps::add(HierarchyLink link,
                                         std::function<std::shared_ptr<CollectiveWork>()> start,
                                         std::initializer_list<const HierarchyStep*> after,
                                         std::function<void()> then) {
  HierarchyStep& step = all.emplace_back();
  step.link = link;
  step.start = std::move(start);
  std::copy_if(after.begin(), after.end(), std::back_inserter(step.after),
               [](const HierarchyStep* earlier) { return earlier != nullptr; });
  step.then = std::move(then);
  return &step;
}

void HierarchySteps::add_message(HierarchyLink link,
                                 std::function<std::shared_ptr<CollectiveWork>()> start) {
  add(link, std::move(start));
  all.back().message = true;
}

void* HierarchySteps::scratch(std::size_t bytes) {
  const Scoped tag(memory_tag, MemoryTag::kWorkspace);
  scratch_.push_back(allocate_on(device_, bytes, name_of(collective.signature.kind).data(),
                                 "memory to reduce the group's values"));
  return scratch_.back().get();
}

const HierarchyStep* HierarchySteps::first_open() const {
  while (ended_ < all.size() && all[ended_].done) ++ended_;
  return ended_ == all.size() ? nullptr : &all[ended_];
}

const HierarchyStep* HierarchySteps::first_under_way() const {
  const auto found = std::find_if(
      all.begin(), all.end(), [](const HierarchyStep& step) { return step.work && !step.done; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace tandem::hierarchical
