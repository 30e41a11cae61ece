// One rank of a group of processes: the part that all backends share.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/process/backend.h"
#include "comm/process/group_options.h"

namespace tandem {

// Checks arguments, numbers the collectives, copies device memory to memory that the backend
// accepts, and waits. The first error aborts the group: from then on every call throws it.
std::unique_ptr<Communicator> make_process_communicator(std::unique_ptr<Backend> backend,
                                                        DeviceImpl& device,
                                                        ProcessGroupOptions options = {});

}  // namespace tandem
