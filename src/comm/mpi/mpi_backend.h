// The processes that mpirun started, through MPI.
#pragma once

#include <chrono>
#include <memory>

#include "comm/membership.h"
#include "comm/process/backend.h"

namespace tandem {

struct MpiOptions {
  // What the job takes itself for; a rank and a size of -1 mean those that mpirun gave.
  int rank = -1;
  int size = -1;
  std::chrono::milliseconds time_limit = std::chrono::minutes(30);  // for all ranks to be there
  std::shared_ptr<const Membership> membership;                     // null: none is asked
};

// Whether this build has the backend, and this machine the library.
bool has_mpi();

// The group of all of the job's ranks. Every rank calls this as often as every other, in the same
// order. MPI is initialised unless the program has done so, and then finalised when all ranks exit
// with 0.
//
// Throws DeadlineExceededError when not all ranks come, FailedPreconditionError when mpirun did not
// start this process, gave it another rank or size, or when MPI was initialised with less than
// MPI_THREAD_SERIALIZED; UnavailableError when there is no MPI.
//
// After a failure the memory of collectives that were under way may yet be written to by MPI, which
// has no way to call them off: keep it.
std::unique_ptr<Backend> make_mpi_backend(MpiOptions options = {});

}  // namespace tandem
