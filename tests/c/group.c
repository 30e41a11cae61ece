/* Ranks of mpirun: groups of the host's communicators. */
#include <mpi.h>
#include <stdlib.h>
#include <tandem_mpi.h>

#include "check.h"

enum { N = 12 };

static int rank, ranks;

static const char* kModel =
    "{\"inputs\": [2], \"normalize\": true, \"dtype\": \"float64\", \"layers\": [{\"type\": \"dense\", \"units\": 4,"
    " \"activation\": \"tanh\"}, \"batch_normalization\", {\"type\": \"dense\", \"units\": 1}],"
    " \"optimizer\": {\"type\": \"sgd\", \"learning_rate\": 0.1}, \"loss\": \"mse\"}";
static const char* kPlain =
    "{\"inputs\": [2], \"normalize\": true, \"dtype\": \"float64\", \"layers\": [{\"type\": \"dense\", \"units\": 4,"
    " \"activation\": \"tanh\"}, {\"type\": \"dense\", \"units\": 1}],"
    " \"optimizer\": {\"type\": \"sgd\", \"learning_rate\": 0.1}, \"loss\": \"mse\"}";

static const char* kRandom =
    "{\"inputs\": [2], \"normalize\": true, \"layers\": [{\"type\": \"dense\", \"units\": 8, "
    "\"activation\": \"tanh\"},"
    " {\"type\": \"dropout\", \"rate\": 0.25}, \"batch_normalization\", {\"type\": \"dense\", "
    "\"units\": 1}],"
    " \"optimizer\": {\"type\": \"adam\", \"learning_rate\": 0.01}, \"loss\": \"mse\"}";

static void sums(tandem_group* group) {
  double numbers[2][3] = {{1 + rank, 2, 3}, {4, 5, 6 * rank}};
  tandem_array a = tandem_view(numbers, TANDEM_FLOAT64, 2, (int64_t[]){2, 3});
  EXPECT_OK(tandem_group_sum(group, &a));
  EXPECT(numbers[0][0] == ranks * (ranks + 1) / 2 && numbers[0][1] == 2 * ranks && numbers[1][2] == 3 * ranks * (ranks - 1));
  int64_t counts[4] = {(INT64_C(1) << 60) + rank, 0, -rank, 0}; /* every second one, with more digits than a double has */
  tandem_array integers = tandem_view(counts, TANDEM_INT64, 1, (int64_t[]){2});
  integers.strides[0] = 2;
  EXPECT_OK(tandem_group_sum(group, &integers));
  EXPECT(counts[0] == (INT64_C(1) << 60) * ranks + ranks * (ranks - 1) / 2 && counts[1] == 0 && counts[2] == -ranks * (ranks - 1) / 2);
  if (rank == ranks - 1) a.dims[0] = 1;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_group_sum(group, &a));
  if (rank == 0) a.data = NULL;
  a.dims[0] = 2;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_group_sum(group, &a));
}

