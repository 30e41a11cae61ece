/// @file
/// Process groups over functions of the program, for programs whose ranks know each other already.
#pragma once

#include <chrono>
#include <string>

#include "tandem/comm.h"

struct tandem_transport;

namespace tandem::comm {

/// Options of from_transport() and from_mpi().
struct TransportOptions {
  /// "transport": data moves by the functions. "shm": through shared memory; all ranks are on one
  /// host. "hierarchical": through shared memory inside hosts. "auto": the fastest of these.
  std::string backend = "auto";
  /// Timeout of every wait for other ranks.
  std::chrono::milliseconds timeout = std::chrono::minutes(30);
};

/// A group of the ranks of a transport (tandem_transport.h). Independent of init_process_group()
/// and of other groups, of which a process may have several. Everything that takes a group takes
/// it; ranks in arguments are the transport's. A collective call of these ranks.
///
/// Takes the transport over, also if it throws: release() is called once the group, and all that
/// communicates through it, is gone. Unless any thread may call the functions, only those that call
/// Tandem do, during their calls, and the group's collectives advance in these calls alone. Once
/// nothing can be sent any more, calls throw AbortedError.
///
/// Throws InvalidArgumentError for a transport that lacks a function, a rank that is out of range,
/// an unknown backend, and ranks that ask for different ones; DeadlineExceededError that names the
/// ranks that did not call; UnavailableError if a function fails.
ProcessGroup from_transport(const tandem_transport& transport,
                            const TransportOptions& options = {});

}  // namespace tandem::comm
