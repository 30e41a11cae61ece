/* Two ranks of mpirun, one of which comes late: the other has an error in time, and both go on. */
#include <mpi.h>
#include <tandem_mpi.h>

#include "check.h"

int main(int argc, char** argv) {
  int rank, sum;
  tandem_group *group, *again;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  EXPECT(tandem_time_limit() == 1800);
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_set_time_limit(0));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_set_time_limit(NAN));
  EXPECT_OK(tandem_set_time_limit(rank == 0 ? 0.2 : 60));
  if (rank == 0) {
    EXPECT_STATUS(TANDEM_DEADLINE_EXCEEDED, tandem_group_from_mpi(MPI_COMM_WORLD, &group));
    EXPECT_MESSAGE("[group_from_mpi] not all ranks of the communicator called it in time");
    MPI_Send(&rank, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(&sum, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  } else {
    MPI_Recv(&sum, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    /* Its duplicate is made, but the other rank has given up. */
    EXPECT_OK(tandem_set_time_limit(0.5));
    EXPECT(tandem_group_from_mpi(MPI_COMM_WORLD, &group) == TANDEM_DEADLINE_EXCEEDED);
    MPI_Send(&rank, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
  }
  /* The solver goes on, and the next group is made. */
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  EXPECT(sum == 1);
  EXPECT_OK(tandem_set_time_limit(60));
  EXPECT_OK(tandem_group_from_mpi(MPI_COMM_WORLD, &again));
  {
    double one[1] = {1};
    tandem_array a = tandem_view(one, TANDEM_FLOAT64, 1, (int64_t[]){1});
    EXPECT_OK(tandem_group_sum(again, &a));
    EXPECT(one[0] == 2);
  }
  EXPECT_OK(tandem_group_free(again));
  MPI_Finalize();
  return end_of_checks();
}
