// Warns of operations that only some ranks have submitted.
#pragma once

#include <chrono>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "hvd/negotiation.h"

namespace tandem::hvd {

class StallWatch {
 public:
  using Clock = std::chrono::steady_clock;

  // `warning` 0: no warnings.
  StallWatch(std::chrono::milliseconds warning, std::chrono::milliseconds limit)
      : warning_(warning), limit_(limit) {}

  // Whether it is time for look(): a few times within the shorter limit, at most once a second.
  bool time_to_check(Clock::time_point now) const;
  // The warning to log now; empty if there is none. A stall is reported again after each `warning`.
  std::string look(Clock::time_point now, std::span<const Negotiation::Partial> partials);
  // Whether a stall exceeded `limit` at the last look().
  bool expired() const { return expired_; }

 private:
  std::chrono::milliseconds warning_, limit_;
  Clock::time_point looked_ = Clock::now();
  Clock::time_point warned_ = Clock::now();
  // When each stall was first seen.
  std::map<std::pair<std::string, std::uint64_t>, Clock::time_point> since_;
  bool expired_ = false;
};

// "Missing ranks:\n1: [grad/a, grad/b !]": up to six names per rank; those in `marked` have a "!".
std::string missing_ranks(std::span<const Negotiation::Partial> partials,
                          const std::vector<bool>& marked);

}  // namespace tandem::hvd
