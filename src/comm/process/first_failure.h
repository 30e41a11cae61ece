// Finds the rank that failed first after a connection has ended.
#pragma once

#include <chrono>
#include <thread>

#include "comm/membership.h"

namespace tandem {

// A peer may have gone because another rank failed, and that failure is the cause to report. Waits
// up to a second for the membership to report it and throws it. Returns if none is reported: the
// membership does not hear of a peer that merely left a group. Rank 0 stays alive long enough if it
// runs the job's server. `membership` may be null.
//
// `throw_published` throws what a peer has published as the group's failure. It comes first: the
// peer may have ended since, and the membership would blame it for the failure that it reported.
template <class Function>
void throw_first_failure(const Membership* membership, const Function& throw_published) {
  constexpr std::chrono::milliseconds kWordOfMembership(1000), kAMoment(1);
  if (!membership) return;
  const auto deadline = std::chrono::steady_clock::now() + kWordOfMembership;
  while (!membership->failed() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(kAMoment);
  throw_published();
  if (membership->failed()) membership->throw_failure();
}

}  // namespace tandem
