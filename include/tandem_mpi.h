/* A group over a communicator of the program, in C and C++. The program's compiler builds this with
 * its own <mpi.h>, so that Tandem works with every MPI and links none.
 *
 * The communicator is duplicated, so that messages of the program and of Tandem never meet. Any
 * thread level will do: below MPI_THREAD_MULTIPLE MPI is called by the threads that call Tandem
 * alone, during their calls. Free models and groups before MPI_Finalize; freed later, they release
 * memory only. */
#ifndef TANDEM_MPI_H
#define TANDEM_MPI_H

#include "tandem_c.h"
#include "tandem_mpi_transport.h"

/* Collective over `communicator`. TANDEM_DEADLINE_EXCEEDED: not all of its ranks have called it
 * within tandem_time_limit(). TANDEM_UNAVAILABLE: MPI has failed. */
static inline tandem_status tandem_group_from_mpi(MPI_Comm communicator, tandem_group** group) {
  tandem_transport transport;
  char text[MPI_MAX_ERROR_STRING + 1] = "";
  const int code = tandem_mpi_transport(communicator, tandem_time_limit(), &transport);
  if (code == MPI_SUCCESS) return tandem_group_create(&transport, group);
  if (code == TANDEM_MPI_LATE)
    return tandem_fail(TANDEM_DEADLINE_EXCEEDED,
                       "[group_from_mpi] not all ranks of the communicator called it in time");
  tandem_mpi_text(NULL, code, text, sizeof(text));
  return tandem_fail(TANDEM_UNAVAILABLE, text);
}

#endif
