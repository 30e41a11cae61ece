// Finds the rank that failed first after a peer has gone.
#pragma once

#include <chrono>
#include <thread>

#include "comm/membership.h"

namespace tandem {

// A peer that is gone, or has left, may have gone because another one had failed, which is the
// cause; rank 0 stays, where it carries the job's server, until that has told the others. Throws
// what the membership says, within a moment, has failed. Returns where it says nothing: it never
// hears of a peer that only left a group. `membership` may be null.
inline void throw_first_failure(const Membership* membership) {
  constexpr std::chrono::milliseconds kWordOfMembership(1000), kAMoment(1);
  if (!membership) return;
  const auto deadline = std::chrono::steady_clock::now() + kWordOfMembership;
  while (!membership->failed() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kAMoment);
  if (membership->failed()) membership->throw_failure();
}

}  // namespace tandem
