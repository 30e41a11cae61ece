// The options of a group in shared memory.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/membership.h"
#include "comm/signature.h"
#include "comm/store.h"

namespace tandem {

struct ShmOptions {
  std::shared_ptr<Store> store;  // through which the ranks find the segment
  std::string name;              // the group's name, the same on every rank and unique
  int rank = 0;
  int size = 1;
  RankNames names = {};  // the ranks' names in error messages
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // until all ranks have joined
  std::shared_ptr<const Membership> membership;                     // null: not checked
};

}  // namespace tandem
