/* Every function with every argument wrong in every way: a status and a message, and the model goes on. */
#include "check.h"

enum { ARRAYS = 14, HANDLES = 5, STRINGS = 4 };

static const char* kModel =
    "{\"inputs\": [3], \"normalize\": true, \"layers\": [{\"type\": \"dense\", \"units\": 2, \"name\": \"d\"}],"
    " \"optimizer\": \"sgd\", \"loss\": \"mse\"}";

static double memory[64];

/* Descriptions of examples of `size` numbers; the first alone is right. */
static const tandem_array* arrays(int which, int64_t size) {
  static tandem_array all[ARRAYS];
  tandem_array* a = &all[which];
  *a = tandem_view(memory, TANDEM_FLOAT64, 2, (int64_t[]){4, size});
  switch (which) {
    case 0: break;
    case 1: return NULL;
    case 2: a->data = NULL; break;
    case 3: a->rank = 1; break;
    case 4: a->rank = 3; a->dims[2] = 1; break;
    case 5: a->rank = -1; break;
    case 6: a->rank = TANDEM_MAX_RANK + 1; break;
    case 7: a->dtype = 0; break;
    case 8: a->dtype = 99; break;
    case 9: a->dims[1] = size + 1; break;
    case 10: a->dims[0] = -4; break;
    case 11: a->dims[0] = INT64_MAX; break;
    case 12: a->strides[0] = INT64_MIN; a->strides[1] = 1; break;
    default: *a = tandem_view(memory, TANDEM_FLOAT64, 2, NULL); break;
  }
  return a;
}

static void* freed;
static void* of_other_kind;

static void* handles(int which, void* right) {
  void* all[HANDLES] = {right, NULL, freed, of_other_kind, (void*)(intptr_t)0x7fffffff};
  return all[which];
}

static const char* strings(int which, const char* right) {
  const char* all[STRINGS] = {right, NULL, "", "no such name/\xff"};
  return all[which];
}

/* A call is an error unless all its arguments are the first of their kind. */
static void expect_refused(tandem_status status, int wrong, const char* call, int line) {
  if ((status != TANDEM_OK) == (wrong != 0) && (tandem_last_error()[0] != '\0') == (wrong != 0)) return;
  ++failures;
  printf("misuse.c:%d: %s: %s (%s)\n", line, call, tandem_status_name(status), tandem_last_error());
}
#define REFUSED(wrong, call) expect_refused(call, wrong, #call, __LINE__)

static void models(tandem_model* model) {
  tandem_model* made;
  tandem_array spec;
  double value;
  for (int h = 0; h < HANDLES; ++h) {
    tandem_model* m = handles(h, model);
    for (int x = 0; x < ARRAYS; ++x) {
      for (int y = 0; y < ARRAYS; ++y) {
        const tandem_array xs = x == 1 ? (tandem_array){0} : *arrays(x, 3);
        const tandem_array* ax = x == 1 ? NULL : &xs;
        tandem_array* ay = (tandem_array*)arrays(y, 2);
        REFUSED(h | x | y, tandem_train(m, ax, ay, NULL, &value));
        REFUSED(h | x | y, tandem_train(m, ax, ay, NULL, NULL));
        REFUSED(1, tandem_train(m, ax, ay, ax ? ax : ay, &value)); /* a weight per number */
        REFUSED(h | x | y, tandem_evaluate(m, ax, ay, &value));
        REFUSED(h | x | y, tandem_model_observe(m, ax, ay));
        REFUSED(h | x | y, tandem_predict(m, ax, ay));
        REFUSED(h | x | y, tandem_backward(m, ax, ay, 0, NULL));
        REFUSED(h | x | y, tandem_backward(m, ax, ay, 1, NULL));
        for (int i = 0; i < 64; ++i) memory[i] = i / 64.0;
      }
      tandem_array inputs = *arrays(0, 3), results = tandem_view(memory + 32, TANDEM_FLOAT64, 2, (int64_t[]){4, 2});
      if (x != 1) REFUSED(h | x, tandem_backward(m, &inputs, &results, 0, (tandem_array*)arrays(x, 3)));
      for (int s = 0; s < STRINGS; ++s) {
        tandem_array* kernel = (tandem_array*)arrays(x, 2);
        if (kernel && x == 0) kernel->dims[0] = 3;
        REFUSED(h | x | s, tandem_model_read(m, strings(s, "d/kernel"), kernel));
        REFUSED(h | x | s, tandem_model_write(m, strings(s, "d/kernel"), kernel));
      }
    }
    for (int s = 0; s < STRINGS; ++s) {
      REFUSED(h | s, tandem_model_get(m, strings(s, "step"), &value));
      REFUSED(1, tandem_model_get(m, strings(s, "step"), NULL));
      REFUSED(h | s, tandem_model_set(m, strings(s, "learning_rate"), 0.01));
      REFUSED(1, tandem_model_set(m, strings(s, "learning_rate"), NAN));
      REFUSED(1, tandem_model_save(m, s == 0 ? "no such folder/file" : strings(s, "")));
    }
    for (int output = -1; output < 3; ++output) {
      REFUSED(h != 0 || output < 0 || output > 1, tandem_model_spec(m, output, &spec));
      REFUSED(1, tandem_model_spec(m, output, NULL));
    }
    if (h > 1) {
      REFUSED(1, tandem_model_free(m));
      REFUSED(1, tandem_model_create(kModel, handles(h, NULL), &made));
      REFUSED(1, tandem_model_load("none", handles(h, NULL), &made));
    }
  }
  for (int s = 0; s < STRINGS; ++s) {
    REFUSED(s, tandem_model_create(strings(s, kModel), NULL, &made));
    if (s == 0) EXPECT_OK(tandem_model_free(made));
    REFUSED(1, tandem_model_create(strings(s, kModel), NULL, NULL));
    REFUSED(1, tandem_model_load(strings(s, "none"), NULL, &made));
    REFUSED(1, tandem_model_load(strings(s, "none"), NULL, NULL));
  }
}

