// The backend for ranks that exchange bytes by functions of the program.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/process/backend.h"
#include "comm/transport/transport.h"

namespace tandem {

struct TransportBackendOptions {
  std::shared_ptr<Transport> transport;  // of all ranks; the group gets one of its own
  std::string name;                      // the same on all ranks, and unique
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // until all ranks have joined
  std::shared_ptr<const Membership> membership;                     // null: not checked
  int local_size = 0;                                               // ranks on this host; 0: all
};

// A collective call. Throws as Transport::split(). After a failure the program's functions may
// still write to the memory of collectives that were running, so callers must not free that memory.
std::unique_ptr<Backend> make_transport_backend(const TransportBackendOptions& options);

}  // namespace tandem
