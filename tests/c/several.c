/* Models of several inputs and outputs. */
#include <stdlib.h>

#include "check.h"

enum { N = 5, H = 4, W = 4, FORCES = 2, CLASSES = 3 };

static const char* kModel =
    "{\"inputs\": {\"field\": [4, 4, 1], \"numbers\": [2]}, \"dtype\": \"float64\", \"layers\": ["
    " {\"type\": \"conv2d\", \"filters\": 2, \"kernel_size\": 3, \"activation\": \"tanh\", \"inputs\": \"field\"},"
    " {\"type\": \"flatten\", \"name\": \"flat\"},"
    " {\"type\": \"concatenate\", \"inputs\": [\"flat\", \"numbers\"], \"name\": \"both\"},"
    " {\"type\": \"dense\", \"units\": 2, \"name\": \"force\"},"
    " {\"type\": \"dense\", \"units\": 3, \"name\": \"kind\", \"inputs\": \"both\"}],"
    " \"outputs\": [\"force\", \"kind\"], \"optimizer\": {\"type\": \"sgd\", \"learning_rate\": 0.125},"
    " \"loss\": [\"mse\", {\"type\": \"sparse_categorical_crossentropy\", \"from_logits\": true}], \"loss_weights\": [1, 0.5]}";

static double field[N][H][W], numbers[N][2], force[N][FORCES], p[N][FORCES], q[N][CLASSES];
static int32_t kind[N];
static tandem_array x[2], y[2], results[2];

static void make_arrays(void) {
  for (int n = 0; n < N; ++n) {
    for (int i = 0; i < H * W; ++i) field[n][i / W][i % W] = sin(1 + 0.7 * (n * H * W + i));
    for (int i = 0; i < 2; ++i) numbers[n][i] = cos(2 + n * 2 + i), force[n][i] = sin(3 + n * i);
    kind[n] = n % CLASSES;
  }
  x[0] = tandem_view(field, TANDEM_FLOAT64, 4, (int64_t[]){N, H, W, 1});
  x[1] = tandem_view(numbers, TANDEM_FLOAT64, 2, (int64_t[]){N, 2});
  y[0] = tandem_view(force, TANDEM_FLOAT64, 2, (int64_t[]){N, FORCES});
  y[1] = tandem_view(kind, TANDEM_INT32, 1, (int64_t[]){N});
  results[0] = tandem_view(p, TANDEM_FLOAT64, 2, (int64_t[]){N, FORCES});
  results[1] = tandem_view(q, TANDEM_FLOAT64, 2, (int64_t[]){N, CLASSES});
}

/* The loss of the definition, of the predictions. */
static double loss_by_hand(const tandem_model* model) {
  double squares = 0, entropies = 0;
  EXPECT_OK(tandem_predict_multi(model, 2, x, 2, results));
  for (int n = 0; n < N; ++n) {
    double sum = 0;
    for (int i = 0; i < FORCES; ++i) squares += (p[n][i] - force[n][i]) * (p[n][i] - force[n][i]);
    for (int i = 0; i < CLASSES; ++i) sum += exp(q[n][i]);
    entropies += log(sum) - q[n][kind[n]];
  }
  return squares / (N * FORCES) + 0.5 * entropies / N;
}

/* A step follows the gradient of the loss with respect to a weight behind both outputs. */
static void follows_the_gradient(tandem_model* model) {
  static double kernel[3][3][2];
  double loss;
  tandem_array ak = tandem_view(kernel, TANDEM_FLOAT64, 4, (int64_t[]){3, 3, 1, 2});
  const double small = 1e-5;
  double changes[18];
  EXPECT_OK(tandem_model_read(model, "conv2d/kernel", &ak));
  for (int i = 0; i < 18; ++i) {
    double* element = (double*)kernel + i;
    const double kept = *element;
    double sides[2];
    for (int side = 0; side < 2; ++side) {
      *element = kept + (side ? small : -small);
      EXPECT_OK(tandem_model_write(model, "conv2d/kernel", &ak));
      sides[side] = loss_by_hand(model);
    }
    *element = kept;
    changes[i] = kept - 0.125 * (sides[1] - sides[0]) / (2 * small);
  }
  EXPECT_OK(tandem_model_write(model, "conv2d/kernel", &ak));
  const double expected = loss_by_hand(model);
  EXPECT_OK(tandem_evaluate_multi(model, 2, x, 2, y, &loss));
  EXPECT_NEAR(loss, expected, 1e-12);
  EXPECT_OK(tandem_train_multi(model, 2, x, 2, y, NULL, &loss));
  EXPECT_NEAR(loss, expected, 1e-12);
  EXPECT_OK(tandem_model_read(model, "conv2d/kernel", &ak));
  for (int i = 0; i < 18; ++i) EXPECT_NEAR(((double*)kernel)[i], changes[i], 1e-8);
  const double first = loss;
  for (int step = 0; step < 300; ++step) EXPECT_OK(tandem_train_multi(model, 2, x, 2, y, NULL, &loss));
  EXPECT(loss < 0.3 * first);
  double weight[N] = {0}, nothing;
  const tandem_array aw = tandem_view(weight, TANDEM_FLOAT64, 1, (int64_t[]){N});
  EXPECT_OK(tandem_train_multi(model, 2, x, 2, y, &aw, &nothing));
  EXPECT(nothing == 0);
}