/* The bits of one process with all examples, whatever the number of ranks. */
static void has_the_bits_of_one_process(tandem_group* group) {
  enum { ALL = 16, PARTS = 8 };
  static double x[ALL][2], y[ALL][1], p[ALL][1], q[ALL][1], dx[ALL][2], dz[ALL][2];
  double together, alone;
  tandem_model *shared, *own;
  for (int i = 0; i < ALL; ++i) {
    x[i][0] = sin(i);
    x[i][1] = 50 + cos(2 * i);
    y[i][0] = 3 + x[i][0] * x[i][1];
  }
  const int count = ALL / ranks, first = rank * count;
  const tandem_array ax = tandem_view(x, TANDEM_FLOAT64, 2, (int64_t[]){ALL, 2});
  const tandem_array ay = tandem_view(y, TANDEM_FLOAT64, 2, (int64_t[]){ALL, 1});
  tandem_array ap = tandem_view(p, TANDEM_FLOAT64, 2, (int64_t[]){ALL, 1}), aq = ap;
  tandem_array mx = tandem_view(x[first], TANDEM_FLOAT64, 2, (int64_t[]){count, 2});
  tandem_array my = tandem_view(y[first], TANDEM_FLOAT64, 2, (int64_t[]){count, 1});
  tandem_array adx = ax, mdx = mx;
  aq.data = q;
  adx.data = dx;
  mdx.data = dz[first];
  EXPECT_OK(tandem_set_replica_invariant_parts(PARTS));
  EXPECT_OK(tandem_set_seed(5));
  EXPECT_OK(tandem_model_create(kRandom, NULL, &own));
  EXPECT_OK(tandem_set_seed(5));
  EXPECT_OK(tandem_model_create(kRandom, group, &shared));
  if (ranks == 3) { /* no power of two */
    EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_train(shared, &mx, &my, NULL, &together));
    EXPECT_OK(tandem_model_free(shared));
    EXPECT_OK(tandem_model_free(own));
    EXPECT_OK(tandem_set_replica_invariant_parts(0));
    return;
  }
  for (int step = 0; step < 4; ++step) {
    EXPECT_OK(tandem_model_observe(own, &ax, &ay));
    EXPECT_OK(tandem_model_observe(shared, &mx, &my));
    EXPECT_OK(tandem_set_seed(step)); /* of the masks of dropout */
    EXPECT_OK(tandem_train(own, &ax, &ay, NULL, &alone));
    EXPECT_OK(tandem_set_seed(step));
    EXPECT_OK(tandem_train(shared, &mx, &my, NULL, &together));
    EXPECT(alone == together);
    EXPECT_OK(tandem_set_seed(step));
    EXPECT_OK(tandem_backward(own, &ax, &ay, 1, &adx));
    EXPECT_OK(tandem_set_seed(step));
    EXPECT_OK(tandem_backward(shared, &mx, &my, 1, &mdx));
    EXPECT(memcmp(dx[first], dz[first], sizeof(double) * 2 * (size_t)count) == 0);
    EXPECT_OK(tandem_evaluate(own, &ax, &ay, &alone));
    EXPECT_OK(tandem_evaluate(shared, &mx, &my, &together));
    EXPECT(alone == together);
  }
  EXPECT_OK(tandem_predict(own, &ax, &ap));
  EXPECT_OK(tandem_predict(shared, &ax, &aq));
  EXPECT(p[3][0] != p[4][0] && memcmp(p, q, sizeof p) == 0);
  /* Not whole parts, on one rank alone: an error on all, after which the group goes on. */
  if (rank == ranks - 1) mx.dims[0] = my.dims[0] = count - 1;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_train(shared, &mx, &my, NULL, &together));
  EXPECT_MESSAGE(
      "expected equally many examples on all ranks in the replica-invariant mode, and a multiple "
      "of the");
  mx.dims[0] = my.dims[0] = count;
  EXPECT_OK(tandem_train(shared, &mx, &my, NULL, &together));
  tandem_window_options options = TANDEM_WINDOW_OPTIONS;
  tandem_budget budget = TANDEM_BUDGET;
  tandem_report report = TANDEM_REPORT;
  tandem_window* window;
  EXPECT_OK(tandem_window_create(shared, &options, &window));
  EXPECT_STATUS(TANDEM_UNIMPLEMENTED, tandem_window_train(window, shared, &budget, &report));
  EXPECT_OK(tandem_window_free(window));
  EXPECT_OK(tandem_model_free(shared));
  EXPECT_OK(tandem_model_free(own));
  EXPECT_OK(tandem_set_replica_invariant_parts(0));
}

