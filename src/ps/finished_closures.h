// Closures that are not sent any more, so that servers need not remember what they have applied.
//
// The chief knows which closures have not ended. Those that were scheduled after the last one that
// has ended are a suffix of all, so that a closure that hangs is one exception, and holds nothing
// else in memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ps/proto/server_calls.pb.h"

namespace tandem::ps {

inline bool is_finished(const proto::FinishedClosures& finished, std::uint64_t closure) {
  const auto& open = finished.open();
  return closure < finished.below() && std::find(open.begin(), open.end(), closure) == open.end();
}

// Those of both: messages may arrive in any order.
inline void add_finished(proto::FinishedClosures& to, const proto::FinishedClosures& more) {
  const bool newer = more.below() > to.below();
  proto::FinishedClosures all;
  all.set_below(std::max(to.below(), more.below()));
  for (const std::uint64_t closure : newer ? more.open() : to.open())
    if (!is_finished(newer ? to : more, closure)) all.add_open(closure);
  to = std::move(all);
}

}  // namespace tandem::ps
