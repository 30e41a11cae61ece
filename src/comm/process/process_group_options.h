// The options of a group of processes.
#pragma once

#include <chrono>
#include <memory>

#include "comm/membership.h"

namespace tandem {

struct ProcessGroupOptions {
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // for each wait
  std::shared_ptr<const Membership> membership;  // null: only the backend detects failures
};

}  // namespace tandem