/* The ranks train as one process does on all examples, although they hold different numbers of them. */
static void trains_as_one_process(tandem_group* group) {
  static double x[N][2], y[N][1], p[N][1], q[N][1];
  double together, alone;
  tandem_model *shared, *own;
  for (int i = 0; i < N; ++i) {
    x[i][0] = sin(i);
    x[i][1] = 50 + cos(2 * i);
    y[i][0] = 3 + x[i][0] * x[i][1];
  }
  tandem_array ax = tandem_view(x, TANDEM_FLOAT64, 2, (int64_t[]){N, 2}), ay = tandem_view(y, TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
  tandem_array ap = tandem_view(p, TANDEM_FLOAT64, 2, (int64_t[]){N, 1}), aq = tandem_view(q, TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
  EXPECT_OK(tandem_set_seed(5));
  EXPECT_OK(tandem_model_create(kPlain, NULL, &own));
  EXPECT_OK(tandem_set_seed(rank == 0 ? 5 : 77)); /* all ranks start as rank 0 */
  EXPECT_OK(tandem_model_create(kPlain, group, &shared));
  /* Rank 0 has 1 example, the last rank most. */
  const int first = rank == 0 ? 0 : rank, count = rank == ranks - 1 ? N - rank : 1;
  tandem_array mx = ax, my = ay;
  mx.data = x[first];
  my.data = y[first];
  mx.dims[0] = my.dims[0] = count;
  EXPECT_OK(tandem_model_observe(own, &ax, &ay));
  EXPECT_OK(tandem_model_observe(shared, &mx, &my));
  for (int step = 0; step < 5; ++step) {
    EXPECT_OK(tandem_train(own, &ax, &ay, NULL, &alone));
    EXPECT_OK(tandem_train(shared, &mx, &my, NULL, &together));
    EXPECT_NEAR(alone, together, 1e-10);
  }
  EXPECT_OK(tandem_evaluate(own, &ax, &ay, &alone));
  EXPECT_OK(tandem_evaluate(shared, &mx, &my, &together));
  EXPECT_NEAR(alone, together, 1e-10);
  EXPECT_OK(tandem_backward(own, &ax, &ay, 1, NULL));
  EXPECT_OK(tandem_backward(shared, &mx, &my, 1, NULL)); /* gradients are summed */
  EXPECT_OK(tandem_predict(own, &ax, &ap));
  EXPECT_OK(tandem_predict(shared, &ax, &aq));
  for (int i = 0; i < N; ++i) EXPECT_NEAR(p[i][0], q[i][0], 1e-9);

  /* A rank that errs: every rank has the same status, and all go on. */
  const tandem_array right = mx;
  if (rank == ranks - 1) mx.dims[1] = 3;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_train(shared, &mx, &my, NULL, &together));
  if (rank != ranks - 1) EXPECT_MESSAGE("has failed: [train] x: expected shape");
  if (rank == ranks - 1) EXPECT_MESSAGE("[train] x: expected shape");
  mx = right;
  if (rank == 0) my.data = NULL;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_model_observe(shared, &mx, &my));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_backward(shared, &mx, &my, 1, NULL));
  my.data = y[first];
  EXPECT_OK(tandem_train(shared, &mx, &my, NULL, &together));
  EXPECT_OK(tandem_model_free(shared));
  EXPECT_OK(tandem_model_free(own));
}