/* Right calls have the first of each kind. */
static void windows(tandem_model* model) {
  tandem_window *window, *made;
  tandem_window_options options = TANDEM_WINDOW_OPTIONS;
  tandem_budget budget = TANDEM_BUDGET;
  tandem_report report = TANDEM_REPORT;
  tandem_trainer* trainer;
  size_t size;
  int64_t cycle;
  char bytes[16] = {0};
  options.capacity = options.batch = 4;
  EXPECT_OK(tandem_window_create(model, &options, &window));
  REFUSED(1, tandem_window_create(model, &options, NULL));
  for (int h = 0; h < HANDLES; ++h) {
    tandem_model* m = handles(h, model);
    tandem_window* w = handles(h, window);
    if (h > 0) REFUSED(1, tandem_window_create(m, &options, &made));
    for (int a = 0; a < ARRAYS; ++a) {
      const tandem_array xs = a == 1 ? (tandem_array){0} : *arrays(a, 3), ys = *arrays(0, 2);
      const tandem_array* ax = a == 1 ? NULL : &xs;
      REFUSED(h | a, tandem_window_push(w, ax, &ys));
      REFUSED(1, tandem_window_push(w, &ys, ax));
    }
    REFUSED(h != 0, tandem_window_train(window, m, &budget, &report));
    REFUSED(h != 0, tandem_window_train(w, model, &budget, &report));
    REFUSED(h != 0, tandem_window_count(w, NULL, NULL));
    REFUSED(h != 0, tandem_state_size(h == 1 ? NULL : m, h == 1 ? NULL : w, &size));
    REFUSED(1, tandem_state_size(m, w, NULL));
    REFUSED(1, tandem_state_get(m, w, NULL, 16));
    REFUSED(1, tandem_state_get(m, w, bytes, sizeof bytes));
    REFUSED(1, tandem_state_set(m, w, NULL, 16));
    REFUSED(1, tandem_state_set(m, w, bytes, sizeof bytes));
    REFUSED(1, tandem_trainer_start(m, w, NULL, NULL));
    if (h > 0) {
      REFUSED(1, tandem_trainer_start(m, window, NULL, &trainer));
      REFUSED(1, tandem_trainer_start(model, w, NULL, &trainer));
      REFUSED(1, tandem_trainer_update((tandem_trainer*)m, &report));
      REFUSED(1, tandem_trainer_stop((tandem_trainer*)m, &report));
      REFUSED(1, tandem_checkpoint_write("misuse_cycles", 0, &m, 1, NULL, 0));
      REFUSED(1, tandem_checkpoint_write("misuse_cycles", 0, &model, 1, &w, 1));
      REFUSED(1, tandem_checkpoint_read("misuse_cycles", 0, &m, 1, NULL, 0, &cycle));
      REFUSED(h > 1, tandem_window_free(h == 1 ? NULL : w));
    }
  }
  REFUSED(1, tandem_checkpoint_write(NULL, 0, &model, 1, NULL, 0));
  REFUSED(1, tandem_checkpoint_write("misuse_cycles", -1, &model, 1, NULL, 0));
  REFUSED(1, tandem_checkpoint_write("misuse_cycles", 0, NULL, 1, NULL, 0));
  REFUSED(1, tandem_checkpoint_write("misuse_cycles", 0, &model, 0, NULL, 0));
  REFUSED(1, tandem_checkpoint_write("misuse_cycles", 0, &model, 1, NULL, 1));
  REFUSED(1, tandem_checkpoint_read("misuse_cycles", -2, &model, 1, NULL, 0, &cycle));
  REFUSED(1, tandem_checkpoint_read(NULL, -1, &model, 1, NULL, 0, &cycle));
  EXPECT_OK(tandem_window_free(window));
  REFUSED(1, tandem_window_free(window));
}

