#include "comm/shm/arena.h"

#include <algorithm>
#include <iterator>

#include "comm/shm/layout.h"

namespace tandem::shm {

Arena::Arena(std::shared_ptr<const Segment> segment, std::size_t begin, std::size_t bytes)
    : segment_(std::move(segment)), begin_(begin), bytes_(bytes), free_{{begin, bytes}} {}

std::shared_ptr<void> Arena::allocate(std::size_t bytes) {
  const std::size_t rounded = pages(bytes);
  std::size_t at = 0;
  {
    std::lock_guard lock(mutex_);
    auto found = free_.begin();
    while (found != free_.end() && found->second < rounded) ++found;
    if (found == free_.end()) return nullptr;
    at = found->first;
    if (!reserve(at, rounded)) return nullptr;
    const std::size_t rest = found->second - rounded;
    free_.erase(found);
    if (rest > 0) free_.emplace(at + rounded, rest);
  }
  return {segment_->data() + at,
          [self = shared_from_this(), at, rounded](void*) { self->deallocate(at, rounded); }};
}

bool Arena::reserve(std::size_t at, std::size_t bytes) const {
  const std::size_t first = huge_pages_before(at);
  return segment_->reserve(first, huge_pages(at + bytes) - first) || segment_->reserve(at, bytes);
}

std::int64_t Arena::offset_of(const void* data, std::size_t bytes) const {
  const auto begin = reinterpret_cast<std::uintptr_t>(segment_->data() + begin_);
  const auto at = reinterpret_cast<std::uintptr_t>(data);
  if (at < begin || at - begin > bytes_ || bytes > bytes_ - (at - begin)) return -1;
  return static_cast<std::int64_t>(at - begin);
}

void Arena::deallocate(std::size_t at, std::size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  auto item = free_.emplace(at, bytes).first;
  if (const auto after = std::next(item); after != free_.end() && at + bytes == after->first) {
    item->second += after->second;
    free_.erase(after);
  }
  if (item != free_.begin()) {
    const auto before = std::prev(item);
    if (before->first + before->second == at) {
      before->second += item->second;
      free_.erase(item);
      item = before;
    }
  }
  // Those that nothing lies in any more; what is free beyond them has been given back before.
  const std::size_t first = std::max(huge_pages(item->first), huge_pages_before(at));
  const std::size_t last =
      std::min(huge_pages_before(item->first + item->second), huge_pages(at + bytes));
  if (first < last) segment_->release(first, last - first);
}

}  // namespace tandem::shm