/* Two inputs and two outputs, of which the last rank has most examples and the first none. */
static void trains_several_inputs_and_outputs(tandem_group* group) {
  static const char* kSeveral =
      "{\"inputs\": {\"a\": [2], \"b\": [1]}, \"dtype\": \"float64\", \"layers\": [\"concatenate\","
      " {\"type\": \"dense\", \"units\": 3, \"name\": \"d\"}, {\"type\": \"dense\", \"units\": 1, \"name\": \"e\"}],"
      " \"outputs\": [\"d\", \"e\"], \"optimizer\": {\"type\": \"sgd\", \"learning_rate\": 0.1}, \"loss\": [\"mse\", \"huber\"]}";
  static double a[N][2], b[N][1], d[N][3], e[N][1], p[N][3], q[N][1], r[N][3];
  double together, alone;
  tandem_model *shared, *own;
  for (int i = 0; i < N; ++i) {
    a[i][0] = b[i][0] = sin(i), a[i][1] = e[i][0] = cos(i);
    for (int k = 0; k < 3; ++k) d[i][k] = sin(i + k);
  }
  const tandem_array x[2] = {tandem_view(a, TANDEM_FLOAT64, 2, (int64_t[]){N, 2}), tandem_view(b, TANDEM_FLOAT64, 2, (int64_t[]){N, 1})};
  const tandem_array y[2] = {tandem_view(d, TANDEM_FLOAT64, 2, (int64_t[]){N, 3}), tandem_view(e, TANDEM_FLOAT64, 2, (int64_t[]){N, 1})};
  tandem_array results[2] = {tandem_view(p, TANDEM_FLOAT64, 2, (int64_t[]){N, 3}), tandem_view(q, TANDEM_FLOAT64, 2, (int64_t[]){N, 1})};
  tandem_array mx[2] = {x[0], x[1]}, my[2] = {y[0], y[1]};
  EXPECT_OK(tandem_set_seed(5));
  EXPECT_OK(tandem_model_create(kSeveral, NULL, &own));
  EXPECT_OK(tandem_set_seed(5 + rank));
  EXPECT_OK(tandem_model_create(kSeveral, group, &shared));
  const int first = rank == 0 ? 0 : rank - 1, count = rank == 0 ? 0 : rank == ranks - 1 ? N - first : 1;
  mx[0].data = a[first], mx[1].data = b[first], my[0].data = d[first], my[1].data = e[first];
  for (int i = 0; i < 2; ++i) mx[i].dims[0] = my[i].dims[0] = count;
  for (int step = 0; step < 5; ++step) {
    EXPECT_OK(tandem_train_multi(own, 2, x, 2, y, NULL, &alone));
    EXPECT_OK(tandem_train_multi(shared, 2, mx, 2, my, NULL, &together));
    EXPECT_NEAR(alone, together, 1e-10);
  }
  EXPECT_OK(tandem_predict_multi(own, 2, x, 2, results));
  memcpy(r, p, sizeof p);
  EXPECT_OK(tandem_predict_multi(shared, 2, x, 2, results));
  for (int i = 0; i < 3 * N; ++i) EXPECT_NEAR(((double*)p)[i], ((double*)r)[i], 1e-10);
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_train_multi(shared, 2, mx, rank == 0 ? 1 : 2, my, NULL, &together));
  EXPECT_OK(tandem_evaluate_multi(shared, 2, mx, 2, my, &together));
  EXPECT_OK(tandem_evaluate_multi(own, 2, x, 2, y, &alone));
  EXPECT_NEAR(alone, together, 1e-10);
  EXPECT_OK(tandem_model_free(shared));
  EXPECT_OK(tandem_model_free(own));
  if (ranks == 3) return;
  /* The bits of one process, if ranks have equally many. */
  EXPECT_OK(tandem_set_replica_invariant_parts(4));
  EXPECT_OK(tandem_set_seed(5));
  EXPECT_OK(tandem_model_create(kSeveral, NULL, &own));
  EXPECT_OK(tandem_set_seed(5));
  EXPECT_OK(tandem_model_create(kSeveral, group, &shared));
  const int part = N / ranks;
  mx[0].data = a[part * rank], mx[1].data = b[part * rank], my[0].data = d[part * rank], my[1].data = e[part * rank];
  for (int i = 0; i < 2; ++i) mx[i].dims[0] = my[i].dims[0] = part;
  for (int step = 0; step < 3; ++step) {
    EXPECT_OK(tandem_train_multi(own, 2, x, 2, y, NULL, &alone));
    EXPECT_OK(tandem_train_multi(shared, 2, mx, 2, my, NULL, &together));
    EXPECT(alone == together);
  }
  EXPECT_OK(tandem_model_free(shared));
  EXPECT_OK(tandem_model_free(own));
  EXPECT_OK(tandem_set_replica_invariant_parts(0));
}

