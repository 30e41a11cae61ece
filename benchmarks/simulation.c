/* Steps of a network inside an MPI program, from the program's memory and back, as a simulation takes them. One line of
 * JSON for each measurement: medians of milliseconds.
 *   mpirun -n RANKS simulation --network 1024-1024 --batch 16 --calls 200
 *   mpirun -n RANKS simulation --background STEPS   the solver's own time, with a trainer in the background and without */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tandem_mpi.h>

enum { WIDTH = 1024, MOST = 4096 };

static int rank, ranks;

static void check(tandem_status status) {
  if (status == TANDEM_OK) return;
  fprintf(stderr, "simulation: %s: %s\n", tandem_status_name(status), tandem_last_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static int ascending(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double median(double* times, int count) {
  qsort(times, (size_t)count, sizeof *times, ascending);
  return times[count / 2];
}

/* Dense layers of these sizes, with ReLU between them; Adam, mean squared error. */
static tandem_model* network(const char* sizes, tandem_group* group) {
  static char text[MOST];
  tandem_model* model;
  const char* next = strchr(sizes, '-');
  size_t at = (size_t)snprintf(text, MOST, "{\"inputs\": [%d], \"layers\": [", atoi(sizes));
  for (; next; next = strchr(next + 1, '-'))
    at += (size_t)snprintf(text + at, MOST - at, "{\"type\": \"dense\", \"units\": %d%s}%s", atoi(next + 1),
                           strchr(next + 1, '-') ? ", \"activation\": \"relu\"" : "", strchr(next + 1, '-') ? ", " : "");
  snprintf(text + at, MOST - at, "], \"optimizer\": {\"type\": \"adam\", \"learning_rate\": 0.0001}, \"loss\": \"mse\"}");
  check(tandem_model_create(text, group, &model));
  return model;
}

static void fill(float* values, long count) {
  for (long i = 0; i < count; ++i) values[i] = (float)rand() / (float)RAND_MAX - 0.5f;
}

static void steps(const char* sizes, int batch, int calls, tandem_group* group) {
  float *x = malloc(sizeof(float) * WIDTH * (size_t)batch), *y = malloc(sizeof(float) * WIDTH * (size_t)batch);
  double *train = malloc(sizeof(double) * (size_t)calls), *predict = malloc(sizeof(double) * (size_t)calls), loss;
  tandem_array ax = tandem_view(x, TANDEM_FLOAT32, 2, (int64_t[]){batch, WIDTH});
  tandem_array ay = tandem_view(y, TANDEM_FLOAT32, 2, (int64_t[]){batch, WIDTH});
  tandem_model* model = network(sizes, group);
  fill(x, (long)batch * WIDTH);
  fill(y, (long)batch * WIDTH);
  for (int warm = 0; warm < 2; ++warm)
    for (int i = 0; i < calls; ++i) {
      const double start = MPI_Wtime();
      check(tandem_train(model, &ax, &ay, NULL, &loss));
      const double trained = MPI_Wtime();
      check(tandem_predict(model, &ax, &ay));
      train[i] = 1e3 * (trained - start);
      predict[i] = 1e3 * (MPI_Wtime() - trained);
    }
  if (rank == 0)
    printf("{\"program\": \"tandem\", \"part\": \"simulation\", \"network\": \"%s\", \"ranks\": %d, \"batch\": %d,"
           " \"train_ms\": %.4f, \"predict_ms\": %.4f}\n", sizes, ranks, batch, median(train, calls), median(predict, calls));
  check(tandem_model_free(model));
  free(x), free(y), free(train), free(predict);
}

/* A step of the solver: some work over its field. Returns its own time, without the calls of Tandem. */
static double solver_step(double* field, int cells) {
  const double start = MPI_Wtime();
  for (int sweep = 0; sweep < 20; ++sweep)
    for (int i = 1; i + 1 < cells; ++i) field[i] += 0.1 * (field[i - 1] - 2 * field[i] + field[i + 1]);
  return MPI_Wtime() - start;
}

static void background(int count, tandem_group* group) {
  enum { CELLS = 200000, SAMPLES = 64 };
  static double field[CELLS];
  static float x[SAMPLES][64], y[SAMPLES][64];
  tandem_array ax = tandem_view(x, TANDEM_FLOAT32, 2, (int64_t[]){SAMPLES, 64});
  tandem_array ay = tandem_view(y, TANDEM_FLOAT32, 2, (int64_t[]){SAMPLES, 64});
  double* times = malloc(sizeof(double) * (size_t)count);
  tandem_model* model = network("64-256-64", group);
  tandem_window* window;
  tandem_trainer* trainer;
  double alone, beside;
  check(tandem_window_create(model, NULL, &window));
  fill(x[0], SAMPLES * 64);
  fill(y[0], SAMPLES * 64);
  for (int i = 0; i < count; ++i) times[i] = 1e3 * solver_step(field, CELLS);
  alone = median(times, count);
  check(tandem_trainer_start(model, window, NULL, &trainer));
  for (int i = 0; i < count; ++i) {
    check(tandem_window_push(window, &ax, &ay));
    times[i] = 1e3 * solver_step(field, CELLS);
    check(tandem_trainer_update(trainer, NULL));
  }
  beside = median(times, count);
  check(tandem_trainer_stop(trainer, NULL));
  if (rank == 0)
    printf("{\"program\": \"tandem\", \"part\": \"simulation\", \"background\": true, \"ranks\": %d, \"alone_ms\": %.4f,"
           " \"beside_ms\": %.4f}\n", ranks, alone, beside);
  check(tandem_window_free(window));
  check(tandem_model_free(model));
  free(times);
}

int main(int argc, char** argv) {
  const char* sizes = "1024-1024";
  int batch = 16, calls = 200, solver = 0;
  tandem_group* group;
  MPI_Init(&argc, &argv);
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--network") == 0) sizes = argv[i + 1];
    if (strcmp(argv[i], "--batch") == 0) batch = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--calls") == 0) calls = atoi(argv[i + 1]);
    if (strcmp(argv[i], "--background") == 0) solver = atoi(argv[i + 1]);
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  srand(1 + (unsigned)rank);
  check(tandem_set_threads(1));
  check(tandem_group_from_mpi(MPI_COMM_WORLD, &group));
  if (solver > 0)
    background(solver, group);
  else
    steps(sizes, batch, calls, group);
  check(tandem_group_free(group));
  MPI_Finalize();
  return 0;
}
