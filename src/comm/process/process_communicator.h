// One rank of a group of processes: what all backends have in common.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/membership.h"
#include "comm/process/backend.h"

namespace tandem {

struct ProcessGroupOptions {
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // of every wait
  std::shared_ptr<const Membership> membership;  // null: failures are seen by the backend alone
};

// Checks arguments, numbers the collectives, brings the memory of devices to where the backend
// reaches it, and waits. The first error ends the group: from then on every call throws it.
std::unique_ptr<Communicator> make_process_communicator(std::unique_ptr<Backend> backend,
                                                        Device& device,
                                                        ProcessGroupOptions options = {});

}  // namespace tandem