/* A window that has samples on the last rank alone: as one process trains on them. */
static void trains_on_windows_of_any_size(tandem_group* group) {
  static double x[N][2], y[N][1], p[N][1], q[N][1];
  tandem_array ax = tandem_view(x, TANDEM_FLOAT64, 2, (int64_t[]){N, 2}), ay = tandem_view(y, TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
  tandem_array ap = tandem_view(p, TANDEM_FLOAT64, 2, (int64_t[]){N, 1}), aq = tandem_view(q, TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
  tandem_model* models[2];
  tandem_window* windows[2];
  tandem_window_options options = TANDEM_WINDOW_OPTIONS;
  tandem_budget budget = TANDEM_BUDGET;
  tandem_report report = TANDEM_REPORT;
  options.capacity = 30;
  options.batch = 5;
  options.seed = 2;
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(tandem_set_seed(5));
    EXPECT_OK(tandem_model_create(kPlain, i ? group : NULL, &models[i]));
    EXPECT_OK(tandem_window_create(models[i], &options, &windows[i]));
  }
  EXPECT_OK(tandem_window_train(windows[1], models[1], NULL, &report));
  EXPECT(report.steps == 0);
  for (int step = 0; step < 6; ++step) {
    for (int i = 0; i < N; ++i) x[i][0] = sin(i + N * step), x[i][1] = cos(2 * i * step), y[i][0] = x[i][0] - x[i][1];
    for (int i = 0; i < 2; ++i) {
      if (i && rank != ranks - 1) ax.dims[0] = ay.dims[0] = 0;
      EXPECT_OK(tandem_model_observe(models[i], &ax, &ay));
      EXPECT_OK(tandem_window_push(windows[i], &ax, &ay));
      ax.dims[0] = ay.dims[0] = N;
      budget.max_steps = 3;
      EXPECT_OK(tandem_window_train(windows[i], models[i], &budget, &report));
      EXPECT(report.steps == 3 && report.step == 3 * (step + 1));
    }
  }
  EXPECT_OK(tandem_predict(models[0], &ax, &ap));
  EXPECT_OK(tandem_predict(models[1], &ax, &aq));
  for (int i = 0; i < N; ++i) EXPECT_NEAR(p[i][0], q[i][0], 1e-9);

  /* Ranks with other budgets, and a rank with a wrong handle: all have the same status. */
  budget.max_steps = 1 + rank;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_window_train(windows[1], models[1], &budget, &report));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT,
                tandem_window_train(rank == 0 ? NULL : windows[1], models[1], NULL, &report));
  budget.max_steps = 0;
  budget.max_seconds = 0.02 * (1 + 0 * rank);
  EXPECT_OK(tandem_window_train(windows[1], models[1], &budget, &report));
  {
    double steps[1] = {(double)report.steps};
    tandem_array a = tandem_view(steps, TANDEM_FLOAT64, 1, (int64_t[]){1});
    EXPECT_OK(tandem_group_sum(group, &a));
    EXPECT(report.steps > 0 && steps[0] == (double)ranks * (double)report.steps);
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(tandem_window_free(windows[i]));
    EXPECT_OK(tandem_model_free(models[i]));
  }
}

