/* Training a subgrid closure inside an MPI solver.   mpirun -n 2 ./16_simulation   (or more ranks: the first two form the
 * solver's communicator, the others only wait)
 *
 * u_t + u u_x + u u_y = nu (u_xx + u_yy) + forcing, periodic, in two slabs of rows. The solver also keeps the averages of u
 * over 4 x 4 cells; what the coarse grid cannot see is tau = avg(u u) - avg(u) avg(u). A network learns tau from the 3 x 3
 * coarse neighbours while the simulation runs: a window has the newest samples, and a few optimizer steps are taken on
 * random ones of them between the time steps. Exits with 1 if the error of tau at the end is above 0.05. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <tandem_c.h>
#include <tandem_mpi.h>

enum { N = 96, RANKS = 2, ROWS = N / RANKS, C = 4, CN = N / C, CROWS = ROWS / C, SAMPLES = (CROWS - 2) * CN };
static const char* kModel =
    "{\"inputs\": [9], \"normalize\": true,"
    " \"layers\": [{\"type\": \"dense\", \"units\": 32, \"activation\": \"tanh\"},"
    "              {\"type\": \"dense\", \"units\": 32, \"activation\": \"tanh\"},"
    "              {\"type\": \"dense\", \"units\": 1}],"
    " \"optimizer\": {\"type\": \"adam\", \"learning_rate\": 0.003}, \"loss\": \"mean_squared_error\"}";

static void check(tandem_status status) {
  if (status == TANDEM_OK) return;
  fprintf(stderr, "tandem: %s: %s\n", tandem_status_name(status), tandem_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static double u[ROWS + 2][N], v[ROWS + 2][N];

static void halo(MPI_Comm comm, int rank) {
  const int up = (rank + 1) % RANKS, down = (rank + RANKS - 1) % RANKS;
  MPI_Sendrecv(u[ROWS], N, MPI_DOUBLE, up, 0, u[0], N, MPI_DOUBLE, down, 0, comm, MPI_STATUS_IGNORE);
  MPI_Sendrecv(u[1], N, MPI_DOUBLE, down, 1, u[ROWS + 1], N, MPI_DOUBLE, up, 1, comm, MPI_STATUS_IGNORE);
}

static void advance(MPI_Comm comm, int rank, int step) {
  const double h = 1.0 / N, dt = 5e-4, nu = 2e-3, pi = acos(-1.0);
  halo(comm, rank);
  for (int i = 1; i <= ROWS; ++i)
    for (int j = 0; j < N; ++j) {
      const int e = (j + 1) % N, w = (j + N - 1) % N;
      const double x = j * h, y = (rank * ROWS + i - 1) * h, t = step * dt;
      const double ux = u[i][j] > 0 ? u[i][j] - u[i][w] : u[i][e] - u[i][j], uy = u[i][j] > 0 ? u[i][j] - u[i - 1][j] : u[i + 1][j] - u[i][j];
      const double f = 4.0 * sin(2 * pi * (2 * x + y + 0.7 * t)) * cos(2 * pi * (x - 3 * y - 0.4 * t));
      v[i][j] = u[i][j] + dt * (-u[i][j] * (ux + uy) / h + nu * (u[i + 1][j] + u[i - 1][j] + u[i][e] + u[i][w] - 4 * u[i][j]) / (h * h) + f);
    }
  for (int i = 1; i <= ROWS; ++i)
    for (int j = 0; j < N; ++j) u[i][j] = v[i][j];
}

static void samples(double (*x)[9], double (*y)[1]) {
  static double a[CROWS][CN], tau[CROWS][CN];
  for (int i = 0; i < CROWS; ++i)
    for (int j = 0; j < CN; ++j) {
      double m = 0, q = 0;
      for (int k = 0; k < C; ++k)
        for (int l = 0; l < C; ++l) { const double z = u[1 + C * i + k][C * j + l]; m += z; q += z * z; }
      a[i][j] = m / (C * C);
      tau[i][j] = q / (C * C) - a[i][j] * a[i][j];
    }
  int n = 0;
  for (int i = 1; i + 1 < CROWS; ++i)
    for (int j = 0; j < CN; ++j, ++n) {
      for (int k = 0; k < 9; ++k) x[n][k] = a[i + k / 3 - 1][(j + k % 3 - 1 + CN) % CN];
      y[n][0] = tau[i][j];
    }
}

int main(int argc, char** argv) {
  double first = 0, last = 0;
  static double x[SAMPLES][9], y[SAMPLES][1], p[SAMPLES][1];
  const tandem_array ax = tandem_view(x, TANDEM_FLOAT64, 2, (int64_t[]){SAMPLES, 9});
  const tandem_array ay = tandem_view(y, TANDEM_FLOAT64, 2, (int64_t[]){SAMPLES, 1});
  tandem_array ap = tandem_view(p, TANDEM_FLOAT64, 2, (int64_t[]){SAMPLES, 1});
  int rank, size;
  MPI_Init(&argc, &argv); /* no thread level is asked for */
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (size < RANKS) { fprintf(stderr, "needs %d ranks\n", RANKS); MPI_Abort(MPI_COMM_WORLD, 1); }
  MPI_Comm solver;
  MPI_Comm_split(MPI_COMM_WORLD, rank < RANKS ? 0 : MPI_UNDEFINED, rank, &solver);
  if (solver != MPI_COMM_NULL) {
    tandem_group* group;
    tandem_model* model;
    tandem_window* window;
    tandem_window_options options = TANDEM_WINDOW_OPTIONS;
    tandem_budget budget = TANDEM_BUDGET;
    tandem_report report = TANDEM_REPORT;
    options.capacity = 40 * SAMPLES;
    options.batch = 64;
    options.seed = 1;
    budget.max_steps = 8;
    check(tandem_set_seed(1));
    check(tandem_group_from_mpi(solver, &group));
    check(tandem_model_create(kModel, group, &model));
    check(tandem_window_create(model, &options, &window));
    for (int step = 0; step < 2400; ++step) {
      advance(solver, rank, step);
      if (step < 400 || step % 4) continue; /* spin-up; a sample every 4 steps */
      samples(x, y);
      check(tandem_predict(model, &ax, &ap)); /* before it has seen them */
      double sums[2] = {0, 0};
      for (int i = 0; i < SAMPLES; ++i) { sums[0] += (p[i][0] - y[i][0]) * (p[i][0] - y[i][0]); sums[1] += y[i][0] * y[i][0]; }
      MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, solver);
      last = sqrt(sums[0] / sums[1]);
      if (step == 400) first = last;
      check(tandem_model_observe(model, &ax, &ay));
      check(tandem_window_push(window, &ax, &ay));
      check(tandem_window_train(window, model, &budget, &report));
    }
    if (rank == 0) {
      check(tandem_model_save(model, "closure"));
      printf("relative error of tau before %.3f after %.3f, %lld steps, loss %.4f\n", first, last,
             (long long)report.step, report.loss);
    }
    check(tandem_window_free(window));
    check(tandem_model_free(model));
    check(tandem_group_free(group));
    MPI_Comm_free(&solver);
  }
  MPI_Finalize();
  return last <= 0.05 ? 0 : 1;
}
