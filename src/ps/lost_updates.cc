#include "ps/lost_updates.h"

#include <algorithm>
#include <iterator>

#include "core/log.h"

namespace tandem::ps {

void UpdateNumbers::insert(std::uint64_t number) {
  auto after = ranges_.upper_bound(number);
  const auto before = after == ranges_.begin() ? ranges_.end() : std::prev(after);
  if (before != ranges_.end() && before->second >= number) return;
  std::uint64_t last = number;
  if (after != ranges_.end() && after->first == number + 1) {
    last = after->second;
    ranges_.erase(after);
  }
  if (before != ranges_.end() && before->second + 1 == number)
    before->second = last;
  else
    ranges_.emplace(number, last);
  if (ranges_.size() > kRanges) join_nearest();
}

std::int64_t UpdateNumbers::erase_above(std::uint64_t number) {
  std::uint64_t erased = 0;
  while (!ranges_.empty() && ranges_.rbegin()->second > number) {
    const auto range = std::prev(ranges_.end());
    if (range->first <= number) {
      erased += range->second - number;
      range->second = number;
      break;
    }
    erased += range->second - range->first + 1;
    ranges_.erase(range);
  }
  return static_cast<std::int64_t>(erased);
}

std::int64_t UpdateNumbers::erase_up_to(std::uint64_t number) {
  std::uint64_t erased = 0;
  while (!ranges_.empty() && ranges_.begin()->first <= number) {
    const auto [first, last] = *ranges_.begin();
    ranges_.erase(ranges_.begin());
    erased += std::min(last, number) - first + 1;
    if (last > number) ranges_.emplace(number + 1, last);
  }
  return static_cast<std::int64_t>(erased);
}

void UpdateNumbers::join_nearest() {
  std::vector<std::uint64_t> gaps;
  for (auto range = ranges_.begin(); std::next(range) != ranges_.end(); ++range)
    gaps.push_back(std::next(range)->first - range->second);
  const auto middle = gaps.begin() + static_cast<std::ptrdiff_t>((gaps.size() - 1) / 2);
  std::nth_element(gaps.begin(), middle, gaps.end());
  std::size_t left = gaps.size() / 2;  // gaps may be equal
  for (auto range = ranges_.begin(); left > 0 && std::next(range) != ranges_.end();) {
    const auto next = std::next(range);
    if (next->first - range->second > *middle) {
      range = next;
    } else {
      range->second = next->second;
      ranges_.erase(next);
      --left;
    }
  }
}

LostUpdates::LostUpdates(std::vector<std::string> servers) {
  for (std::string& name : servers) servers_.emplace_back().name = std::move(name);
}

// Each restart since has continued from a snapshot with the update.
bool LostUpdates::Server::has(std::size_t restarts_before, std::uint64_t number) const {
  return std::all_of(restarts.begin() + static_cast<std::ptrdiff_t>(restarts_before),
                     restarts.end(), [&](std::uint64_t last) { return number <= last; });
}

void LostUpdates::add(Server& server, std::int64_t lost) {
  if (lost == 0) return;
  server.lost += lost;
  logging::warn(
      "[ParameterServerStrategy] {} was restarted from a snapshot, and has lost {} updates of "
      "calls that had returned",
      server.name, lost);
}

void LostUpdates::learn(Server& server, const proto::ServerLife& life) {
  const auto restarts = static_cast<std::size_t>(life.restarts_size());
  if (restarts > server.restarts.size()) {
    const auto first =
        life.restarts().begin() + static_cast<std::ptrdiff_t>(server.restarts.size());
    const std::uint64_t last = *std::min_element(first, life.restarts().end());
    server.restarts.assign(life.restarts().begin(), life.restarts().end());
    server.kept = 0;
    add(server, server.updates.erase_above(last));
  }
  if (restarts < server.restarts.size() || life.kept() <= server.kept) return;
  server.kept = life.kept();
  server.updates.erase_up_to(server.kept);
}

void LostUpdates::returned(const AppliedUpdates& updates) {
  const std::lock_guard lock(mutex_);
  if (updates.server >= servers_.size()) return;
  Server& server = servers_[updates.server];
  learn(server, updates.life);
  const auto restarts = static_cast<std::size_t>(updates.life.restarts_size());
  std::int64_t lost = 0;
  for (const std::uint64_t number : updates.numbers)
    if (!server.has(restarts, number))
      ++lost;
    else if (number > updates.life.kept())
      server.updates.insert(number);
  add(server, lost);
}

void LostUpdates::heard_of(std::size_t server, const proto::ServerLife& life) {
  const std::lock_guard lock(mutex_);
  learn(servers_.at(server), life);
}

std::vector<std::int64_t> LostUpdates::counts() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::int64_t> counts;
  for (const Server& server : servers_) counts.push_back(server.lost);
  return counts;
}

}  // namespace tandem::ps
