/* One process: windows, budgets, restart, training in the background. */
#include <stdint.h>
#include <stdlib.h>

#include "check.h"

enum { N = 10 };

static const char* kModel =
    "{\"inputs\": [2], \"normalize\": {\"per\": \"feature\"}, \"layers\": [{\"type\": \"dense\", \"units\": 6,"
    " \"activation\": \"tanh\"}, {\"type\": \"dropout\", \"rate\": 0.2}, {\"type\": \"dense\", \"units\": 1}],"
    " \"optimizer\": {\"type\": \"adam\", \"learning_rate\": 0.01}, \"loss\": \"mse\"}";

static double x[N][2], y[N][1];
static tandem_array ax, ay;

/* The samples of a step of the program. */
static void advance(int step) {
  for (int i = 0; i < N; ++i) {
    x[i][0] = sin(1.0 + 0.7 * (N * step + i));
    x[i][1] = 1e6 + cos(2.9 * (N * step + i));
    y[i][0] = 3 + x[i][0] * (x[i][1] - 1e6);
  }
}

typedef struct program {
  tandem_model* model;
  tandem_window* window;
} program;

static program started(void) {
  program p = {NULL, NULL};
  tandem_window_options options = TANDEM_WINDOW_OPTIONS;
  options.capacity = 50;
  options.batch = 8;
  options.holdout = 0.1;
  options.replace = TANDEM_REPLACE_RANDOM;
  options.seed = 4;
  EXPECT_OK(tandem_set_seed(7));
  EXPECT_OK(tandem_model_create(kModel, NULL, &p.model));
  EXPECT_OK(tandem_window_create(p.model, &options, &p.window));
  return p;
}

static void ended(program p) {
  EXPECT_OK(tandem_model_free(p.model)); /* in any order */
  EXPECT_OK(tandem_window_free(p.window));
}

static double train(program p, int step) {
  tandem_report report = TANDEM_REPORT;
  tandem_budget budget = TANDEM_BUDGET;
  budget.max_steps = 3;
  advance(step);
  EXPECT_OK(tandem_model_observe(p.model, &ax, &ay));
  EXPECT_OK(tandem_window_push(p.window, &ax, &ay));
  EXPECT_OK(tandem_window_train(p.window, p.model, &budget, &report));
  EXPECT(report.steps == 3 && report.seconds > 0 && isfinite(report.loss));
  return report.loss;
}

static void windows_have_budgets_and_counts(void) {
  program p = started();
  int64_t samples = -1, pushed = -1;
  double step = 0, first = 0, last = 0;
  tandem_report report = TANDEM_REPORT;
  tandem_budget budget = TANDEM_BUDGET;
  EXPECT_OK(tandem_window_train(p.window, p.model, NULL, &report));
  EXPECT(report.steps == 0 && isnan(report.loss));
  for (int i = 0; i < 100; ++i) *(i == 0 ? &first : &last) = train(p, i);
  EXPECT(last < first);
  EXPECT_OK(tandem_window_count(p.window, &samples, &pushed));
  EXPECT(samples == 50 && pushed == 1000);
  EXPECT_OK(tandem_window_count(p.window, NULL, NULL));
  budget.max_steps = 0;
  budget.max_seconds = 1e-9;
  EXPECT_OK(tandem_window_train(p.window, p.model, &budget, &report));
  EXPECT(report.steps == 1 && report.step == 301 && isfinite(report.holdout_loss));
  EXPECT_OK(tandem_model_get(p.model, "step", &step));
  EXPECT(step == 301);
  budget.max_seconds = 0;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_window_train(p.window, p.model, &budget, &report));
  EXPECT_MESSAGE("[window_train] expected a budget of steps or seconds above 0");
  ax.dims[0] = ay.dims[0] = 0; /* pushing and observing nothing */
  EXPECT_OK(tandem_window_push(p.window, &ax, &ay));
  EXPECT_OK(tandem_model_observe(p.model, &ax, &ay));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_train(p.model, &ax, &ay, NULL, NULL));
  EXPECT_MESSAGE("[train] x: expected at least one example, got none");
  ax.dims[0] = ay.dims[0] = N;
  ended(p);
}

/* A program that was built with a header that ends earlier, and one with a later one. */
static void structures_have_sizes(void) {
  program p = started();
  struct {
    tandem_report known;
    double later[4];
  } later = {TANDEM_REPORT, {1, 2, 3, 4}};
  struct {
    size_t size;
    int64_t steps;
    int64_t untouched;
  } earlier = {2 * sizeof(int64_t), -1, -7};
  tandem_budget budget = TANDEM_BUDGET;
  tandem_window_options options = {sizeof(size_t), 0, 0, 0, 0, 0, 0, 0}; /* all by default */
  tandem_window* window;
  train(p, 0);
  later.known.size = sizeof later;
  EXPECT_OK(tandem_window_train(p.window, p.model, &budget, &later.known));
  EXPECT(later.known.steps == 1 && later.later[0] == 1 && later.known.size == sizeof later);
  EXPECT_OK(tandem_window_train(p.window, p.model, &budget, (tandem_report*)&earlier));
  EXPECT(earlier.steps == 1 && earlier.untouched == -7);
  EXPECT_OK(tandem_window_create(p.model, &options, &window));
  EXPECT_OK(tandem_window_free(window));
  options.size = 0;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_window_create(p.model, &options, &window));
  EXPECT_MESSAGE("TANDEM_WINDOW_OPTIONS initializes, got a size of 0");
  budget.size = (size_t)-1;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_window_train(p.window, p.model, &budget, NULL));
  later.known.size = 1;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_window_train(p.window, p.model, NULL, &later.known));
  ended(p);
}

