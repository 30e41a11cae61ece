// MPI_Allreduce, measured as allreduce.cc is.
//
//     mpirun -n 2 mpi_allreduce [--seconds 0.5] [--bytes N]
#include <mpi.h>

#include "peers/allreduce_loop.h"

int main(int argc, char** argv) {
  MPI_Init(nullptr, nullptr);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  measure_all_reduce({.name = "mpi_allreduce",
                      .rank = rank,
                      .ranks = ranks,
                      .all_reduce =
                          [](float* data, std::size_t count) {
                            MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT,
                                          MPI_SUM, MPI_COMM_WORLD);
                          },
                      .barrier = [] { MPI_Barrier(MPI_COMM_WORLD); },
                      .from_rank_0 =
                          [](int value) {
                            MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD);
                            return value;
                          }},
                     argc, argv);
  MPI_Finalize();
}
