/* A communicator of Fortran, for the module tandem. Compiled with the program's MPI, or with TANDEM_NO_MPI. */
#ifdef TANDEM_NO_MPI
#include <tandem_c.h>
tandem_status tandem_group_from_fortran(int communicator, tandem_group** group) {
  (void)communicator;
  return tandem_group_create(NULL, group);
}
#else
#include <tandem_mpi.h>
tandem_status tandem_group_from_fortran(int communicator, tandem_group** group) {
  return tandem_group_from_mpi(MPI_Comm_f2c((MPI_Fint)communicator), group);
}
#endif
