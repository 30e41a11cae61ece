#include "ps/lost_updates.h"

#include <algorithm>

#include "core/log.h"

namespace tandem::ps {

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
    server.restarts.assign(life.restarts().begin(), life.restarts().end());
    server.kept = 0;
    const std::size_t lost = std::erase_if(server.updates, [&](const auto& update) {
      return !server.has(update.first, update.second);
    });
    add(server, static_cast<std::int64_t>(lost));
  }
  if (restarts < server.restarts.size() || life.kept() <= server.kept) return;
  server.kept = life.kept();
  std::erase_if(server.updates, [&](const auto& update) { return update.second <= server.kept; });
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
      server.updates.emplace_back(restarts, number);
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
