// Watches for operations that some ranks have submitted and others not.
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

  // 0 for `warning`: no warnings.
  StallWatch(std::chrono::milliseconds warning, std::chrono::milliseconds limit)
      : warning_(warning), limit_(limit) {}

  // Whether it is time to look again: a few times within the shorter limit, once a second at most.
  bool due(Clock::time_point now) const;
  // What is to be warned of now; empty: nothing. Each wait is warned of again after each `warning`.
  std::string look(Clock::time_point now, std::span<const Negotiation::Partial> partials);
  // Whether one was past the limit at the last look.
  bool expired() const { return expired_; }

 private:
  std::chrono::milliseconds warning_, limit_;
  Clock::time_point looked_ = Clock::now();
  Clock::time_point warned_ = Clock::now();
  // When each wait was first seen.
  std::map<std::pair<std::string, std::uint64_t>, Clock::time_point> since_;
  bool expired_ = false;
};

// "Missing ranks:\n1: [grad/a, grad/b !]": up to six names a rank; `marked` ones with "!".
std::string missing_ranks(std::span<const Negotiation::Partial> partials,
                          const std::vector<bool>& marked);

}  // namespace tandem::hvd
