// The options that groups of processes take.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>

#include "comm/membership.h"
#include "comm/signature.h"
#include "comm/store.h"
#include "core/status.h"

namespace tandem {

// The options of a communicator.
struct ProcessGroupOptions {
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // for each wait
  std::shared_ptr<Membership> membership;  // null: only the backend detects failures
};

// The options of a backend whose ranks find each other through a store.
struct GroupOptions {
  std::shared_ptr<Store> store;  // through which the ranks find each other
  std::string name;              // the group's name, the same on every rank and unique
  int rank = 0;
  int size = 1;
  RankNames names = {};  // the ranks' names in error messages
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // until all ranks have joined
  std::shared_ptr<Membership> membership = nullptr;                 // null: not checked

  // Throws InvalidArgumentError.
  void check_rank(const char* backend) const {
    if (size < 1 || rank < 0 || rank >= size)
      fail<InvalidArgumentError>("[{}] expected a rank of 0 to {}, got {}", backend, size - 1,
                                 rank);
  }
  // Those of this rank in a group of some of the ranks.
  GroupOptions of(std::span<const int> ranks, const std::string& its_name) const {
    GroupOptions part = *this;
    part.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
    part.size = static_cast<int>(ranks.size());
    part.names = names.of(ranks);
    part.name = its_name;
    return part;
  }
};

}  // namespace tandem