static void goes_on_from_a_file(tandem_model* model) {
  static double before[N][FORCES];
  double loss, same;
  tandem_model* loaded = NULL;
  EXPECT_OK(tandem_model_save(model, "several_model"));
  EXPECT_OK(tandem_model_load("several_model", NULL, &loaded));
  remove("several_model");
  EXPECT_OK(tandem_train_multi(model, 2, x, 2, y, NULL, &loss));
  EXPECT_OK(tandem_train_multi(loaded, 2, x, 2, y, NULL, &same));
  EXPECT(loss == same);
  EXPECT_OK(tandem_predict_multi(model, 2, x, 2, results));
  memcpy(before, p, sizeof p);
  EXPECT_OK(tandem_predict_multi(loaded, 2, x, 2, results));
  EXPECT(memcmp(before, p, sizeof p) == 0);
  EXPECT_OK(tandem_model_free(loaded));
}

static void names_what_is_wrong(tandem_model* model) {
  double loss;
  tandem_array spec, wrong[2] = {x[0], x[1]};
  tandem_window* window;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_train(model, x, y, NULL, &loss));
  EXPECT_MESSAGE("[train] x: expected the 2 arrays of the model's definition, got 1");
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_predict_multi(model, 2, x, 3, results));
  EXPECT_MESSAGE("[predict] y: expected the 2 arrays of the model's definition, got 3");
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_predict_multi(model, 2, NULL, 2, results));
  EXPECT_MESSAGE("[predict] x: expected the 2 arrays of the model's definition, got null");
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_evaluate_multi(model, -1, x, 2, y, &loss));
  wrong[1].dims[0] = N - 1;
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_train_multi(model, 2, wrong, 2, y, NULL, &loss));
  EXPECT_MESSAGE("[train] x[1]: expected 5 examples as in x[0], got 4");
  wrong[1] = x[0];
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_train_multi(model, 2, wrong, 2, y, NULL, &loss));
  EXPECT_MESSAGE("[train] x[1]: expected shape");
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_predict_multi(model, 2, x, 2, y));
  EXPECT_MESSAGE("[predict] y[1]: expected float32 or float64, got integers");
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_backward(model, x, y, 1, NULL));
  EXPECT_MESSAGE("[backward] expected a model with one input and one output, got 2 and 2");
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_window_create(model, NULL, &window));
  EXPECT_MESSAGE("[window_create] expected a model with one input and one output, got 2 and 2");
  EXPECT_STATUS(TANDEM_FAILED_PRECONDITION, tandem_model_observe(model, x, y));
  EXPECT_OK(tandem_model_spec(model, 2, &spec));
  EXPECT(spec.rank == 2 && spec.dims[0] == -1 && spec.dims[1] == 2);
  EXPECT_OK(tandem_model_spec(model, 3, &spec));
  EXPECT(spec.rank == 2 && spec.dims[1] == CLASSES);
  EXPECT_STATUS(TANDEM_INVALID_ARGUMENT, tandem_model_spec(model, 4, &spec));
}

int main(void) {
  tandem_model *model = NULL, *one = NULL;
  double loss, same;
  make_arrays();
  EXPECT_OK(tandem_set_seed(7));
  EXPECT_OK(tandem_model_create(kModel, NULL, &model));
  follows_the_gradient(model);
  goes_on_from_a_file(model);
  names_what_is_wrong(model);
  /* Of a model of one input and one output these are tandem_train() and tandem_predict(). */
  EXPECT_OK(tandem_model_create("{\"inputs\": [2], \"layers\": [{\"type\": \"dense\", \"units\": 2}],"
                                " \"optimizer\": \"sgd\", \"loss\": \"mse\"}", NULL, &one));
  EXPECT_OK(tandem_evaluate(one, &x[1], &y[0], &same));
  EXPECT_OK(tandem_train_multi(one, 1, &x[1], 1, &y[0], NULL, &loss));
  EXPECT(loss == same);
  EXPECT_OK(tandem_predict_multi(one, 1, &x[1], 1, &results[0]));
  EXPECT_OK(tandem_model_free(one));
  EXPECT_OK(tandem_model_free(model));
  return end_of_checks();
}