/* In the background, over the group; then restarted from files: the same numbers. */
static void trains_in_the_background_and_restarts(tandem_group* group) {
  static double x[N][2], y[N][1], p[2][N][1];
  char folder[64];
  snprintf(folder, sizeof folder, "group_cycles_%d", ranks);
  for (int round = 0; round < 2; ++round) {
    tandem_array ax = tandem_view(x, TANDEM_FLOAT64, 2, (int64_t[]){N, 2}), ay = tandem_view(y, TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
    tandem_array ap = tandem_view(p[round], TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
    tandem_model* model;
    tandem_window* window;
    tandem_trainer* trainer;
    tandem_report report = TANDEM_REPORT;
    int64_t cycle = -1;
    EXPECT_OK(tandem_set_seed(5));
    EXPECT_OK(tandem_model_create(kPlain, group, &model));
    EXPECT_OK(tandem_window_create(model, NULL, &window));
    if (round) EXPECT_OK(tandem_checkpoint_read(folder, -1, &model, 1, &window, 1, &cycle));
    EXPECT(cycle == (round ? 5 : -1));
    for (int part = (int)cycle + 1; part < 12; part += 6) {
      EXPECT_OK(tandem_trainer_start(model, window, NULL, &trainer));
      for (int step = part; step < part + 6; ++step) {
        for (int i = 0; i < N; ++i) x[i][0] = sin(i + N * step + rank), x[i][1] = cos(2 * i * step), y[i][0] = x[i][0] - x[i][1];
        EXPECT_OK(tandem_model_observe(model, &ax, &ay));
        EXPECT_OK(tandem_window_push(window, &ax, &ay));
        EXPECT_OK(tandem_trainer_update(trainer, &report));
        EXPECT_OK(tandem_predict(model, &ax, &ap));
      }
      EXPECT_OK(tandem_trainer_stop(trainer, &report));
      if (part == 0) EXPECT_OK(tandem_checkpoint_write(folder, 5, &model, 1, &window, 1));
    }
    EXPECT_OK(tandem_predict(model, &ax, &ap));
    EXPECT_OK(tandem_window_free(window));
    EXPECT_OK(tandem_model_free(model));
  }
  EXPECT(memcmp(p[0], p[1], sizeof p[0]) == 0);
}

/* Moving averages are rank 0's everywhere, and a file that one rank writes is loaded by all. */
static void has_one_model_on_all_ranks(tandem_group* group) {
  static double x[N][2], y[N][1], p[N][1];
  double loss, total[N];
  tandem_model *model, *loaded;
  char path[64];
  for (int i = 0; i < N; ++i) x[i][0] = sin(i + rank), x[i][1] = cos(i * rank), y[i][0] = x[i][0] - x[i][1];
  tandem_array ax = tandem_view(x, TANDEM_FLOAT64, 2, (int64_t[]){N, 2}), ay = tandem_view(y, TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
  tandem_array ap = tandem_view(p, TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
  EXPECT_OK(tandem_model_create(kModel, group, &model));
  for (int step = 0; step < 5; ++step) EXPECT_OK(tandem_train(model, &ax, &ay, NULL, &loss));
  snprintf(path, sizeof path, "group_model_%d", ranks);
  if (rank == 0) EXPECT_OK(tandem_model_save(model, path));
  MPI_Barrier(MPI_COMM_WORLD);
  EXPECT_OK(tandem_model_load(path, group, &loaded));
  for (int i = 0; i < N; ++i) x[i][0] = i, x[i][1] = -i;
  for (int which = 0; which < 2; ++which) {
    EXPECT_OK(tandem_predict(which ? loaded : model, &ax, &ap));
    MPI_Allreduce(p, total, N, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    EXPECT(memcmp(p, total, sizeof total) == 0);
  }
  EXPECT_OK(tandem_model_free(loaded));
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) remove(path);
  EXPECT_STATUS(TANDEM_NOT_FOUND, tandem_model_load(path, group, &loaded));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_model_create(rank == 0 ? kModel : kPlain, group, &loaded));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_model_create(rank == 0 ? NULL : kPlain, group, &loaded));
  EXPECT_OK(tandem_model_free(model));
}

int main(int argc, char** argv) {
  int32_t r, n, level = argc > 1 ? atoi(argv[1]) : MPI_THREAD_SINGLE;
  tandem_group *group, *again;
  tandem_model* as_model;
  MPI_Init_thread(&argc, &argv, level, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm own;
  MPI_Comm_dup(MPI_COMM_WORLD, &own);
  EXPECT_OK(tandem_group_from_mpi(own, &group));
  MPI_Comm_free(&own); /* the group has a copy */
  EXPECT_OK(tandem_group_rank(group, &r, &n));
  EXPECT(r == rank && n == ranks);
  sums(group);
  EXPECT_OK(tandem_group_from_mpi(MPI_COMM_WORLD, &again));
  trains_as_one_process(group);
  has_the_bits_of_one_process(group);
  trains_several_inputs_and_outputs(group);
  has_one_model_on_all_ranks(again);
  trains_on_windows_of_any_size(group);
  trains_in_the_background_and_restarts(again);
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_predict((tandem_model*)group, NULL, NULL));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_model_create(kPlain, (tandem_group*)(intptr_t)-8, &as_model));
  EXPECT_OK(tandem_group_free(group));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_group_free(group));
  if (argc > 2) { /* freed after MPI_Finalize, or never */
    MPI_Finalize();
    if (strcmp(argv[2], "late") == 0) EXPECT_OK(tandem_group_free(again));
    return end_of_checks();
  }
  EXPECT_OK(tandem_group_free(again));
  MPI_Finalize();
  return end_of_checks();
}
