/// @file
/// Process groups over communicators of a program that uses MPI. Not part of tandem/tandem.h,
/// because it includes the program's <mpi.h>; Tandem itself links no MPI for it.
/// @code
/// MPI_Init(&argc, &argv);                                // any thread level
/// td::comm::ProcessGroup group = td::comm::from_mpi(solver);
/// td::parallel::DistributedDataParallel ddp(model, {.process_group = group});
/// @endcode
#pragma once

#include <string>

#include "tandem/errors.h"
#include "tandem/transport.h"
#include "tandem_mpi_transport.h"

namespace tandem::comm {

/// A group of the communicator's ranks, as from_transport(). The communicator is duplicated and may
/// be freed at once. A collective call. Destroy the group before MPI_Finalize; what is destroyed
/// later releases memory alone. Throws also UnavailableError with MPI's message if MPI fails.
inline ProcessGroup from_mpi(MPI_Comm comm, const TransportOptions& options = {}) {
  tandem_transport transport;
  if (const int code = tandem_mpi_transport(comm, &transport); code != MPI_SUCCESS) {
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    tandem_mpi_text(nullptr, code, text, sizeof(text));
    throw UnavailableError(std::string("[from_mpi] MPI_Comm_dup: ") + text);
  }
  return from_transport(transport, options);
}

}  // namespace tandem::comm