static void groups(void) {
  int32_t rank, size;
  tandem_group* group;
  for (int h = 1; h < HANDLES; ++h) {
    tandem_group* g = handles(h, NULL);
    REFUSED(1, tandem_group_rank(g, &rank, &size));
    REFUSED(h > 1, tandem_group_free(g));
    for (int a = 0; a < ARRAYS; ++a) REFUSED(1, tandem_group_sum(g, (tandem_array*)arrays(a, 2)));
  }
  REFUSED(1, tandem_group_create(NULL, &group));
  REFUSED(1, tandem_group_create(NULL, NULL));
}

static void order_of_calls(void) {
  tandem_model* model;
  tandem_array x = tandem_view(memory, TANDEM_FLOAT64, 2, (int64_t[]){4, 3});
  tandem_array y = tandem_view(memory + 32, TANDEM_FLOAT64, 2, (int64_t[]){4, 2});
  double value;
  EXPECT_OK(tandem_model_create("{\"inputs\": [3], \"layers\": [{\"type\": \"dense\", \"units\": 2}]}", NULL, &model));
  EXPECT_OK(tandem_predict(model, &x, &y));
  EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_train(model, &x, &y, NULL, &value));
  EXPECT_MESSAGE("whose definition has \"optimizer\" and \"loss\"");
  EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_evaluate(model, &x, &y, &value));
  EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_backward(model, &x, &y, 1, NULL));
  EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_model_observe(model, &x, &y));
  EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_model_get(model, "step", &value));
  EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_model_set(model, "learning_rate", 0.1));
  y.strides[1] = 1; /* all rows in one place */
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_predict(model, &x, &y));
  EXPECT_MESSAGE("[predict] y: expected strides that keep elements apart");
  y = tandem_view(memory, TANDEM_INT64, 2, (int64_t[]){4, 2});
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_predict(model, &x, &y));
  x.dims[0] = 0;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_predict(model, &x, &y));
  EXPECT_MESSAGE("[predict] x: expected at least one example");
  EXPECT_OK(tandem_model_free(model));
}

static int handled = 0;
static void count_errors(tandem_status status, const char* message, void* data) {
  if (status == TANDEM_INVALID_ARGUMENT && message[0] == '[' && data == &handled) ++handled;
}

int main(void) {
  tandem_model* model;
  EXPECT(tandem_c_api() >= TANDEM_C_API);
  EXPECT(strchr(tandem_version(), '.') != NULL);
  EXPECT(strcmp(tandem_status_name(TANDEM_DATA_LOSS), "DATA_LOSS") == 0);
  EXPECT(strcmp(tandem_status_name(-1), "UNKNOWN") == 0 && strcmp(tandem_status_name(14), "UNKNOWN") == 0);
  EXPECT(tandem_last_error()[0] == '\0');
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_set_threads(-1));
  EXPECT_OK(tandem_set_threads(1));
  EXPECT_OK(tandem_set_seed(-1));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_set_replica_invariant_parts(3));
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_model_create("{\"inputs\": [9], \"layers\": [\"danse\"]}", NULL, &model));
  EXPECT_MESSAGE("[model_from_json] layers[0].type: [type] expected one of: dense");
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT,
                tandem_model_create("{\"inputs\": [9], \"normalize\": {\"per\": \"row\"}, \"layers\": [\"flatten\"]}", NULL, &model));
  EXPECT_MESSAGE("normalize.per: expected \"feature\", \"channel\" or \"all\", got \"row\"");
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT,
                tandem_model_create("{\"inputs\": [9], \"normalize\": {\"freeze_after\": -1}, \"layers\": [\"flatten\"]}", NULL, &model));
  EXPECT_MESSAGE("normalize.freeze_after: expected at least 0, got -1");
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT,
                tandem_model_create("{\"inputs\": [9], \"normalize\": {\"pre\": \"all\"}, \"layers\": [\"flatten\"]}", NULL, &model));
  EXPECT_MESSAGE("normalize.pre: expected one of");
  EXPECT_OK(tandem_model_create(kModel, NULL, &model));
  freed = model;
  EXPECT_OK(tandem_model_free(model));
  EXPECT_OK(tandem_model_free(NULL));
  EXPECT_OK(tandem_group_free(NULL));
  of_other_kind = memory;
  EXPECT_OK(tandem_model_create(kModel, NULL, &model));
  models(model);
  windows(model);
  groups();
  order_of_calls();
  tandem_set_error_handler(count_errors, &handled);
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_model_free(freed));
  tandem_set_error_handler(NULL, NULL);
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_model_free(freed));
  EXPECT(handled == 1);
  EXPECT_OK(tandem_model_free(model));
  return end_of_checks();
}
