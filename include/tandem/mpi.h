/// @file
/// Process groups over communicators of a program that uses MPI. Not part of tandem/tandem.h,
/// because it includes the program's <mpi.h>; Tandem itself links no MPI for it.
/// @code
/// MPI_Init(&argc, &argv);                                // any thread level
/// td::comm::ProcessGroup group = td::comm::from_mpi(solver);
/// td::parallel::DistributedDataParallel ddp(model, {.process_group = group});
/// @endcode
#pragma once

#include <chrono>
#include <string>

#include "tandem/errors.h"
#include "tandem/transport.h"
#include "tandem_mpi_transport.h"

namespace tandem::comm {

/// A group of the communicator's ranks, as from_transport(). The communicator is duplicated and may
/// be freed at once. A collective call. Destroy the group before MPI_Finalize; what is destroyed
/// later releases memory alone. Throws also DeadlineExceededError if not all ranks call it within
/// the timeout, and UnavailableError with MPI's message if MPI fails.
inline ProcessGroup from_mpi(MPI_Comm comm, const TransportOptions& options = {}) {
  tandem_transport transport;
  const double seconds = std::chrono::duration<double>(options.timeout).count();
  const int code = tandem_mpi_transport(comm, seconds, &transport);
  if (code == TANDEM_MPI_LATE)
    throw DeadlineExceededError("[from_mpi] not all ranks of the communicator called it within " +
                                std::to_string(options.timeout.count()) + " ms");
  if (code != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    tandem_mpi_text(nullptr, code, text, sizeof(text));
    throw UnavailableError(std::string("[from_mpi] MPI_Comm_idup: ") + text);
  }
  return from_transport(transport, options);
}

}  // namespace tandem::comm
