// The backend for processes that mpirun launched: a transport over duplicates of MPI_COMM_WORLD.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "comm/membership.h"
#include "comm/process/backend.h"

namespace tandem {

struct MpiOptions {
  // The rank and size that the job expects; -1: those of mpirun.
  int rank = -1;
  int size = -1;
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // until all ranks have joined
  std::shared_ptr<const Membership> membership;                     // null: not checked
};

// Whether this build has the backend and this host has the library.
bool has_mpi();
// Why the backend cannot connect this process as this rank of a job: the program has initialised
// MPI for too few threads, or mpirun did not launch this rank. Empty if it can. Throws
// UnavailableError if there is no MPI.
std::string mpi_obstacle(int rank, int size);

// The group of all of the job's ranks. A collective call, made in the same order on every rank.
// Initialises MPI unless the program has done so; then it also finalises MPI, if all ranks exit
// with 0.
//
// Throws DeadlineExceededError if not all ranks join; FailedPreconditionError if mpirun did not
// launch this process, gave it another rank or size, or if MPI was initialised with less than
// MPI_THREAD_SERIALIZED or is finalised; UnavailableError if there is no MPI. When the program
// calls MPI_Finalize, open collectives end, and later calls throw AbortedError.
//
// MPI cannot cancel transfers that have begun. After a failure it may still write to the memory of
// collectives that were running, so callers must not free that memory.
std::unique_ptr<Backend> make_mpi_backend(const MpiOptions& options = {});

}  // namespace tandem
