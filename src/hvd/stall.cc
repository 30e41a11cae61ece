#include "hvd/stall.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/joined.h"

namespace tandem::hvd {

bool StallWatch::time_to_check(Clock::time_point now) const {
  auto pace = limit_;
  if (warning_.count() > 0) pace = std::min(pace, warning_);
  return now - looked_ >= std::min<std::chrono::milliseconds>(std::chrono::seconds(1), pace / 4);
}

std::string StallWatch::look(Clock::time_point now,
                             std::span<const Negotiation::Partial> partials) {
  looked_ = now;
  decltype(since_) still;
  std::vector<Negotiation::Partial> stalled;
  std::vector<bool> marked;
  for (const Negotiation::Partial& partial : partials) {
    const std::pair key(partial.name, partial.occurrence);
    const auto known = since_.find(key);
    const auto since = known == since_.end() ? now : known->second;
    still[key] = since;
    const bool past_limit = now - since >= limit_;
    expired_ = expired_ || past_limit;
    if (past_limit || (warning_.count() > 0 && now - since >= warning_)) {
      stalled.push_back(partial);
      marked.push_back(past_limit);
    }
  }
  since_ = std::move(still);
  if (stalled.empty() || warning_.count() == 0) return {};
  if (!expired_ && now - warned_ < warning_) return {};
  warned_ = now;
  return fmt::format(
      "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of "
      "ranks and are waiting "
      "for remainder of ranks for more than {} seconds. This may indicate that different ranks are "
      "trying to submit "
      "different tensors or that only subset of ranks is submitting tensors, which will cause "
      "deadlock.\n{}",
      std::chrono::duration_cast<std::chrono::seconds>(warning_).count(),
      missing_ranks(stalled, marked));
}

std::string missing_ranks(std::span<const Negotiation::Partial> partials,
                          const std::vector<bool>& marked) {
  constexpr std::size_t kMostNames = 6;
  std::map<int, std::vector<std::string>> names;
  for (std::size_t i = 0; i < partials.size(); ++i)
    for (int rank : partials[i].missing)
      names[rank].push_back(partials[i].name + (i < marked.size() && marked[i] ? " !" : ""));
  std::string text = "Missing ranks:";
  for (auto& [rank, of_rank] : names) {
    const bool more = of_rank.size() > kMostNames;
    if (more) of_rank.resize(kMostNames);
    text += fmt::format("\n{}: [{}{}]", rank, joined(of_rank, ", "), more ? " ..." : "");
  }
  return text;
}

}  // namespace tandem::hvd
