/* The first program of one mpirun: a solver that knows nothing of Tandem. Its ranks send samples to those of the second
 * one, mpmd_trainer, and end. */
#include <math.h>
#include <mpi.h>

int main(int argc, char** argv) {
  double samples[16][3];
  int rank, ranks;
  MPI_Comm own;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &own);
  for (int step = 0; step < 20; ++step) {
    for (int i = 0; i < 16; ++i) {
      samples[i][0] = sin(16 * step + i + rank);
      samples[i][1] = cos(3 * i * step);
      samples[i][2] = samples[i][0] - 2 * samples[i][1];
    }
    MPI_Send(samples, 48, MPI_DOUBLE, ranks / 2 + rank, step, MPI_COMM_WORLD);
  }
  MPI_Comm_free(&own);
  MPI_Finalize();
  return 0;
}
