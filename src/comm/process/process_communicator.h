// One rank of a group of processes: the part that all backends share.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/membership.h"
#include "comm/process/backend.h"

namespace tandem {

struct ProcessGroupOptions {
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // for each wait
  std::shared_ptr<const Membership> membership;  // null: only the backend detects failures
};

// Checks arguments, numbers the collectives, copies device memory to memory that the backend
// accepts, and waits. The first error aborts the group: from then on every call throws it.
std::unique_ptr<Communicator> make_process_communicator(std::unique_ptr<Backend> backend,
                                                        Device& device,
                                                        ProcessGroupOptions options = {});

}  // namespace tandem
