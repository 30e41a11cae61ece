/* The second program of one mpirun: its ranks train on the samples that mpmd_solver sends. */
#include <mpi.h>
#include <tandem_mpi.h>

#include "check.h"

int main(int argc, char** argv) {
  static double samples[16][3];
  int rank, ranks;
  MPI_Comm own;
  tandem_group* group;
  tandem_model* model;
  tandem_window* window;
  tandem_report report = TANDEM_REPORT;
  tandem_budget budget = TANDEM_BUDGET;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_split(MPI_COMM_WORLD, 1, rank, &own);
  EXPECT_OK(tandem_set_time_limit(60));
  EXPECT_OK(tandem_set_seed(1));
  EXPECT_OK(tandem_group_from_mpi(own, &group));
  EXPECT_OK(tandem_model_create("{\"inputs\": [2], \"layers\": [{\"type\": \"dense\", \"units\": 1}],"
                                " \"optimizer\": {\"type\": \"adam\", \"learning_rate\": 0.03}, \"loss\": \"mse\"}",
                                group, &model));
  EXPECT_OK(tandem_window_create(model, NULL, &window));
  budget.max_steps = 20;
  for (int step = 0; step < 20; ++step) {
    MPI_Recv(samples, 48, MPI_DOUBLE, rank - ranks / 2, step, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    tandem_array x = tandem_view(samples, TANDEM_FLOAT64, 2, (int64_t[]){16, 2});
    tandem_array y = tandem_view(samples[0] + 2, TANDEM_FLOAT64, 2, (int64_t[]){16, 1});
    x.strides[0] = y.strides[0] = 3;
    x.strides[1] = y.strides[1] = 1;
    EXPECT_OK(tandem_window_push(window, &x, &y));
    EXPECT_OK(tandem_window_train(window, model, &budget, &report));
  }
  EXPECT(report.step == 400 && report.loss < 1e-2);
  EXPECT_OK(tandem_window_free(window));
  EXPECT_OK(tandem_model_free(model));
  EXPECT_OK(tandem_group_free(group));
  MPI_Comm_free(&own);
  MPI_Finalize();
  return end_of_checks();
}