/* A state of bytes or of a folder: the same numbers as without a restart. */
static void goes_on_after_a_restart(void) {
  program p = started(), by_bytes, by_files;
  size_t size = 0;
  char* bytes;
  double losses[10];
  int64_t cycle = -5;
  for (int i = 0; i < 5; ++i) train(p, i);
  EXPECT_OK(tandem_state_size(p.model, p.window, &size));
  bytes = malloc(size + 1);
  bytes[size] = 'z';
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_state_get(p.model, p.window, bytes, size - 1));
  EXPECT_OK(tandem_state_get(p.model, p.window, bytes, size));
  EXPECT(bytes[size] == 'z');
  EXPECT_OK(tandem_checkpoint_write("online_cycles", 5, &p.model, 1, &p.window, 1));
  for (int i = 0; i < 10; ++i) losses[i] = train(p, 5 + i);
  by_bytes = started();
  EXPECT_OK(tandem_state_set(by_bytes.model, by_bytes.window, bytes, size));
  for (int i = 0; i < 10; ++i) EXPECT(train(by_bytes, 5 + i) == losses[i]);
  by_files = started();
  EXPECT_OK(tandem_checkpoint_read("online_cycles", -1, &by_files.model, 1, &by_files.window, 1, &cycle));
  EXPECT(cycle == 5);
  for (int i = 0; i < 10; ++i) EXPECT(train(by_files, 5 + i) == losses[i]);
  EXPECT_STATUS(TANDEM_NOT_FOUND,
                tandem_checkpoint_read("online_cycles", 4, &p.model, 1, &p.window, 1, NULL));
  EXPECT_STATUS(TANDEM_NOT_FOUND, tandem_checkpoint_read("no folder", -1, &p.model, 1, NULL, 0, NULL));
  EXPECT_STATUS(TANDEM_DATA_LOSS, tandem_state_set(p.model, p.window, bytes, size / 2));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_state_set(NULL, NULL, bytes, size));
  {
    tandem_model* twice[2] = {p.model, p.model};
    EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_checkpoint_write("online_cycles", 6, twice, 2, NULL, 0));
    EXPECT_MESSAGE("expected each model and window once");
  }
  free(bytes);
  ended(p);
  ended(by_bytes);
  ended(by_files);
}

static void trains_in_the_background(void) {
  double predicted[2][20][N];
  for (int round = 0; round < 2; ++round) {
    program p = started();
    tandem_trainer* trainer;
    tandem_trainer_options options = TANDEM_TRAINER_OPTIONS;
    tandem_report report = TANDEM_REPORT;
    tandem_array ap;
    double rate;
    options.max_lag = 2;
    options.steps_per_push = 2;
    EXPECT_OK(tandem_trainer_start(p.model, p.window, &options, &trainer));
    for (int step = 0; step < 20; ++step) {
      volatile double solver = 0;
      advance(step);
      EXPECT_OK(tandem_model_observe(p.model, &ax, &ay));
      EXPECT_OK(tandem_window_push(p.window, &ax, &ay));
      for (int i = 0; i < 200000 * round; ++i) solver += i;
      EXPECT_OK(tandem_trainer_update(trainer, &report));
      EXPECT(report.step == (step < 2 ? 0 : 2 * (step - 1)));
      ap = tandem_view(predicted[round][step], TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
      EXPECT_OK(tandem_predict(p.model, &ax, &ap));
    }
    EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_train(p.model, &ax, &ay, NULL, NULL));
    EXPECT_MESSAGE("[train] a trainer trains this model: stop it before");
    EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_window_train(p.window, p.model, NULL, NULL));
    EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_window_count(p.window, NULL, NULL));
    EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_model_set(p.model, "learning_rate", 0.1));
    EXPECT_STATUS(TANDEM_FAILED_PRECONDITION,
                  tandem_checkpoint_write("online_cycles", 7, &p.model, 1, &p.window, 1));
    EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_trainer_start(p.model, p.window, NULL, &trainer));
    EXPECT_OK(tandem_model_get(p.model, "learning_rate", &rate));
    EXPECT_OK(tandem_trainer_stop(trainer, &report));
    EXPECT(report.step == 40);
    EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_trainer_stop(trainer, &report));
    EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_trainer_update(trainer, &report));
    train(p, 20);
    ended(p);
  }
  EXPECT(memcmp(predicted[0], predicted[1], sizeof predicted[0]) == 0);
  EXPECT(memcmp(predicted[0][2], predicted[0][19], sizeof predicted[0][0]) != 0);
}

int main(void) {
  ax = tandem_view(x, TANDEM_FLOAT64, 2, (int64_t[]){N, 2});
  ay = tandem_view(y, TANDEM_FLOAT64, 2, (int64_t[]){N, 1});
  EXPECT_OK(tandem_set_threads(1));
  windows_have_budgets_and_counts();
  structures_have_sizes();
  goes_on_after_a_restart();
  trains_in_the_background();
  return end_of_checks();
}
